"""What a wrapped environment records and rewards, in episodes that end at random."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

from helpers.waiting import wait_until
from helpers.wrapped_pendulums import Sink
from preferl.errors import ConfigError, SpaceError
from preferl.models import (
    EnsembleConfig,
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
from preferl.online.wrappers.feedback_config import BeforeFirstReward, FeedbackConfig
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.training import RewardFunction, relabel
from preferl.training.publish import publish

# What is looked at here are episodes of every length; the warning has tests of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning"
)

SEEN = spaces.Box(-1, 1, (3,), np.float32)
HALF = spaces.Box(-1, 1, (2,), np.float32)
PT = PreferenceTransformerConfig(width=16, heads=2, preference_width=8, context=6)
MODELS = {
    "mlp": MLPRewardConfig(hidden=(8,), members=2),
    "mr": MLPRewardConfig(hidden=(8, 8), normalise=False),
    "nmr": LSTMRewardConfig(width=32, context=6),
    "pt": PT,
    "pts": EnsembleConfig((PT, PT)),
}
TRUE = [0.5, 1.5, 2.5]


class Straying(gymnasium.Env[Any, Any]):
    """Shows random numbers; episodes end at random, by the rules or by time."""

    observation_space = SEEN
    action_space = HALF

    def __init__(self, number):
        self.reward = TRUE[number]
        self.rng = np.random.default_rng(number)

    def reset(self, **_):
        return self.rng.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        over = self.rng.random() < 0.1
        terminated = self.rng.random() < 0.5
        return self.reset()[0], self.reward, over and terminated, over and not terminated, {}


class Walk:
    """Random steps of three environments in a wrapper, and the reward of each by what was seen."""

    def __init__(self, **settings):
        venv = DummyVecEnv([partial(Straying, number) for number in range(3)])
        self.env = FeedbackVecEnv(venv, **{"record": True} | settings)
        self.rng = np.random.default_rng(0)
        self.given = {}
        self.seen = self.env.reset()

    def steps(self, count=1):
        """Make so many; return the rewards of the last `[3]`."""
        for _ in range(count):
            before = self.seen
            self.actions = self.rng.uniform(-1, 1, (3, 2)).astype(np.float32)
            self.seen, rewards, _, self.infos = self.env.step(self.actions)
            self.given |= zip(map(bytes, before), rewards.tolist(), strict=True)
            last = rewards.copy()
            rewards[:] = 1e6  # whoever gets them may change them
        return last

    def recorded(self):
        """All episodes, and the rewards that their steps were given `[T]`."""
        episodes = self.env.take(unfinished="cut")
        return episodes, np.array([self.given[bytes(seen)] for seen in episodes.observations])


def reward_of(kind, seen=SEEN):
    return RewardFunction(build_reward_model(MODELS[kind], seen, HALF, seed=0))


@pytest.mark.parametrize("kind", MODELS)
def test_rewards_are_those_of_relabelling_what_was_recorded(kind):
    reward = reward_of(kind)
    walk = Walk(rewards=reward)
    walk.steps(45)
    walk.seen = walk.env.reset()  # in the middle of episodes
    walk.steps(45)
    episodes, rewards = walk.recorded()
    assert len(episodes) > 10
    assert len(rewards) == 3 * 90
    assert np.ptp(rewards) > 1e-3
    np.testing.assert_allclose(relabel(episodes, reward).rewards, rewards, atol=1e-5)
    assert set(episodes.rewards.tolist()) == set(TRUE)


@pytest.mark.parametrize("kind", ["nmr", "pt"])
def test_a_reward_that_comes_in_the_middle_looks_back_all_the_way(kind):
    walk = Walk()
    walk.steps(31)
    assert not any(walk.given.values())
    walk.given = dict.fromkeys(walk.given, np.nan)
    assert walk.env.core.recording.pending.max() > 3, "episodes have begun"
    reward = reward_of(kind)
    walk.env.set_reward(reward)
    assert (walk.env.reward_version, walk.env.reward_source) == (1, "learned")
    walk.steps(5)
    episodes, rewards = walk.recorded()
    new = ~np.isnan(rewards)
    assert new.sum() == 3 * 5
    expected = relabel(episodes, reward).rewards[new]
    assert np.ptp(expected) > 1e-3
    np.testing.assert_allclose(rewards[new], expected, atol=1e-5)


def test_a_newer_reward_is_switched_to_every_so_many_steps_alone(tmp_path):
    walk = Walk(rewards=tmp_path, refresh_every=4)
    publish(tmp_path, reward_of("mlp"))
    wait_until(lambda: walk.env.core.computer.published.next)
    versions = []
    for _ in range(8):
        walk.steps()
        versions.append(walk.env.reward_version)
    assert versions == [0, 0, 0, 1, 1, 1, 1, 1]
    walk.env.close()


def test_rewards_before_the_first_version():
    zero = Walk()
    assert zero.env.reward_source == "before_first_reward"
    assert not zero.steps(9).any()
    own = Walk(before=BeforeFirstReward.ENVIRONMENT)
    assert own.env.reward_source == "environment"
    assert own.steps().tolist() == TRUE
    curious = Walk(before="entropy")
    assert (np.stack([curious.steps() for _ in range(9)])[3:] > 0).all()
    with pytest.raises(ConfigError, match="zero, entropy, environment"):
        FeedbackConfig(before="true")


def test_the_environments_reward_is_given_only_on_request():
    reward = reward_of("nmr")
    walk = Walk(rewards=reward)
    walk.env.switch_to_true_reward()
    assert walk.steps().tolist() == TRUE
    assert walk.infos[0]["reward_version"] == 0
    walk.env.switch_to_learned_reward()
    walk.given.clear()
    shown = {bytes(seen) for seen in walk.seen}
    walk.steps()
    assert walk.infos[0]["reward_version"] == 1
    episodes = walk.env.take(unfinished="cut")
    rewards = dict(
        zip(map(bytes, episodes.observations), relabel(episodes, reward).rewards, strict=True)
    )
    assert walk.given == pytest.approx({seen: rewards[seen] for seen in shown}, abs=1e-5)


def test_no_piece_is_longer_than_the_longest_however_episodes_end():
    walk = Walk(record=False, segment_length=5, longest_piece=20)
    handed = Sink(walk.env)
    for step in range(400):
        if step == 150:
            walk.env.pause_collecting()
        if step == 200:
            walk.env.resume_collecting()
        walk.steps()
        assert walk.env.core.recording.pending.max() < 20
    assert handed.episodes(walk.env).lengths.max() == 20


def test_a_transform_is_what_people_and_rewards_see():
    reward = reward_of("mlp", HALF)
    walk = Walk(rewards=reward, transform=lambda o: o[..., :2] / 2, transformed_space=HALF)
    raw = walk.seen
    rewards = walk.steps()
    episodes = walk.env.take(unfinished="cut")
    np.testing.assert_array_equal(np.sort(episodes.observations, 0), np.sort(raw[:, :2] / 2, 0))
    relabelled = relabel(episodes, reward).rewards
    np.testing.assert_allclose(np.sort(relabelled), np.sort(rewards), atol=1e-5)
    own = walk.env.learned_reward
    assert own.observation_space == SEEN
    again = own(raw[:, None], walk.actions[:, None], np.ones((3, 1), bool))
    np.testing.assert_allclose(again, rewards, atol=1e-5)


def test_a_transform_that_does_not_keep_its_word_is_refused():
    with pytest.raises(ConfigError, match="both or neither"):
        Walk(transform=lambda o: o)
    with pytest.raises(SpaceError, match=r"expected shape \(1, 2\).*got \(1, 3\)"):
        Walk(transform=lambda o: o, transformed_space=HALF)


@pytest.mark.parametrize(
    ("feedback", "fix"),
    [
        (FeedbackConfig(), r"config=FeedbackConfig"),
        ("runs/labels", r"StoredFeedback\(store, project\)"),
    ],
)
def test_something_else_in_place_of_the_feedback_is_refused(feedback, fix):
    with pytest.raises(ConfigError, match=f"feedback: expected a StoredFeedback.*{fix}"):
        Walk(feedback=feedback)
    with pytest.raises(ConfigError, match=r"config: expected a FeedbackConfig.*as keywords"):
        Walk(config={"segment_length": 5})


def test_a_step_before_the_first_reset_is_refused():
    env = FeedbackVecEnv(DummyVecEnv([partial(Straying, 0)]))
    with pytest.raises(ConfigError, match="reset"):
        env.step(np.zeros((1, 2)))
