"""Scores of arms, by seed and together."""

import numpy as np
import pytest

from preferl.data.tasks import Task
from preferl.evaluation import PolicyReport
from preferl.offline.scores import ArmScore, score_arms

TASK = Task("reach", random=10, expert=20, max_episode_steps=5)


def report(returns, success=None):
    success = None if success is None else np.array(success, bool)
    return PolicyReport(np.array(returns, float), np.full(len(returns), 5), success)


def test_by_hand():
    reports = {"a-0": report([10, 14], [1, 0]), "a-1": report([20, 20], [1, 1])}
    score = score_arms(reports, {"a": ["a-0", "a-1"]}, TASK)["a"]
    assert score.returns.tolist() == [12, 20]
    assert score.episodes.tolist() == [10, 14, 20, 20]
    assert score.shown.tolist() == [20, 100]
    plain = score.to_json()
    assert plain["success_rate"]["seeds"] == [0.5, 1]
    assert plain["return"]["mean"] == 16
    assert plain["normalised_score"]["std"] == pytest.approx(80 / np.sqrt(2))


def test_what_is_not_known_is_none():
    score = ArmScore.of([report([1, 2], [1, 0]), report([3, 4])], None)
    assert score.scores is None
    assert score.success is None
    assert score.shown.tolist() == [1.5, 3.5]
    assert score.to_json()["normalised_score"] is None
    assert ArmScore.of([report([1, 2])], TASK).to_json()["return"]["std"] is None
