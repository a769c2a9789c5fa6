"""Runs without steps: queries are about recorded episodes, and a reward comes of them."""

from dataclasses import replace

import pytest

from preferl.errors import ConfigError
from preferl.evaluation import evaluate_reward
from preferl.feedback.instant import sample_comparisons
from preferl.feedback.scripted import ScriptedTeacher
from preferl.models import MLPRewardConfig
from preferl.online import OnlineConfig, learn_from_preferences
from preferl.online.wrappers.feedback_config import VariableLengthWarning
from preferl.testing import make_comparisons, make_episodes
from preferl.training import RewardTrainerConfig

RECORDED = OnlineConfig(
    env="NoSuchEnvironment-v0",  # none is made
    steps=0,
    initial_steps=0,
    comparisons=60,
    iterations=3,
    segment_length=10,
    model=MLPRewardConfig(hidden=(16,), members=2),
    trainer=RewardTrainerConfig(epochs=30),
)


@pytest.fixture
def episodes(rng):
    return make_episodes(rng, [40] * 12)


def test_recorded_episodes_alone_are_asked_about_and_give_a_reward(episodes, rng):
    seen = []
    report = learn_from_preferences(RECORDED, episodes=episodes, on_iteration=seen.append)
    assert report.learner is None
    assert report.env_steps == 0
    assert len(report.comparisons) == 60
    assert [one.iteration for one in seen] == [0, 1, 2, 3]
    fresh = make_episodes(rng, [40] * 12)
    held_out = sample_comparisons(fresh, 100, 10, ScriptedTeacher.oracle(), rng)
    assert evaluate_reward(report.reward, held_out).accuracy > 0.7


def test_comparisons_alone_are_fitted(rng):
    known = make_comparisons(rng, pairs=30)
    report = learn_from_preferences(replace(RECORDED, comparisons=0), comparisons=known)
    assert report.reward is not None
    assert len(report.comparisons) == 30


def test_rewards_of_episodes_of_different_length_keep_their_mean(rng):
    episodes = make_episodes(rng, [40, 30, 40, 30])
    config = replace(RECORDED, comparisons=10)
    with pytest.warns(VariableLengthWarning):
        report = learn_from_preferences(config, episodes=episodes)
    assert not report.reward.scaler.mean.any()


@pytest.mark.parametrize("comparisons", [10, 0])
def test_without_anything_recorded_there_is_nothing_to_learn_from(comparisons, rng):
    known = None if comparisons == 10 else make_comparisons(rng, pairs=2)
    config = replace(RECORDED, comparisons=10)
    with pytest.raises(ConfigError, match="episodes="):
        learn_from_preferences(config, comparisons=known)
