"""Learning is tested by learning, beside controls that must fail."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from preferl.configs import from_json
from preferl.evaluation import RandomPolicy, evaluate_policy, evaluate_reward
from preferl.feedback import ScriptedTeacher
from preferl.feedback.instant import sample_comparisons
from preferl.models import build_reward_model
from preferl.online import OnlineConfig, learn_from_preferences, record
from preferl.presets import load_preset
from preferl.training import RewardFunction, RewardTrainer

pytestmark = pytest.mark.slow

HANGING = -900
"""A pendulum that hangs or spins returns about -1,200; one that stands about -150."""


def taught(**changes):
    config = replace(from_json(OnlineConfig, load_preset("pendulum")), eval_every=0, **changes)
    report = learn_from_preferences(config)
    assert len(report.comparisons) == 40
    assert report.env_steps <= 12_000
    policy = report.learner.algorithm
    return evaluate_policy(policy, config.env, episodes=30, seed=10_000).mean


@pytest.mark.nightly  # README does the same in every check
def test_forty_answers_teach_a_pendulum_to_stand():
    assert taught(seed=0) > -200


@pytest.mark.nightly  # every check has controls of offline agents
def test_negated_answers_teach_it_to_hang():
    assert taught(seed=0, teacher=replace(preset_teacher(), error_rate=1.0)) < HANGING


def test_random_answers_teach_no_reward(rng):
    """A reward of random answers has some direction, by chance upwards as often as downwards.

    So some of its agents stand, and it is many rewards together that have to know nothing.
    """
    config = from_json(OnlineConfig, load_preset("pendulum"))
    env = gymnasium.make(config.env)
    policy = RandomPolicy(env.action_space, 0)
    experience, unseen = (record(policy, config.env, 2_000, seed=seed) for seed in (0, 1))
    judge = sample_comparisons(unseen, 500, config.segment_length, ScriptedTeacher.oracle(), rng)

    def accuracy(teacher, seed):
        given = sample_comparisons(experience, 200, config.segment_length, teacher, rng)
        model = build_reward_model(config.model, env.observation_space, env.action_space, seed=seed)
        RewardTrainer(model, config.trainer, seed=seed).fit(given)
        return evaluate_reward(RewardFunction(model), judge).accuracy

    assert accuracy(preset_teacher(), 0) > 0.9
    guessing = replace(preset_teacher(), guess_rate=1.0)
    assert 0.3 < np.mean([accuracy(guessing, seed) for seed in range(10)]) < 0.7


@pytest.mark.nightly
def test_five_hundred_answers_keep_a_dot_in_the_middle_from_its_pixels():
    config = replace(from_json(OnlineConfig, load_preset("moving_dot")), eval_every=0)
    report = learn_from_preferences(config)
    assert len(report.comparisons) == 500
    episodes = record(report.learner.algorithm, config.env, 4_800, seed=10_000)
    distance = -episodes.rewards.reshape(len(episodes), -1)[:, 50:]  # once it has arrived
    assert distance.mean() <= 0.10  # of the width; random actions leave it at 0.34


def preset_teacher():
    return from_json(OnlineConfig, load_preset("pendulum")).teacher
