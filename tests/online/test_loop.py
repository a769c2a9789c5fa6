"""The loop: plans, parts that can be exchanged, warnings, interrupts, seeds."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from helpers.tiny_runs import tiny
from preferl.errors import ConfigError, DataError
from preferl.feedback import ScriptedTeacher
from preferl.online import PPOConfig, learn_from_preferences
from preferl.online.loop import PreferenceLoop, build_parts

TINY = tiny(steps=1_600, comparisons=17, iterations=3, algorithm=PPOConfig(100, 50, 1))


@pytest.fixture(scope="module")
def report():
    return learn_from_preferences(TINY)


def test_reward_is_normalised_over_experience(report):
    rewards = report.reward.scaler(report.reward.member_rewards(report.experience))
    # Experience after the last fit moves it a little.
    assert abs(float(rewards.mean())) < 0.5
    assert 0.5 < float(rewards.std()) < 2


def test_the_reward_knows_its_likelihood(report):
    assert report.reward.likelihood == report.iterations[-2].fit.likelihood
    assert report.reward.likelihood.scale != 1


@pytest.mark.parametrize("sampler", ["k_center", "k_center_entropy", "covering"])
def test_a_sampler_knows_what_was_asked(sampler):
    parts = build_parts(replace(TINY, sampler=sampler, iterations=2))
    assert parts.sampler.asked() is None
    PreferenceLoop(parts).learn()
    assert len(parts.sampler.asked()) == 17


def test_interrupt_keeps_answers_and_reports_it():
    calls = []

    def teacher(shown, rng):
        calls.append(len(shown))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ScriptedTeacher()(shown, rng)

    report = learn_from_preferences(TINY, teacher=teacher)
    assert report.interrupted
    assert report.reward is not None
    assert len(report.comparisons) == calls[0]


def test_learner_of_ones_own_needs_a_trainer():
    class Mine:
        steps = 0

    with pytest.raises(ConfigError, match="trainer"):
        learn_from_preferences(TINY, learner=Mine())


def test_too_long_clips_are_an_error_that_says_how_long():
    with pytest.raises(DataError, match="at most 200"):
        learn_from_preferences(replace(TINY, segment_length=300, short="drop"))


def test_ties_alone_make_no_reward_and_the_agent_sees_new_states(caplog):
    rounds = []

    def teacher(shown, rng):
        rounds.append(len(shown))
        return np.full(len(shown), 0.5 if len(rounds) < 3 else 1.0)

    with caplog.at_level("INFO", "preferl.online.loop"):
        report = learn_from_preferences(TINY, teacher=teacher)
    assert [one.fit is None for one in report.iterations] == [True, True, False, True]
    assert "are all ties" in caplog.text
    assert report.reward is not None
    undecided = learn_from_preferences(TINY, teacher=lambda shown, rng: np.full(len(shown), 0.5))
    assert undecided.reward is None
    assert undecided.env_steps > 1_000


def test_iterations_shorter_than_a_rollout_are_logged(caplog):
    report = learn_from_preferences(replace(TINY, iterations=7))
    assert "An iteration has 162 steps to learn from, and a rollout takes 200" in caplog.text
    assert report.env_steps <= 1_600
    assert all(one.env_steps > before.env_steps for before, one in pairwise(report.iterations))
    caplog.clear()
    learn_from_preferences(TINY)
    assert "rollout" not in caplog.text


def test_a_schedule_may_be_a_function():
    report = learn_from_preferences(TINY, schedule=lambda elapsed: float(elapsed < 0.5))
    asked = [turn.comparisons for turn in report.iterations]
    assert asked == [4, 17, 17, 17]
