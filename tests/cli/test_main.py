"""The command line: help, usage errors, worded errors, and each command once for real."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import tyro

from preferl.cli.demo import HEIGHT, WIDTH, draw_pendulum, play_pendulums
from preferl.cli.main import COMMANDS, main
from preferl.cli.options import plain_metavars


def run(*words):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    return stopped.value.code


def test_help_lists_every_command(capsys):
    assert run("--help") == 0
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)


def test_group_help_lists_its_commands_only(capsys):
    assert run("reward") == 0
    out = capsys.readouterr().out
    assert "reward fit" in out
    assert "data inspect" not in out


@pytest.mark.parametrize("words", [["nonsense"], ["reward", "nonsense"], ["--nonsense"]])
def test_unknown_command_is_a_usage_error(words, capsys):
    assert run(*words) == 2
    assert "no such command" in capsys.readouterr().err


def test_version(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("preferl 0.")


def test_to_resume_nothing_is_a_usage_error_and_makes_nothing(tmp_path, capsys):
    for words in (("online", "run"), ("data", "record", "--env", "Pendulum-v1")):
        assert run(*words, "--resume", "--out", str(tmp_path / "deep/run")) == 2
        assert "there is no run here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    assert run(*command.split(), "--help") == 0
    out = capsys.readouterr().out
    assert "usage: preferl" in out
    assert "{None" not in out, "what may be left out is shown by what it takes"


def test_what_may_be_left_out_is_taken_as_ever(capsys):
    @dataclass(frozen=True)
    class Config:
        files: Path | None = None
        kind: Literal["drop", "keep"] | None = "keep"
        count: int | None = 3

    def parsed(*words):
        with plain_metavars():
            return tyro.cli(Config, args=words)

    assert parsed() == Config()
    assert parsed("--files", "x", "--kind", "drop", "--count", "5") == Config(Path("x"), "drop", 5)
    assert parsed("--kind", "None", "--count", "None") == Config(None, None, None)
    with pytest.raises(SystemExit):
        parsed("--help")
    out = capsys.readouterr().out
    assert "--files PATH" in out
    assert "--kind {drop,keep}" in out
    assert "--count INT" in out
    with pytest.raises(SystemExit):
        parsed("--kind", "other")
    assert "keep" in capsys.readouterr().err


def test_errors_are_worded_without_a_traceback(capsys, tmp_path):
    code = run("data", "inspect", str(tmp_path / "missing.pickle"))
    error = capsys.readouterr().err
    assert code == 1
    assert error.startswith("preferl data inspect: ")
    assert "Traceback" not in error


def test_unknown_option_is_a_usage_error(capsys):
    assert run("demo", "--nonsense") == 2


def test_module_runs():
    done = subprocess.run(
        [sys.executable, "-m", "preferl", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("preferl ")


def small(out, *more):
    return [
        "online", "run", "--out", str(out), "--steps", "800", "--initial-steps", "400",
        "--iterations", "1", "--comparisons", "6", "--environments", "2", "--segment-length", "10",
        "--judge.episodes", "2", "--judge.questions", "10", "--judge.clip-steps", "4",
        "--judge.no-oracle", *more,
    ]  # fmt: skip


def test_online_run_from_options(tmp_path, capsys):
    ppo = ["algorithm:ppo-config", "--algorithm.n-steps", "100", "--algorithm.batch-size", "50"]
    assert run(*small(tmp_path / "run", *ppo)) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["comparisons"] == 6
    assert "report.html" in capsys.readouterr().out


def test_online_run_from_a_file_with_options_on_top(tmp_path):
    settings = {"env": "Pendulum-v1", "algorithm": {"kind": "PPOConfig", "n_steps": 64}}
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps(settings))
    assert run(*small(tmp_path / "run", "--config", str(file))) == 0
    config = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert config["algorithm"]["n_steps"] == 64
    assert config["comparisons"] == 6


def test_online_run_from_a_preset(tmp_path):
    longer = ["--steps", "2000", "--sampler", "uniform"]
    assert run(*small(tmp_path / "run", "--preset", "pendulum", *longer)) == 0
    config = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert config["algorithm"]["gamma"] == 0.9


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--preset", "moon"], "pendulum"),
        (["--config", "missing.yaml"], "missing.yaml"),
        (["--preset", "pendulum", "--config", "x.yaml"], "both"),
    ],
)
def test_online_run_with_bad_settings(words, text, tmp_path, capsys):
    assert run("online", "run", "--out", str(tmp_path / "run"), *words) == 1
    assert text in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_unwritable_out_is_an_error(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run("demo", "--smoke", "--out", str(tmp_path / "file" / "run")) == 1
    assert "written" in capsys.readouterr().err


@pytest.mark.slow
def test_demo_answered_at_the_terminal(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "preferl", "demo", "--smoke", "--ask", "--out", "run"],
        input="l\nr\ne\nn\n" * 5,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100"},
        check=True,
    )
    assert "left" in done.stdout
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["comparisons"] == 15  # of 20, a quarter were declined


def test_reward_fit_and_evaluate_on_peoples_labels(shared, tmp_path, capsys):
    door = shared / "data" / "adroit-door-human"
    data = ["--demonstrations", str(door / "door-v0_demos.pickle"), "--labels"]
    people, script = (str(door / f"door-human-v1_{kind}_labels") for kind in ("human", "fake"))
    out = tmp_path / "run"
    fit = ["--out", str(out), "--epochs", "2", "--hidden", "16"]
    assert run("reward", "fit", *data, people, *fit) == 0
    assert "<svg" in (out / "report.html").read_text()
    numbers = tmp_path / "numbers.json"
    assert run("reward", "evaluate", str(out), *data, script, "--json", str(numbers)) == 0
    report = json.loads(numbers.read_text())
    assert {"accuracy", "decided", "interval", "log_loss", "spearman"} <= set(report)
    assert report["accuracy"] > 0.7
    assert report["decided"] == 1600
    assert "522 of them" in capsys.readouterr().out


def test_reward_evaluate_without_a_run(shared, tmp_path, capsys):
    door = shared / "data" / "adroit-door-human"
    data = ["--demonstrations", str(door / "door-v0_demos.pickle")]
    labels = ["--labels", str(door / "door-human-v1_human_labels")]
    assert run("reward", "evaluate", str(tmp_path / "none"), *data, *labels) == 1
    assert "config.json" in capsys.readouterr().err


def test_pendulum_is_drawn_where_it_is():
    upright = draw_pendulum(np.array([[1.0, 0.0, 0.0]]), 0).splitlines()
    left = draw_pendulum(np.array([[0.0, 1.0, 0.0]]), 0).splitlines()
    assert upright[0][WIDTH // 2] == "●"
    assert left[HEIGHT // 2][0] == "●"


def test_pair_is_printed_where_nothing_can_move(capsys):
    play_pendulums(np.tile([1.0, 0.0, 0.0], (2, 5, 1)))
    assert capsys.readouterr().out.count("●") == 2
