"""`preferl online run`: settings from presets, files and options, in this order."""

import json
import sys

import numpy as np
import pytest

from helpers.command_line import run
from helpers.gardens import Lawn
from preferl.cli.online import OnlineRunConfig, read_settings, run_with_progress, starting_point
from preferl.cli.parsing import parse
from preferl.errors import ConfigError
from preferl.online import OnlineConfig, PPOConfig
from preferl.online.configs import EvaluationConfig
from preferl.reading import MOST_SETTINGS
from preferl.reporting import read_jsonl


def small(out, *more):
    return [
        "online", "run", "--out", str(out), "--steps", "800", "--initial-steps", "400",
        "--iterations", "1", "--comparisons", "6", "--environments", "2", "--segment-length", "10",
        "--evaluation.episodes", "2", "--evaluation.queries", "10", "--evaluation.clip-steps", "4",
        "--evaluation.no-oracle", "--eval-every", "0", *more,
    ]  # fmt: skip


def test_online_run_from_options(tmp_path, capsys):
    ppo = ["--algorithm", "ppo", "--algorithm.n-steps", "100", "--algorithm.batch-size", "50"]
    ppo += ["--true-reward", "preferl.cli.demo:pendulum_reward", "--eval-every", "600"]
    assert run(*small(tmp_path / "run", *ppo)) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["comparisons"] == 6
    words = " ".join(capsys.readouterr().out.split())
    assert "report.html" in words
    assert 0 < result["reward"]["epic"] < 1
    assert (
        f"EPIC distance of the learned reward from the true one: {result['reward']['epic']:.3f}"
        in words
    )
    assert "the same 10 episodes showed its progress; these 2 are others" in words


def first_is_better(shown, rng):
    return np.ones(len(shown))


def test_without_a_reward_of_the_environment_the_terminal_is_about_the_answers(tmp_path, capsys):
    config = OnlineConfig(
        env=Lawn,
        environments=2,
        steps=800,
        initial_steps=400,
        iterations=1,
        comparisons=12,
        segment_length=10,
        eval_every=400,
        eval_episodes=2,
        teacher=first_is_better,
        algorithm=PPOConfig(n_steps=100, batch_size=50),
    )
    evaluation = EvaluationConfig(episodes=2, queries=4, clip_steps=0, oracle=False)
    run_with_progress(OnlineRunConfig(config, evaluation, out=tmp_path / "run"))
    output = " ".join(capsys.readouterr().out.split())
    assert " s · 12 answers · reward accuracy " in output
    assert "From 12 answers, the reward model predicts " in output
    for words in ("return 0", "return while", "True return", "showed its progress", "held-out"):
        assert words not in output, words


def test_a_true_reward_that_is_none_is_refused_before_a_run_begins(tmp_path, capsys):
    assert run(*small(tmp_path / "run", "--true-reward", "preferl.cli.demo:QUESTION")) == 1
    assert "true reward preferl.cli.demo:QUESTION" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_a_run_keeps_is_read_by_other_commands(tmp_path, capsys):
    ppo = ["--algorithm", "ppo", "--algorithm.n-steps", "100", "--algorithm.batch-size", "50"]
    assert run(*small(tmp_path / "run", "--keep-experience", *ppo)) == 0
    experience = tmp_path / "run/experience"
    assert run("data", "inspect", experience) == 0
    fit = ("--epochs", 1, "--hidden", 8, "--report-to", "jsonl", "--out")
    assert run("reward", "fit", "--comparisons", tmp_path / "run", *fit, tmp_path / "a") == 0
    scripted = ("--demonstrations", experience, "--teacher", "oracle", "--length", 10)
    assert run("reward", "fit", *scripted, "--queries", 20, *fit, tmp_path / "b") == 0
    offline = ("--demonstrations", experience, "--reward", tmp_path / "b", "--episodes", 0)
    how = ("--steps", 2, "--no-controls", "--seeds", 0, "--report-to", "jsonl")
    assert run("offline", "run", *offline, *how, "--out", tmp_path / "c") == 0
    assert (tmp_path / "c/policies/learned-0").is_dir()


LOSS = """
import torch


def hinge(logits, preference):
    return torch.relu(preference - (2 * preference - 1) * logits)
"""


@pytest.mark.slow
def test_a_run_begins_with_answers_that_are_there_and_fits_by_a_loss_of_ones_own(
    tmp_path, monkeypatch
):
    (tmp_path / "some_losses.py").write_text(LOSS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    assert run(*small("first")) == 0
    words = ["--warm-start.comparisons", "first", "--validation", "0.3", "--final-queries"]
    words += ["--trainer.loss", "some_losses:hinge", "--trainer.penalty.strength", "1e-4"]
    words += ["--trainer.penalty.norm", "3"]
    assert run(*small("second", *words)) != 0, "nobody trusts the module yet"
    assert run(*small("second", *words, "--trust", "some_losses")) == 0
    result = json.loads((tmp_path / "second/result.json").read_text())
    assert result["comparisons"] == 12
    config = json.loads((tmp_path / "second/config.json").read_text())["config"]
    assert config["warm_start"]["comparisons"] == ["first"]
    assert config["trainer"]["loss"] == "some_losses:hinge"
    assert config["trainer"]["penalty"] == {
        "strength": 1e-4, "norm": 3, "band": None, "factor": 0.2, "measure": "power",
    }  # fmt: skip
    assert "reward/held_out_answers" in read_jsonl(tmp_path / "second/metrics.jsonl")


@pytest.mark.slow
def test_online_run_from_a_preset(tmp_path):
    longer = ["--steps", "2000", "--sampler", "uniform"]
    assert run(*small(tmp_path / "run", "--preset", "pendulum", *longer)) == 0
    config = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert config["algorithm"]["gamma"] == 0.98


def test_the_last_preset_counts(capsys):
    assert run("online", "run", "--preset", "pendulum", "--preset", "moon", "--resume") == 2
    message = capsys.readouterr().err
    assert "--preset: expected one of ant, " in message
    assert "pendulum" in message
    assert "got 'moon'" in message
    assert starting_point(["--preset", "moon", "--preset=pendulum"]).preset == "pendulum"


@pytest.mark.parametrize(("name", "place"), [("dqn", "DQN"), ("A2C", "A2C"), ("td3", "TD3")])
def test_algorithms_of_stable_baselines3_are_led_to_the_option_that_takes_them(name, place, capsys):
    assert run("online", "run", "--algorithm", name) == 2
    fix = f"Write --algorithm sb3 --algorithm.algorithm stable_baselines3:{place}."
    assert fix in capsys.readouterr().err


def test_a_teacher_takes_the_place_of_a_files(tmp_path):
    (tmp_path / "it.yaml").write_text("teacher: mistake\ncomparisons: 7\n")
    file = ["--config", str(tmp_path / "it.yaml")]
    default = starting_point(file)
    words = [*file, "--teacher", "oracle"]
    found = parse(OnlineRunConfig, words, prog="", default=default).run
    assert found.comparisons == 7
    assert (found.teacher.error_rate, default.run.teacher.error_rate) == (0, 0.1)


def test_an_unknown_key_of_a_file_names_the_file_and_the_nearest_key(tmp_path, capsys):
    file = tmp_path / "it.yaml"
    file.write_text("env: Pendulum-v1\ncomparsions: 7\n")
    assert run("online", "run", "--config", file) == 1
    message = capsys.readouterr().err
    assert f"{file}: keys of OnlineConfig: expected those" in message
    assert "got ['comparsions']. The nearest is comparisons." in message
    assert "segment_length" not in message


def test_settings_are_yaml_or_json_or_those_of_a_run(tmp_path):
    expected = {"env": "Pendulum-v1", "steps": 500}
    contents = {
        "a.yaml": "env: Pendulum-v1\nsteps: 500\n",
        "b.json": json.dumps(expected),
        "config.json": json.dumps({"config": expected, "seed": 3}),
        "d.yaml": "shared: &it {env: Pendulum-v1}\nconfig: {<<: *it, steps: 500}\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        assert read_settings(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"- env\n- steps\n", "expected settings by name, got list"),
        (b"", r"it.yaml: expected settings by name, got a file without any. Write one a line"),
        (b"# env: x\n", "expected settings by name, got a file without any"),
        (b"config:\n", "expected settings by name, got nothing"),
        (b"env: 1\n---\nenv: 2", "expected a YAML or JSON file of settings"),
        (b'env: "\\e]0;x"', "characters that a terminal would obey"),
        (b"env: [", "expected a YAML or JSON file of settings"),
        (b"env: \xff", "expected a YAML or JSON file of settings"),
        (b"a: !!python/object/apply:os.getcwd []", "expected a YAML or JSON file of settings"),
        (b"#" * (MOST_SETTINGS + 1), "more than 65,536 bytes"),
        (b"a: &a [*a, *a]", "aliases that stand for more"),
    ],
)
def test_files_that_are_no_settings(tmp_path, content, expected):
    (tmp_path / "it.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=expected):
        read_settings(tmp_path / "it.yaml")
