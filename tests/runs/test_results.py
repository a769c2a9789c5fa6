"""What results of each kind come to, by hand."""

import pytest
from scipy import stats

from helpers import written_runs
from preferl.runs import read_run
from preferl.statistics import wilson_interval


def test_seeds_have_the_interval_of_students_t(tmp_path):
    run = read_run(written_runs.offline(tmp_path / "run", {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}))
    assert (run.kind, run.subject, run.steps_of, run.answers) == (
        "offline", "Reacher-v5", "updates", 300,
    )  # fmt: skip
    assert (run.score.mean, run.score.count, run.score.of) == (2.5, 4, "seeds")
    expected = stats.t.interval(0.95, 3, 2.5, stats.sem([1.0, 2.0, 3.0, 4.0]))
    assert run.score.interval == pytest.approx(expected, rel=0.01)


def test_a_single_seed_has_the_interval_of_its_episodes(tmp_path):
    run = read_run(written_runs.offline(tmp_path / "run", {5: 2.0}))
    assert (run.score.mean, run.score.count, run.score.of) == (2.0, 5, "episodes")
    assert run.score.interval[0] < 2 < run.score.interval[1]


def test_the_accuracy_of_a_fit_is_that_of_its_best_epoch(tmp_path):
    run = read_run(written_runs.offline(tmp_path / "run", {0: 1.0, 1: 2.0}))
    assert (run.accuracy.mean, run.accuracy.count) == (0.75, 40)
    assert run.accuracy.interval == wilson_interval(30, 40)


def test_a_data_set_is_about_its_expert(tmp_path):
    run = read_run(written_runs.data(tmp_path / "run"))
    assert (run.kind, run.steps, run.steps_of) == ("data", 800, "recorded steps")
    assert (run.score.mean, run.score.count) == (-140, 2)
    assert run.beside["random"].mean == -1200
    assert run.accuracy is None
