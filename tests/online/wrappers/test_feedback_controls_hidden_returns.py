"""What an agent's program can know of the true reward, in three libraries."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordAll
from stable_baselines3.common.env_util import make_vec_env

from helpers.wrapped_pendulums import STEPS, pendulum, reward_of
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.online.wrappers.gymnasium_envs import FeedbackVectorEnv, HumanPreferencesEnvWrapper


def watched(steps: int = STEPS) -> gymnasium.Env[Any, Any]:
    return RecordEpisodeStatistics(pendulum(steps))


def test_in_environments_of_stable_baselines3() -> None:
    shown = FeedbackVecEnv(make_vec_env(pendulum, 2, seed=0), rewards=reward_of())
    hidden = FeedbackVecEnv(
        make_vec_env(pendulum, 2, seed=0), rewards=reward_of(), hide_true_reward=True
    )
    for env in (shown, hidden):
        env.reset()
    for _ in range(STEPS):
        *_, shown_infos = shown.step(np.zeros((2, 1), np.float32))
        *_, infos = hidden.step(np.zeros((2, 1), np.float32))
        assert all("true_reward" in info and info["reward_version"] == 1 for info in shown_infos)
        assert not any("true_reward" in info for info in infos)
    assert shown_infos[0]["episode"]["r"] < -10 < shown_infos[0]["learned_return"]
    assert infos[0]["episode"]["r"] == infos[0]["learned_return"]


@pytest.mark.parametrize("hide", [False, True])
def test_in_a_single_environment(tmp_path, hide: bool) -> None:
    env = HumanPreferencesEnvWrapper(
        watched(), log_dir=tmp_path, collect_prefs=False, rewards=reward_of(), hide_true_reward=hide
    )
    env.reset(seed=0)
    for _ in range(STEPS):
        *_, info = env.step(np.zeros(1, np.float32))
        assert ("true_reward" in info) != hide
    assert -10 < info["learned_return"] != 0
    assert (info["episode"]["r"] == info["learned_return"]) == hide
    assert (info["episode"]["r"] < -10) != hide
    assert info["episode"]["l"] == STEPS


@pytest.mark.parametrize(
    ("mode", "outside"), list(zip(AutoresetMode, (False, True, False), strict=True))
)
@pytest.mark.parametrize("hide", [False, True])
def test_in_vector_environments(mode: AutoresetMode, outside: bool, hide: bool) -> None:
    make = pendulum if outside else watched
    made: Any = SyncVectorEnv([lambda: make(STEPS), lambda: make(30)], autoreset_mode=mode)
    env = FeedbackVectorEnv(
        RecordAll(made) if outside else made, rewards=reward_of(), hide_true_reward=hide
    )
    env.reset(seed=0)
    for _ in range(STEPS):
        *_, infos = env.step(np.zeros((2, 1), np.float32))
        assert ("true_reward" in infos) != hide
    learned = float(infos["learned_return"][0])
    assert -10 < learned != 0
    final = "final_info" in infos and not outside
    episode = (infos["final_info"] if final else infos)["episode"]
    assert episode["r"][1] == 0.0  # its episode goes on
    assert (episode["r"][0] == pytest.approx(learned)) == hide
    assert (episode["r"][0] < -10) != hide
    assert episode["l"][0] == STEPS


def test_an_episode_that_is_no_monitors_is_left_alone(tmp_path) -> None:
    class Numbered(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            *outcome, info = self.env.step(action)
            return *outcome, info | {"episode": 7}

    env = HumanPreferencesEnvWrapper(
        Numbered(pendulum(1)), log_dir=tmp_path, collect_prefs=False, hide_true_reward=True
    )
    env.reset(seed=0)
    assert env.step(np.zeros(1, np.float32))[4]["episode"] == 7
