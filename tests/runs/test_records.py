"""Folders of runs are read as they are: their state, their numbers, and what is no run."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from helpers import written_runs
from helpers.folder_contents import contents
from preferl.errors import StorageError
from preferl.online import OnlineConfig
from preferl.reporting import JsonlSink
from preferl.runs import find_runs, open_run, read_run
from preferl.runs.lock import FolderLock
from preferl.runs.summary import MetricCurve, RunSummary
from preferl.statistics import mean_interval

HOLD = """
import sys
from preferl.online import OnlineConfig
from preferl.runs import open_run

with open_run(sys.argv[1], config=OnlineConfig(), seed=0):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def at_work(tmp_path):
    """A program that holds `tmp_path / "run"`."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout.readline() == b"held\n"
        yield program
        program.kill()


def test_a_finished_run(tmp_path):
    run = read_run(written_runs.online(tmp_path / "run"))
    summary = run.summary
    assert (run.state, summary.kind, summary.subject) == ("finished", "online", "Pendulum-v1")
    assert (summary.steps, summary.answers, summary.seconds) == (3_000, 60, 75.0)
    assert summary.score.mean == -150
    assert set(summary.beside) == {"random", "oracle"}
    assert (summary.accuracy.mean, summary.accuracy.count) == (0.8, 50)
    assert run.settings["algorithm.gamma"] == 0.9
    curves = {curve.title: curve.values.tolist() for curve in run.curves}
    assert curves["Return of the exploring policy"] == [-170, -160, -150]


def test_a_running_run_shows_how_far_it_is(tmp_path, at_work):
    run = read_run(tmp_path / "run")
    assert run.state == "running"
    assert f"process {at_work.pid} on" in run.note
    assert run.summary.seconds < 600
    at_work.send_signal(signal.SIGKILL)
    at_work.wait()
    run = read_run(tmp_path / "run")
    assert (run.state, run.note[:7]) == ("failed", "killed:")


def test_metrics_tell_how_far_a_fit_is(tmp_path):
    metrics = ("reward/validation_accuracy", "reward/out_of_bag_accuracy")
    curve = MetricCurve("Accuracy", "accuracy", metrics, "epochs")
    summary = RunSummary("reward", curves=(curve,), steps_of="epochs")
    with open_run(tmp_path, config=OnlineConfig(), seed=0, summary=summary) as folder:
        sink = JsonlSink(folder.path("metrics.jsonl"))
        for epoch, share in enumerate((0.5, 0.6, 0.7), start=1):
            sink.log({"reward/out_of_bag_accuracy": share}, epoch)
        sink.close()
        run = read_run(tmp_path)
    assert (run.state, run.summary.steps, run.summary.steps_of) == ("running", 3, "epochs")
    assert (run.summary.accuracy.mean, run.summary.accuracy.of) == (0.7, "out-of-bag answers")
    assert [curve.values.tolist() for curve in run.curves] == [[0.5, 0.6, 0.7]]


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


def test_a_run_that_ends_while_somebody_looks_is_finished(tmp_path, monkeypatch):
    running = ExitStack()
    look = FolderLock.holder
    folder = running.enter_context(open_run(tmp_path / "run", config=OnlineConfig(), seed=0))

    def once_it_has_ended(lock):
        folder.result({})
        running.close()
        return look(lock)

    monkeypatch.setattr(FolderLock, "holder", once_it_has_ended)
    assert read_run(tmp_path / "run").state == "finished"


@pytest.fixture
def interrupted(tmp_path):
    """A run that was interrupted after seven steps, while its metrics got to the 17th."""
    path = tmp_path / "run"
    with open_run(path, config=OnlineConfig(), seed=0) as folder:
        folder.result({"interrupted": True}, RunSummary(steps=7, answers=3, seconds=5.0))
    sink = JsonlSink(path / "metrics.jsonl")
    sink.log({"feedback/answers": 9}, 17)
    sink.close()
    return path


def test_an_interrupted_run_that_is_resumed_is_at_work_and_may_fail(interrupted):
    run = read_run(interrupted)
    assert (run.state, run.summary.seconds) == ("interrupted", 5.0)
    assert (run.summary.steps, run.summary.answers) == (17, 9)
    os.utime(interrupted / "config.json", (1e9, 1e9))
    opening = open_run(interrupted, config=OnlineConfig(), seed=0, resume=True)
    with suppress(ZeroDivisionError), opening:
        run = read_run(interrupted)
        assert (run.state, run.summary.steps, run.summary.answers) == ("running", 17, 9)
        assert run.summary.seconds < 600, "not since it was begun, years ago"
        _ = 1 / 0
    run = read_run(interrupted)
    assert (run.state, run.note) == ("failed", "ZeroDivisionError: division by zero")
    assert (run.summary.steps, run.summary.answers, run.summary.seconds) == (17, 9, None)


def test_an_error_stays_until_the_run_is_resumed(tmp_path):
    path = tmp_path / "run"
    config = OnlineConfig()
    with pytest.raises(ZeroDivisionError), open_run(path, config=config, seed=0):
        _ = 1 / 0
    run = read_run(path)
    assert (run.state, run.note) == ("failed", "ZeroDivisionError: division by zero")
    with pytest.raises(KeyboardInterrupt), open_run(path, config=config, seed=0, resume=True):
        raise KeyboardInterrupt
    assert read_run(path).state == "interrupted"


def test_all_runs_below_a_folder_and_words_about_the_rest(tmp_path):
    written_runs.online(tmp_path / "a/first")
    written_runs.data(tmp_path / "a/second")
    os.utime(tmp_path / "a/first/config.json", (1e9, 1e9))
    reward = tmp_path / "rewards/00001"
    reward.mkdir(parents=True)
    (reward / "config.json").write_text('{"model": {}, "observation_space": {}}')
    foreign = tmp_path / "hub"
    foreign.mkdir()
    (foreign / "config.json").write_text('{"architectures": ["GPT2"]}')
    (tmp_path / "a/first/reward").mkdir()
    (tmp_path / "a/first/reward/config.json").write_text("{}")
    damaged = written_runs.online(tmp_path / "torn")
    (damaged / "summary.json").write_text('{"env_st')
    nonsense = written_runs.online(tmp_path / "wrong")
    (nonsense / "summary.json").write_text('{"score": 7}')
    before = contents(tmp_path)
    found, skipped = find_runs(tmp_path)
    assert [run.path.name for run in found] == ["first", "second"]
    assert len(skipped) == 3
    assert any("hub/config.json" in words and "something else" in words for words in skipped)
    assert any("torn/summary.json" in words for words in skipped)
    assert any(str(nonsense) in words for words in skipped)
    assert contents(tmp_path) == before


def test_text_of_a_folder_does_not_command_the_terminal(tmp_path):
    path = written_runs.online(tmp_path / "run")
    summary = json.loads((path / "summary.json").read_text())
    summary["subject"] = "Pendulum\x1b[2J-v1"
    (path / "summary.json").write_text(json.dumps(summary))
    assert read_run(path).summary.subject == r"Pendulum\x1b[2J-v1"


@pytest.mark.parametrize("content", [None, "{}", '{"model": {}, "observation_space": {}}', "[1]"])
def test_what_is_no_run_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(StorageError, match="expected"):
        read_run(tmp_path)
