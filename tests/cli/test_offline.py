"""`preferl offline run`: from options to a table, with errors in one line."""

import json

import pytest

from preferl.cli.console import ProgressLine
from preferl.cli.main import main
from preferl.errors import ConfigError


def run(*words):
    with pytest.raises(SystemExit) as stopped:
        main(("offline", "run", *words))
    return stopped.value.code


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


def test_a_run_on_the_recorded_rewards(door, tmp_path, capsys):
    words = (*door[:2], "--reward", "true", "--task", "door-human-v1", "--seeds", "3")
    quick = ("--steps", "2", "--episodes", "0", "--report-to", "jsonl")
    assert run(*words, *quick, "--out", str(tmp_path / "run")) == 0
    assert "No answers were used" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "run/policies").iterdir())
    assert names == ["cloning-3", "negated-3", "random-3", "true-3", "zero-3"]


def test_the_pixel_encoder_has_an_old_name(capsys, monkeypatch):
    def refuse(config, *_, **__):
        raise ConfigError(f"with {config.dt.pixel_encoder.filters} filters")

    monkeypatch.setattr("preferl.offline.run_offline", refuse)
    usual = ("--demonstrations", "a", "--policy", "bc", "--env", "E")
    assert run(*usual, "--dt.pixel_encoder.filters", "3") == 1
    assert run(*usual, "--dt.pixel-encoder.filters=3") == 1
    assert capsys.readouterr().err.count("with 3 filters") == 2


def test_a_quiet_run_prints_results_alone(small, capsys):
    seen = [run(*small, "--eval-every", "1", "--quiet", "--iql.hidden", "8")]
    assert seen == [0]
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["Policies"]


def test_ctrl_c_says_how_to_go_on(small, capsys, monkeypatch):
    def stop(self, doing, *_):
        if doing.startswith("training"):
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "__call__", stop)
    assert run(*small) == 130
    assert "--resume continues" in capsys.readouterr().out


@pytest.mark.slow
def test_policies_are_judged_and_compared(door, tmp_path, capsys):
    pytest.importorskip("gymnasium_robotics")
    words = ("--env", "AdroitHandDoor-v1", "--steps", "3", "--episodes", "1", "--seeds", "0,1")
    assert run(*door, *words, "--budget", "5", "--out", str(tmp_path / "run")) == 0
    out = capsys.readouterr().out
    assert "score" in out
    assert "cloning" in out
    assert json.loads((tmp_path / "run/result.json").read_text())["comparison"]["text"][:40] in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "neither"),
        (("--demonstrations", "a", "--env", "Pendulum-v1"), "neither labels nor reward"),
        (("--demonstrations", "a", "--labels", "b", "--env", "Pendulum-v"), "Pendulum-v1"),
        (("--demonstrations", "a", "--labels", "b", "--env", "Pendulum-v1"), "a: expected"),
        (
            ("--policy", "bc", "--demonstrations", "a", "--episodes", "0", "--report-to", "x"),
            "wandb",
        ),
    ],
)
def test_errors_are_one_line(words, text, tmp_path, capsys):
    assert run(*words, "--out", str(tmp_path / "run")) == 1
    error = capsys.readouterr().err
    assert error.startswith("preferl offline run: ")
    assert text in error
    assert not (tmp_path / "run").exists()


def test_words_that_are_no_seeds_are_wrong_usage(capsys):
    data = ("--demonstrations", "a", "--labels", "b", "--episodes", "0")
    assert run(*data, "--seeds", "one,two") == 2
    assert "seeds" in capsys.readouterr().err
