"""Rewards of conditions by seed, scaled alike, and the scores of those who learned from them."""

import numpy as np
import pytest

from preferl.data.tasks import Task
from preferl.errors import ConfigError, DataError
from preferl.evaluation import PolicyReport
from preferl.offline.experiment.conditions import (
    SEED_LIMIT,
    Conditions,
    ConditionScore,
    build_conditions,
)
from preferl.testing import make_episodes

TASK = Task("reach", random=0, expert=1, max_episode_steps=10, shift_after=0.5)


@pytest.fixture
def episodes(rng):
    return make_episodes(rng, [4, 6, 3])


def returns(episodes, rewards):
    return np.add.reduceat(rewards.astype(float), episodes.starts)


def test_every_condition_has_a_row_per_seed(episodes, rng):
    learned = rng.normal(size=13).astype(np.float32)
    conditions = build_conditions(episodes, learned, seeds=(3, 5))
    assert conditions.names == ("learned", "true", "zero", "negated", "random")
    assert conditions.signals.shape == (5, 2, 13)
    assert conditions.agents[:3] == ("learned-3", "learned-5", "true-3")
    assert conditions.agent_seeds[:3] == [3, 5, SEED_LIMIT + 3]
    assert len(set(conditions.agent_seeds)) == 10
    np.testing.assert_array_equal(conditions.flat_signals[2], conditions.signals[1, 0])
    rows = dict(zip(conditions.names, conditions.signals, strict=True))
    for name in ("learned", "true", "zero", "negated"):
        np.testing.assert_array_equal(rows[name][0], rows[name][1])
    assert not rows["zero"].any()
    np.testing.assert_array_equal(rows["negated"], -rows["learned"])
    assert np.abs(rows["random"][0] - rows["random"][1]).max() > 0.1


def test_the_range_of_returns_becomes_the_horizon(episodes, rng):
    learned = rng.normal(size=13)
    conditions = build_conditions(episodes, learned, seeds=(0,))
    for name, rewards in zip(conditions.names, conditions.signals, strict=True):
        if name != "zero":
            # without a task, the longest episode has 6 steps
            assert np.ptp(returns(episodes, rewards[0])) == pytest.approx(6, rel=1e-5)
    scaled = build_conditions(episodes, learned, seeds=(0,), task=TASK)
    rows = dict(zip(scaled.names, scaled.signals[:, 0], strict=True))
    factor = 10 / np.ptp(returns(episodes, learned))
    np.testing.assert_allclose(rows["learned"], learned * factor + 0.5, rtol=1e-5)
    np.testing.assert_allclose(rows["negated"], -learned * factor + 0.5, rtol=1e-5)
    np.testing.assert_allclose(rows["true"], episodes.rewards, rtol=1e-6)  # this task leaves it
    assert not rows["zero"].any()


def test_without_controls_or_a_true_reward_there_are_fewer(rng):
    unknown = make_episodes(rng, [4, 4], reward=lambda seen, done: np.zeros(len(done)))
    learned = rng.normal(size=8)
    assert build_conditions(unknown, learned, seeds=(0,), controls=False).names == ("learned",)
    assert "true" not in build_conditions(unknown, learned, seeds=(0,)).names


def test_chosen_controls_have_the_agents_that_they_have_beside_the_others(episodes, rng):
    every = build_conditions(episodes, rng.normal(size=13), seeds=(3, 4))
    chosen = every.with_controls(("random",))
    assert chosen.names == ("learned", "random")
    last = every.names.index("random")
    np.testing.assert_array_equal(chosen.signals, every.signals[[0, last]])
    assert chosen.agent_seeds == every.agent_seeds[:2] + every.agent_seeds[2 * last : 2 * last + 2]


@pytest.mark.parametrize("seeds", [(), (0, 0), (-1,), (SEED_LIMIT,)])
def test_seeds_are_checked(episodes, seeds):
    with pytest.raises(ConfigError, match="seeds"):
        build_conditions(episodes, np.zeros(13), seeds=seeds)


def test_shapes_are_checked(episodes):
    with pytest.raises(DataError, match="learned"):
        build_conditions(episodes, np.zeros(12), seeds=(0,))
    with pytest.raises(DataError, match=r"Conditions\.signals"):
        Conditions(("learned",), (0, 1), np.zeros((1, 1, 5)))


SCORED = Task("reach", random=10, expert=20, max_episode_steps=5)


def report(returns, success=None):
    success = None if success is None else np.array(success, bool)
    return PolicyReport(np.array(returns, float), np.full(len(returns), 5), success)


def test_scores_by_hand():
    reports = [report([10, 14], [1, 0]), report([20, 20], [1, 1])]
    score = ConditionScore.of(reports, SCORED)
    assert score.returns.tolist() == [12, 20]
    assert score.episodes.tolist() == [10, 14, 20, 20]
    assert (score.shown.tolist(), score.unit) == ([20, 100], "normalised score")
    plain = score.to_json()
    assert plain["success_rate"]["seeds"] == [0.5, 1]
    assert plain["return"]["mean"] == 16
    assert plain["normalised_score"]["std"] == pytest.approx(80 / np.sqrt(2))


def test_scores_that_are_not_known_are_none():
    score = ConditionScore.of([report([1, 2], [1, 0]), report([3, 4])], None)
    assert score.scores is None
    assert score.success is None
    assert (score.shown.tolist(), score.unit) == ([1.5, 3.5], "return")
    assert score.to_json()["normalised_score"] is None
    assert ConditionScore.of([report([1, 2])], SCORED).to_json()["return"]["std"] is None


def test_success_is_the_score_where_no_scale_is_published():
    score = ConditionScore.of([report([1, 2], [1, 0]), report([3, 4], [1, 1])], None)
    assert (score.shown.tolist(), score.unit) == ([50, 100], "success in %")


def test_without_a_learned_reward_the_true_one_takes_its_place(episodes):
    conditions = build_conditions(episodes, None, seeds=(3, 5))
    assert conditions.names == ("true", "zero", "negated", "random")
    rows = dict(zip(conditions.names, conditions.signals, strict=True))
    np.testing.assert_array_equal(rows["negated"], -rows["true"])
    assert np.ptp(returns(episodes, rows["true"][0])) == pytest.approx(6, rel=1e-5)
    assert not rows["zero"].any()
    alone = build_conditions(episodes, None, seeds=(0,), controls=False)
    assert alone.names == ("true",)
    task = build_conditions(episodes, None, seeds=(0,), task=TASK)
    np.testing.assert_allclose(task.signals[0, 0], episodes.rewards, rtol=1e-6)


def test_no_environment_gives_the_opposite_of_its_own_reward(episodes):
    conditions = build_conditions(episodes, None, seeds=(0,), scaled=False)
    assert conditions.names == ("true", "zero", "random")
    np.testing.assert_allclose(conditions.signals[0, 0], episodes.rewards, rtol=1e-6)


def test_a_true_reward_that_nobody_knows_is_refused(rng):
    unknown = make_episodes(rng, [4, 4], reward=lambda seen, done: np.zeros(len(done)))
    with pytest.raises(DataError, match="recorded rewards: expected different"):
        build_conditions(unknown, None, seeds=(0,))
