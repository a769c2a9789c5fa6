"""Folders of runs are read as they are: their state, their numbers, and what is no run."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from helpers import written_runs
from preferl.errors import StorageError
from preferl.online import OnlineConfig
from preferl.reporting import JsonlSink
from preferl.runs import find_runs, open_run, read_run
from preferl.runs.lock import FolderLock

HOLD = """
import sys
from preferl.online import OnlineConfig
from preferl.runs import open_run

with open_run(sys.argv[1], config=OnlineConfig(), seed=0):
    print("held", flush=True)
    sys.stdin.read()
"""


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and times of all files and folders."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in [folder, *folder.rglob("*")]
    }


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
    assert (run.kind, run.state, run.subject) == ("online", "finished", "Pendulum-v1")
    assert (run.steps, run.answers, run.seconds) == (3_000, 60, 75.0)
    assert run.score.mean == -150
    assert (run.score.count, run.score.of) == (5, "episodes")
    assert run.score.interval[0] < -150 < run.score.interval[1]
    assert set(run.beside) == {"random", "oracle"}
    assert (run.accuracy.mean, run.accuracy.count) == (0.8, 50)
    assert run.reward == {"log_loss": 0.4, "calibration": 0.05, "spearman": 0.9}
    assert run.settings["algorithm.gamma"] == 0.9
    curves = {curve.title: curve.values.tolist() for curve in run.curves}
    assert curves["Return of the exploring policy"] == [-170, -160, -150]


def test_a_running_run_shows_how_far_it_is(tmp_path, at_work):
    run = read_run(tmp_path / "run")
    assert run.state == "running"
    assert f"process {at_work.pid} on" in run.note
    assert run.seconds < 600
    at_work.send_signal(signal.SIGKILL)
    at_work.wait()
    run = read_run(tmp_path / "run")
    assert (run.state, run.note[:7]) == ("failed", "killed:")


def test_metrics_tell_how_far_a_run_without_a_result_is(tmp_path):
    run = read_run(written_runs.online(tmp_path / "run", finished=False))
    assert run.state == "interrupted"
    assert (run.steps, run.answers, run.score) == (3_000, 60, None)
    assert run.accuracy.mean == pytest.approx(0.8)
    assert run.accuracy.interval is None


def test_a_run_that_ends_while_somebody_looks_is_finished(tmp_path, monkeypatch):
    running = ExitStack()
    look = FolderLock.holder
    folder = running.enter_context(open_run(tmp_path / "run", config=OnlineConfig(), seed=0))

    def once_it_has_ended(lock):
        folder.result({"env_steps": 7, "comparisons": 3})
        running.close()
        return look(lock)

    monkeypatch.setattr(FolderLock, "holder", once_it_has_ended)
    assert read_run(tmp_path / "run").state == "finished"


def test_a_result_may_be_that_of_an_interruption(tmp_path):
    with open_run(tmp_path / "run", config=OnlineConfig(), seed=0) as folder:
        folder.result({"env_steps": 7, "comparisons": 3, "interrupted": True})
    run = read_run(tmp_path / "run")
    assert (run.state, run.steps, run.answers) == ("interrupted", 7, 3)


def interrupted(path: Path) -> OnlineConfig:
    """Leave a run that was interrupted after seven steps and resumed for ten more, in metrics."""
    config = OnlineConfig()
    with open_run(path, config=config, seed=0) as folder:
        folder.result({"env_steps": 7, "comparisons": 3, "seconds": 5.0, "interrupted": True})
    sink = JsonlSink(path / "metrics.jsonl")
    sink.log({"feedback/answers": 9}, 17)
    sink.close()
    return config


def test_an_interrupted_run_that_is_resumed_is_at_work_and_may_fail(tmp_path):
    path = tmp_path / "run"
    config = interrupted(path)
    os.utime(path / "config.json", (1e9, 1e9))
    with suppress(ZeroDivisionError), open_run(path, config=config, seed=0, resume=True):
        run = read_run(path)
        assert (run.state, run.steps, run.answers) == ("running", 17, 9)
        assert run.seconds < 600, "not since it was begun, years ago"
        _ = 1 / 0
    run = read_run(path)
    assert (run.state, run.note) == ("failed", "ZeroDivisionError: division by zero")
    assert (run.steps, run.answers, run.seconds) == (17, 9, None)


def test_an_interrupted_run_that_is_resumed_may_be_killed(tmp_path):
    path = tmp_path / "run"
    interrupted(path)
    (path / "run.lock").write_text('{"pid": 1, "host": "elsewhere"}')
    run = read_run(path)
    assert (run.state, run.note[:7], run.steps) == ("failed", "killed:", 17)


def test_an_interrupted_run_shows_what_is_newest(tmp_path):
    interrupted(tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert (run.state, run.steps, run.answers) == ("interrupted", 17, 9)


def test_a_run_with_its_result_is_finished_whatever_follows(tmp_path):
    path = tmp_path / "run"
    with suppress(ZeroDivisionError), open_run(path, config=OnlineConfig(), seed=0) as folder:
        folder.result({"env_steps": 7, "interrupted": False})
        assert read_run(path).state == "finished"
        _ = 1 / 0
    assert read_run(path).state == "finished"


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
    (damaged / "result.json").write_text('{"env_st')
    nonsense = written_runs.online(tmp_path / "wrong")
    (nonsense / "result.json").write_text('{"policies": {"taught": 7}}')
    before = everything(tmp_path)
    found, skipped = find_runs(tmp_path)
    assert [run.path.name for run in found] == ["first", "second"]
    assert len(skipped) == 3
    assert any("hub/config.json" in words and "something else" in words for words in skipped)
    assert any("torn/result.json" in words for words in skipped)
    assert any(str(nonsense) in words for words in skipped)
    assert everything(tmp_path) == before


def test_text_of_a_folder_does_not_command_the_terminal(tmp_path):
    path = written_runs.online(tmp_path / "run")
    about = json.loads((path / "config.json").read_text())
    about["config"]["env"] = "Pendulum\x1b[2J-v1"
    (path / "config.json").write_text(json.dumps(about))
    assert read_run(path).subject == r"Pendulum\x1b[2J-v1"


def test_settings_that_were_written_with_a_password_are_shown_without(tmp_path):
    path = written_runs.online(tmp_path / "run")
    about = json.loads((path / "config.json").read_text())
    about["config"]["env"] = "postgresql://me:secret@host/labels"  # as older versions wrote stores
    (path / "config.json").write_text(json.dumps(about))
    run = read_run(path)
    assert run.settings["env"] == "postgresql://me:***@host/labels"
    assert "secret" not in json.dumps(run.to_json())


@pytest.mark.parametrize("content", [None, "{}", '{"model": {}, "observation_space": {}}', "[1]"])
def test_what_is_no_run_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(StorageError, match="expected"):
        read_run(tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StorageError, match="a folder with runs"):
        find_runs(tmp_path / "none")


def test_json_holds_no_number_that_is_none(tmp_path):
    run = read_run(written_runs.online(tmp_path / "run"))
    text = json.dumps(run.to_json(), allow_nan=False)
    assert json.loads(text)["score"]["mean"] == -150
    assert set(json.loads(text)["contents"]) == {"result.json", "metrics.jsonl"}
