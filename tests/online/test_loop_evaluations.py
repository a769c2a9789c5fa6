"""Evaluations while the agent learns: they show it without exploring, and leave no trace in it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.resumable_runs import assert_same, everything
from preferl.errors import ConfigError
from preferl.evaluation import evaluate_policy
from preferl.evaluation.curve import Evaluation
from preferl.models import MLPRewardConfig
from preferl.online import OnlineConfig, PPOConfig, SACConfig, learn_from_preferences
from preferl.online.loop import FIRST_EPISODE
from preferl.training import RewardTrainerConfig

TINY = OnlineConfig(
    environments=2,
    steps=800,
    comparisons=8,
    iterations=2,
    segment_length=10,
    initial_steps=200,
    algorithm=PPOConfig(n_steps=50, batch_size=50, n_epochs=2),
    model=MLPRewardConfig(hidden=(8,), members=2),
    trainer=RewardTrainerConfig(epochs=2),
    eval_every=150,
    eval_episodes=2,
)
SMALL_SAC = SACConfig(buffer_size=300, learning_starts=50, batch_size=16, hidden=(8,))
CONFIGS = {"ppo": TINY, "sac": replace(TINY, steps=500, algorithm=SMALL_SAC)}


class Kept:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def log(self, values: Any, step: int) -> None:
        self.rows.append((step, dict(values)))

    def close(self) -> None:
        self.rows.clear()


@pytest.mark.parametrize("name", list(CONFIGS))
def test_with_and_without_evaluations_the_same_is_learned(name: str) -> None:
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


def test_they_come_every_so_often_and_at_both_ends() -> None:
    seen: list[Evaluation] = []
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


def test_the_last_one_is_of_the_policy_that_remains_without_exploring() -> None:
    report = learn_from_preferences(TINY)
    again = evaluate_policy(
        report.learner.algorithm, TINY.env, episodes=2, seed=TINY.seed + FIRST_EPISODE
    )
    np.testing.assert_array_equal(report.evaluations[-1].report.returns, again.returns)


def test_there_are_some_ten_by_default() -> None:
    config = replace(CONFIGS["sac"], eval_every=None, initial_steps=50)
    assert [one.step for one in learn_from_preferences(config).evaluations] == [*range(50, 501, 50)]


class Own:
    """A learner of one's own that only acts, at random."""

    def __init__(self) -> None:
        from preferl.online.learner import build_learner

        self.inner = build_learner(TINY, np.random.default_rng(0))
        self.learn = self.inner.explore
        self.explore = self.inner.explore
        self.set_reward = self.inner.set_reward

    @property
    def steps(self) -> int:
        return self.inner.steps


class Acting(Own):
    def predict(self, *seen: Any, **how: Any) -> Any:
        return self.inner.algorithm.predict(*seen, **how)


@pytest.mark.filterwarnings("ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning")
def test_a_learner_of_ones_own_is_evaluated_where_its_environment_is_named() -> None:
    from preferl.online.learner import build_trainer

    own = Acting()
    parts: dict[str, Any] = {"learner": own, "trainer": build_trainer(TINY, own.inner)}
    assert learn_from_preferences(TINY, **parts).evaluations == ()
    own = Acting()
    parts = {"learner": own, "trainer": build_trainer(TINY, own.inner)}
    report = learn_from_preferences(TINY, eval_env="Pendulum-v1", **parts)
    assert [one.step for one in report.evaluations] == [200, 500, 800]  # between iterations
    other = Own()
    parts = {"learner": other, "trainer": build_trainer(TINY, other.inner)}
    with pytest.raises(ConfigError, match="learner: expected one with `predict`"):
        learn_from_preferences(TINY, eval_env="Pendulum-v1", **parts)
