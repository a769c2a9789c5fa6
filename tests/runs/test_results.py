"""What results of each kind come to, by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy

from helpers import written_runs
from preferl.cli.reward import FitConfig
from preferl.reporting import JsonlSink
from preferl.runs import open_run, read_run
from preferl.statistics import mean_interval, wilson_interval


def test_seeds_have_the_interval_of_students_t(tmp_path):
    run = read_run(written_runs.offline(tmp_path / "run", {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}))
    assert (run.kind, run.subject, run.steps_of, run.answers) == (
        "offline", "Reacher-v5", "updates", 300,
    )  # fmt: skip
    assert (run.score.mean, run.score.count, run.score.of) == (2.5, 4, "seeds")
    expected = scipy.stats.t.interval(0.95, 3, 2.5, scipy.stats.sem([1.0, 2.0, 3.0, 4.0]))
    assert run.score.interval == pytest.approx(expected, rel=0.01)


def test_a_single_seed_has_the_interval_of_its_episodes(tmp_path):
    run = read_run(written_runs.offline(tmp_path / "run", {5: 2.0}))
    assert (run.score.mean, run.score.count, run.score.of) == (2.0, 5, "episodes")
    assert run.score.interval[0] < 2 < run.score.interval[1]


def test_the_accuracy_of_a_fit_is_that_of_its_best_epoch(tmp_path):
    run = read_run(written_runs.offline(tmp_path / "run", {0: 1.0, 1: 2.0}))
    assert (run.accuracy.mean, run.accuracy.count) == (0.75, 40)
    assert run.accuracy.interval == wilson_interval(30, 40)
    assert run.accuracy.of == "held-out answers"


def change_result(path: Path, **reward) -> None:
    """Give a run another result of its reward, and 500 labels."""
    result = json.loads((path / "result.json").read_text())
    result["reward"] |= reward
    (path / "result.json").write_text(json.dumps(result | {"labels": {"pairs": 500}}))


def test_answers_that_a_reward_was_fitted_to_show_no_quality(tmp_path):
    path = written_runs.offline(tmp_path / "run", {0: 1.0, 1: 2.0})
    on_labels = {"learned": written_runs.REWARD}
    change_result(path, on_labels=on_labels)
    run = read_run(path)
    assert (run.answers, run.accuracy.mean, run.reward) == (300, 0.75, {"spearman": 0.5})
    fit = json.loads((path / "result.json").read_text())["reward"]["fit"]
    change_result(path, fit=fit | {"decided": 0})
    assert read_run(path).accuracy is None


def test_labels_evaluate_a_reward_that_was_fitted_before(tmp_path):
    path = written_runs.offline(tmp_path / "run", {0: 1.0, 1: 2.0})
    change_result(path, fit=None, on_labels={"learned": written_runs.REWARD})
    run = read_run(path)
    assert (run.answers, run.accuracy.mean) == (None, 0.8)
    assert run.reward["log_loss"] == 0.4


@pytest.mark.parametrize(
    ("policy", "condition"), [("iql", "learned"), ("dt", "true"), ("bc", "cloning")]
)
def test_agents_of_every_kind_have_a_curve_of_evaluations(tmp_path, policy, condition):
    path = written_runs.offline(tmp_path / "run", {0: 1.0, 7: 2.0}, policy_name=policy)
    agents = {f"{condition}-0": {10: 1.0, 20: 2.0}, f"{condition}-7": {10: 3.0, 20: 5.0, 30: 6.0}}
    written_runs.evaluations(path, agents)
    (curve,) = read_run(path).curves
    assert (curve.title, curve.x_unit) == ("Evaluated return while learning", "updates")
    assert curve.steps.tolist() == [10, 20]
    assert curve.values.tolist() == [[1, 2], [3, 5]]
    assert tuple(curve.interval[:, 1]) == mean_interval(np.array([2.0, 5.0]))


def test_the_curve_of_one_agent_has_the_interval_over_its_episodes(tmp_path):
    path = written_runs.offline(tmp_path / "run", {3: 1.0})
    written_runs.evaluations(path, {"learned-3": {10: 1.0}})
    (curve,) = read_run(path).curves
    assert curve.interval.tolist() == [[0.0], [2.0]]


def test_agents_that_learn_one_after_another_share_a_curve_of_their_losses(tmp_path):
    path = written_runs.offline(tmp_path / "run", {3: 1.0, 4: 2.0}, policy_name="dtr")
    sink = JsonlSink(path / "metrics.jsonl")
    for agent, loss in (("learned-3", 0.5), ("learned-4", 0.3), ("zero-3", 9.0)):
        sink.log({f"dt/{agent}/loss": loss}, 10)
    sink.close()
    (curve,) = read_run(path).curves
    assert (curve.title, curve.values.tolist()) == ("Loss of the agents", [[0.5], [0.3]])


def test_metrics_tell_how_far_a_fit_is(tmp_path):
    path = tmp_path / "run"
    with open_run(path, config=FitConfig(labels=Path("labels")), seed=0):
        sink = JsonlSink(path / "metrics.jsonl")
        for epoch, share in enumerate((0.5, 0.6, 0.7), start=1):
            values = {"reward/train_accuracy": share + 0.2, "reward/out_of_bag_accuracy": share}
            sink.log(values, epoch)
        sink.close()
        run = read_run(path)
    assert (run.state, run.steps, run.steps_of) == ("running", 3, "epochs")
    assert (run.accuracy.mean, run.accuracy.of) == (0.7, "out-of-bag answers")
    curves = {curve.title: curve.values.tolist() for curve in run.curves}
    assert curves == {
        "Accuracy on answers learned from by epoch": pytest.approx([0.7, 0.8, 0.9]),
        "Accuracy on left-out answers by epoch": [0.5, 0.6, 0.7],
    }


def test_a_data_set_is_about_its_expert(tmp_path):
    run = read_run(written_runs.data(tmp_path / "run"))
    assert (run.kind, run.steps, run.steps_of) == ("data", 800, "recorded steps")
    assert (run.score.mean, run.score.count) == (-140, 2)
    assert run.beside["random"].mean == -1200
    assert run.accuracy is None


def test_policies_have_their_success_where_it_is_known(tmp_path):
    path = written_runs.online(tmp_path / "run")
    assert read_run(path).score.success is None
    result = json.loads((path / "result.json").read_text())
    result["policies"]["taught"]["success_rate"] = 0.75
    (path / "result.json").write_text(json.dumps(result))
    run = read_run(path)
    assert (run.score.success, run.beside["random"].success) == (0.75, None)
    assert run.to_json()["score"]["success"] == 0.75


def test_returns_are_left_out_where_the_environment_gave_no_reward(tmp_path):
    path = written_runs.online(tmp_path / "run")
    assert read_run(path).score is not None
    result = json.loads((path / "result.json").read_text())
    (path / "result.json").write_text(json.dumps(result | {"has_true_reward": False}))
    run = read_run(path)
    assert run.score is None
    assert run.beside == {}
    result["policies"]["taught"]["success_rate"] = 0.75
    (path / "result.json").write_text(json.dumps(result | {"has_true_reward": False}))
    run = read_run(path)
    assert run.score.success == 0.75
    assert run.beside == {}
