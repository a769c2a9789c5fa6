"""Learning is tested by learning, beside controls that must fail."""

from dataclasses import replace

import pytest

from preferl.configs import from_json
from preferl.evaluation import evaluate_policy
from preferl.feedback import ScriptedTeacher
from preferl.online import OnlineConfig, learn_from_preferences, record
from preferl.presets import load_preset

pytestmark = pytest.mark.slow

HANGING = -900
"""A pendulum that hangs or spins returns about -1,200; one that stands about -150."""

FALLING = -600
"""A reward of random answers has some direction, so that agents may swing up and fall."""


def taught(**changes):
    config = replace(from_json(OnlineConfig, load_preset("pendulum")), eval_every=0, **changes)
    report = learn_from_preferences(config)
    assert len(report.comparisons) == 200
    assert report.env_steps <= 125_000
    policy = report.learner.algorithm
    return evaluate_policy(policy, config.env, episodes=30, seed=10_000).mean


def test_two_hundred_answers_teach_a_pendulum_to_stand():
    assert taught(seed=0) > -350


def test_negated_answers_teach_it_to_hang():
    assert taught(seed=0, teacher=replace(preset_teacher(), error_rate=1.0)) < HANGING


def test_random_answers_do_not_teach_it_to_stand():
    assert taught(seed=0, teacher=replace(preset_teacher(), guess_rate=1.0)) < FALLING


def test_five_hundred_answers_keep_a_dot_in_the_middle_from_its_pixels():
    config = replace(from_json(OnlineConfig, load_preset("moving_dot")), eval_every=0)
    report = learn_from_preferences(config)
    assert len(report.comparisons) == 500
    episodes = record(report.learner.algorithm, config.env, 4_800, seed=10_000)
    distance = -episodes.rewards.reshape(len(episodes), -1)[:, 50:]  # once it has arrived
    assert distance.mean() <= 0.10  # of the width; random actions leave it at 0.34


def preset_teacher() -> ScriptedTeacher:
    return from_json(OnlineConfig, load_preset("pendulum")).teacher
