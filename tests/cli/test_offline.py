"""`preferl offline run`: from options to a table, with errors in one line."""

import json

import pytest

from helpers import command_line
from preferl.cli.console import ProgressLine


def run(*words):
    return command_line.run("offline", "run", *words)


@pytest.fixture
def door(shared):
    folder = shared / "data" / "adroit-door-human"
    demonstrations = ("--demonstrations", str(folder / "door-v0_demos.pickle"))
    return (*demonstrations, "--labels", str(folder / "door-human-v1_human_labels"))


@pytest.fixture
def small(door, tmp_path):
    return (
        *door, "--task", "door-human-v1", "--seeds", "3,5", "--steps", "3", "--episodes", "0",
        "--budget", "5", "--members", "1", "--report-to", "jsonl", "--out", str(tmp_path / "run"),
        "--no-controls",
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_from_options(small, tmp_path, capsys):
    kind = ("--iql.hidden", "8", "--iql.batch-size", "16")
    assert run(*small, *kind) == 0
    about = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert about["seeds"] == [3, 5]
    assert about["config"]["iql"]["hidden"] == [8]
    assert sorted(path.name for path in (tmp_path / "run/policies").iterdir()) == [
        "learned-3",
        "learned-5",
    ]
    assert not (tmp_path / "run/tensorboard").exists()
    out = capsys.readouterr().out
    assert "training 2 agents" in out
    assert "report.html" in out
    assert run(*small, "--resume", *kind) == 2
    assert "finished" in capsys.readouterr().err
    (tmp_path / "run/summary.json").unlink()
    assert run(*small, "--resume") == 1
    assert "iql.hidden=[8]" in capsys.readouterr().err
    assert run(*small, "--resume", *kind) == 0
    nowhere = [word.replace(str(tmp_path / "run"), str(tmp_path / "none")) for word in small]
    assert run(*nowhere, "--resume", *kind) == 2
    assert "there is no run here" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_ctrl_c_says_how_to_go_on(small, capsys, monkeypatch):
    def stop(self, doing, *_):
        if doing.startswith("training"):
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "__call__", stop)
    assert run(*small) == 130
    assert "--resume continues" in capsys.readouterr().out
