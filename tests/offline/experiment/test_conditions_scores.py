"""Scores of conditions, by seed and together."""

import numpy as np
import pytest

from preferl.data.tasks import Task
from preferl.evaluation import PolicyReport
from preferl.offline.experiment.conditions import ConditionScore

TASK = Task("reach", random=10, expert=20, max_episode_steps=5)


def report(returns, success=None):
    success = None if success is None else np.array(success, bool)
    return PolicyReport(np.array(returns, float), np.full(len(returns), 5), success)


def test_by_hand():
    reports = [report([10, 14], [1, 0]), report([20, 20], [1, 1])]
    score = ConditionScore.of(reports, TASK)
    assert score.returns.tolist() == [12, 20]
    assert score.episodes.tolist() == [10, 14, 20, 20]
    assert score.shown.tolist() == [20, 100]
    plain = score.to_json()
    assert plain["success_rate"]["seeds"] == [0.5, 1]
    assert plain["return"]["mean"] == 16
    assert plain["normalised_score"]["std"] == pytest.approx(80 / np.sqrt(2))


def test_what_is_not_known_is_none():
    score = ConditionScore.of([report([1, 2], [1, 0]), report([3, 4])], None)
    assert score.scores is None
    assert score.success is None
    assert score.shown.tolist() == [1.5, 3.5]
    assert score.to_json()["normalised_score"] is None
    assert ConditionScore.of([report([1, 2])], TASK).to_json()["return"]["std"] is None
