"""Episodes of different length are noticed however they end, in the loop and in the wrappers."""

import warnings
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

from helpers.tiny_runs import tiny
from preferl.errors import DataError
from preferl.models import MLPRewardConfig
from preferl.online import (
    FeedbackConfig,
    FeedbackVecEnv,
    FeedbackVectorEnv,
    HumanPreferencesEnvWrapper,
    OnlineConfig,
    PPOConfig,
    SB3Learner,
    learn_from_preferences,
)
from preferl.online.algorithms import build_algorithm
from preferl.online.wrappers.feedback_config import VariableLengthWarning


class Cut(gymnasium.Env[Any, Any]):
    """Episodes that time ends after some of these numbers of steps in turn; never the rules."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, *lengths, terminates=False):
        self.lengths = lengths
        self.episode = -1
        self.terminates = terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode = self.episode + 1
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        over = self.steps >= self.lengths[self.episode % len(self.lengths)]
        ends = over and self.terminates
        return np.zeros(2, np.float32), float(action[0]), ends, over and not ends, {}


UNEVEN = (30, 89, 47)
CONFIG = tiny(
    steps=600,
    comparisons=6,
    initial_steps=100,
    short="drop",
    variable_length="refuse",
    model=MLPRewardConfig(hidden=(8,), members=1),
    algorithm=PPOConfig(n_steps=64, batch_size=32, n_epochs=1, hidden=(8,)),
)


def learn(make, environments=2, **changes):
    config = replace(CONFIG, environments=environments, **changes)
    env = DummyVecEnv([make] * environments)
    algorithm = build_algorithm(config.algorithm, env, seed=0)
    learner = SB3Learner(algorithm, total_steps=config.steps, rng=np.random.default_rng(0))
    return learn_from_preferences(config, learner=learner)


@pytest.mark.parametrize("terminates", [False, True])
def test_the_loop_refuses_episodes_that_end_at_different_times(terminates):
    with pytest.raises(DataError, match=r"differ in length \(30 to \d+ steps\)"):
        learn(lambda: Cut(*UNEVEN, terminates=terminates))


def test_the_loop_warns_once_where_they_are_allowed():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learn(lambda: Cut(*UNEVEN), variable_length="allow")
    assert [w.category for w in caught].count(VariableLengthWarning) == 1


@pytest.mark.filterwarnings("ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning")
@pytest.mark.parametrize(
    ("changes", "one_length"),
    [({}, True), ({"short": "pad"}, False), ({"segment_length": 40}, False)],
)
def test_by_default_clips_of_one_length_are_compared_where_there_are_some(changes, one_length):
    settings = {"short": OnlineConfig.short, "variable_length": "allow"} | changes
    report = learn(lambda: Cut(6, 30), **settings)
    assert (len(set(report.comparisons.segments.real.tolist())) == 1) == one_length


@pytest.mark.filterwarnings("ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning")
@pytest.mark.parametrize(
    ("lengths", "centre", "moved"),
    [((50,), None, True), (UNEVEN, None, False), (UNEVEN, True, True)],
)
def test_rewards_keep_their_mean_once_lengths_differ(lengths, centre, moved):
    report = learn(lambda: Cut(*lengths), variable_length="allow", centre=centre)
    assert report.reward.scaler.mean.any() == moved


@pytest.mark.parametrize(("length", "environments"), [(7, 3), (10_000, 1)])
def test_one_length_is_no_fault_wherever_we_cut(length, environments):
    """Rollouts, exploration and the end of the run cut episodes in the middle."""
    learn(lambda: Cut(length), environments, segment_length=5, exploration_fraction=0.2)


VEC = (
    lambda lengths, **how: FeedbackVecEnv(make_vec_env(lambda: Cut(*lengths), 2), **how),
    lambda lengths, **how: FeedbackVectorEnv(
        gymnasium.vector.SyncVectorEnv([lambda: Cut(*lengths)] * 2), **how
    ),
    lambda lengths, **how: HumanPreferencesEnvWrapper(Cut(*lengths), collect_prefs=False, **how),
)
NAMES = ["FeedbackVecEnv", "FeedbackVectorEnv", "HumanPreferencesEnvWrapper"]


def play(env, steps):
    action = np.zeros((getattr(env, "num_envs", 1), 1), np.float32)
    single = isinstance(env, HumanPreferencesEnvWrapper)
    try:
        env.reset()
        for _ in range(steps):
            outcome = env.step(action[0] if single else action)
            if single and (outcome[2] or outcome[3]):
                env.reset()
    finally:
        env.close()


@pytest.mark.parametrize("make", VEC, ids=NAMES)
def test_wrappers_have_the_same_guard(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"differ in length \(30 to \d+ steps\)"):
        play(make(UNEVEN, config=FeedbackConfig(variable_length="refuse")), 130)
    with pytest.warns(VariableLengthWarning, match="differ in length") as caught:
        play(make(UNEVEN, config=FeedbackConfig()), 300)
    assert len(caught) == 1
