"""Estimates, and the summaries that are written and read."""

import math

import numpy as np
import pytest
from scipy import stats

from preferl.runs import open_run, read_run
from preferl.runs.summary import Estimate, Finding, MetricCurve, RunSummary

SUMMARY = RunSummary(
    kind="online",
    subject="Pendulum-v1",
    curves=(MetricCurve("Return", "return", ("eval/mean_reward",)),),
    seconds=1.5,
    steps=10,
    answers=3,
    score=Estimate(1.0, 2, "episodes", (0.0, 2.0), (0.0, 2.0), 0.5),
    beside={"random": Estimate(math.nan, interval=(-math.inf, math.inf))},
    accuracy=Estimate(0.75, 8, "answers"),
    reward={"log_loss": 0.4},
    findings=(Finding("stuck", "It stays.", ("explore more", "go on")),),
)


def test_seeds_have_the_interval_of_students_t():
    estimate = Estimate.of_seeds(np.array([1.0, 2.0, 3.0, 4.0]))
    assert (estimate.mean, estimate.count, estimate.of) == (2.5, 4, "seeds")
    expected = stats.t.interval(0.95, 3, 2.5, stats.sem([1.0, 2.0, 3.0, 4.0]))
    assert estimate.interval == pytest.approx(expected)
    assert Estimate.of_seeds(np.array([1.0])).interval is None


def test_a_summary_is_read_as_it_was_written(tmp_path):
    with open_run(tmp_path / "run", config=SUMMARY.score, seed=0, summary=SUMMARY) as folder:
        folder.result({}, SUMMARY)
    summary = read_run(tmp_path / "run").summary
    assert summary.finished
    for name, value in vars(SUMMARY).items():
        if name not in ("finished", "beside"):
            assert getattr(summary, name) == value, name
    assert math.isnan(summary.beside["random"].mean)
    assert summary.beside["random"].interval == (-math.inf, math.inf)
