"""What an agent's program can know of the true reward, in three libraries."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordAll

from helpers.wrapped_pendulums import STEPS, pendulum, pendulums, reward_of
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.online.wrappers.gymnasium_envs import FeedbackVectorEnv, HumanPreferencesEnvWrapper


def watched(steps=STEPS):
    return RecordEpisodeStatistics(pendulum(steps))


@pytest.mark.parametrize("hide", [False, True])
def test_in_environments_of_stable_baselines3(hide):
    inner = pendulums(2)
    env = FeedbackVecEnv(inner, rewards=reward_of(), hide_true_reward=hide)
    env.reset()
    for _ in range(STEPS):
        *_, (info, _) = env.step(np.zeros((2, 1), np.float32))
        assert info["reward_version"] == 1
        assert ("true_reward" in info) != hide
    assert -10 < info["learned_return"] != 0
    assert (info["episode"]["r"] == info["learned_return"]) == hide
    assert (info["episode"]["r"] < -10) != hide


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("hide", [False, True])
def test_in_vector_environments(mode, hide):
    made = SyncVectorEnv([watched, lambda: watched(30)], autoreset_mode=mode)
    if mode == AutoresetMode.SAME_STEP:  # whose monitor is outside
        made = RecordAll(SyncVectorEnv([pendulum, lambda: pendulum(30)], autoreset_mode=mode))
    env = FeedbackVectorEnv(made, rewards=reward_of(), hide_true_reward=hide)
    env.reset(seed=0)
    for _ in range(STEPS):
        *_, infos = env.step(np.zeros((2, 1), np.float32))
        assert ("true_reward" in infos) != hide
    learned = float(infos["learned_return"][0])
    assert -10 < learned != 0
    episode = infos["episode"]
    assert episode["r"][1] == 0.0  # its episode goes on
    assert (episode["r"][0] == pytest.approx(learned)) == hide
    assert (episode["r"][0] < -10) != hide
    assert episode["l"][0] == STEPS


@pytest.mark.parametrize("hide", [False, True])
def test_in_a_single_environment(hide):
    env = HumanPreferencesEnvWrapper(
        watched(), collect_prefs=False, rewards=reward_of(), hide_true_reward=hide
    )
    env.reset(seed=0)
    for _ in range(STEPS):
        *_, info = env.step(np.zeros(1, np.float32))
        assert ("true_reward" in info) != hide
    assert -10 < info["learned_return"] != 0
    assert (info["episode"]["r"] == info["learned_return"]) == hide
    assert (info["episode"]["r"] < -10) != hide
    assert info["episode"]["l"] == STEPS
    numbered = pendulum(1)
    step = numbered.step
    numbered.step = lambda action: (*step(action)[:4], {"episode": 7})  # of no monitor
    env = HumanPreferencesEnvWrapper(numbered, collect_prefs=False, hide_true_reward=hide)
    env.reset(seed=0)
    assert env.step(np.zeros(1, np.float32))[4]["episode"] == 7
