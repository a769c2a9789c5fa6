"""Evaluations while the agent learns: they show it without exploring, and leave no trace in it."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.resumable_runs import assert_same, everything
from helpers.tiny_runs import Kept, tiny
from preferl.errors import ConfigError
from preferl.evaluation import evaluate_policy
from preferl.online import SACConfig, learn_from_preferences
from preferl.online.learner import build_learner, build_trainer
from preferl.online.loop import FIRST_EPISODE

TINY = tiny(steps=800, comparisons=8, initial_steps=200, eval_every=150, eval_episodes=2)
SMALL_SAC = SACConfig(buffer_size=300, learning_starts=50, batch_size=16, hidden=(8,))
CONFIGS = {"ppo": TINY, "sac": replace(TINY, steps=500, algorithm=SMALL_SAC)}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_with_and_without_evaluations_the_same_is_learned(name):
    reports = []
    for every in (0, 150, 1):
        report = learn_from_preferences(replace(CONFIGS[name], eval_every=every))
        reports.append((report, everything(report.learner.algorithm)))
    (none, expected), *others = reports
    assert none.evaluations == ()
    assert none.iterations[-1].evaluation is None
    for report, found in others:
        assert len(report.evaluations) > 2
        assert_same(found, expected)
        np.testing.assert_array_equal(report.comparisons.preference, none.comparisons.preference)


def test_they_come_every_so_often_and_at_both_ends():
    seen = []
    sink = Kept()
    report = learn_from_preferences(TINY, on_evaluation=seen.append, sink=sink)
    assert report.evaluations == tuple(seen)
    steps = [one.step for one in seen]
    assert (steps[0], steps[-1]) == (200, report.env_steps)
    assert len({step // 150 for step in steps[:-1]}) == len(steps) - 1
    assert {1, 2, 3, 4} <= {step // 150 for step in steps}
    logged = [(step, row) for step, row in sink.rows if "eval/mean_reward" in row]
    assert logged == [(one.step, one.metrics()) for one in seen]
    assert [one.report.episodes for one in seen] == [2] * len(seen)
    assert report.iterations[-1].evaluation is seen[-1]


def test_the_last_one_is_of_the_policy_that_remains_without_exploring():
    report = learn_from_preferences(TINY)
    again = evaluate_policy(
        report.learner.algorithm, TINY.env, episodes=2, seed=TINY.seed + FIRST_EPISODE
    )
    np.testing.assert_array_equal(report.evaluations[-1].report.returns, again.returns)


def test_there_are_some_ten_by_default():
    config = replace(CONFIGS["sac"], eval_every=None, initial_steps=50)
    assert [one.step for one in learn_from_preferences(config).evaluations] == [*range(50, 501, 50)]


class Own:
    """A learner of one's own that only acts, at random."""

    def __init__(self):
        self.inner = build_learner(TINY, np.random.default_rng(0))
        self.learn = self.explore = self.inner.explore
        self.set_reward = self.inner.set_reward

    @property
    def steps(self):
        return self.inner.steps


class Acting(Own):
    def predict(self, *seen, **how):
        return self.inner.algorithm.predict(*seen, **how)


@pytest.mark.filterwarnings("ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning")
def test_a_learner_of_ones_own_is_evaluated_where_its_environment_is_named():
    def learned(kind, **more):
        own = kind()
        trainer = build_trainer(TINY, own.inner)
        return learn_from_preferences(TINY, learner=own, trainer=trainer, **more).evaluations

    assert learned(Acting) == ()
    evaluations = learned(Acting, eval_env="Pendulum-v1")
    assert [one.step for one in evaluations] == [200, 500, 800]  # between iterations
    with pytest.raises(ConfigError, match="learner: expected a method `predict`"):
        learned(Own, eval_env="Pendulum-v1")
