"""What commands make of words, and what they say about mistakes."""

import re
from pathlib import Path

import pytest

from helpers.command_line import run
from preferl import SB3Config
from preferl.cli.annotate import InviteConfig
from preferl.cli.data_record import DataRecordConfig
from preferl.cli.main import COMMANDS, Command
from preferl.cli.offline import OfflineRunConfig
from preferl.cli.online import OnlineRunConfig
from preferl.cli.parsing.parser import known_options, parse
from preferl.cli.parsing.parts import starting_config
from preferl.errors import ConfigError, UsageError
from preferl.models.configs import MLPRewardConfig
from preferl.offline.learner_configs import DTRConfig
from preferl.online.configs import PPOConfig, SACConfig
from preferl.training.configs import CosineSchedule


def online(*words):
    return parse(OnlineRunConfig, words, prog="preferl online run")


def test_options_change_what_names_choose():
    config = online("--algorithm.tau", "0.1", "--algorithm", "sac", "--model", "mlp")
    assert config.run.algorithm == SACConfig(tau=0.1)
    assert config.run.model == MLPRewardConfig(members=3)
    assert online("--algorithm", "ppo", "--algorithm.n_steps=64").run.algorithm == PPOConfig(
        n_steps=64
    )


def test_algorithms_have_the_settings_of_stable_baselines3():
    words = "--algorithm sac --algorithm.ent-coef auto_0.1 --algorithm.target-entropy -3.5"
    sac = online(*words.split(), "--algorithm.use-sde", "--algorithm.n-steps", "3").run.algorithm
    assert sac == SACConfig(ent_coef="auto_0.1", target_entropy=-3.5, use_sde=True, n_steps=3)
    assert online("--algorithm", "sac", "--algorithm.ent-coef", "0.2").run.algorithm.ent_coef == 0.2
    words = "--algorithm ppo --algorithm.clip-range-vf 0.3 --algorithm.no-normalize-advantage"
    assert online(*words.split()).run.algorithm == PPOConfig(
        clip_range_vf=0.3, normalize_advantage=False
    )


def test_any_algorithm_has_settings_by_name():
    words = ["--algorithm", "sb3", "--algorithm.algorithm", "sb3_contrib:TQC"]
    words += ["--algorithm.settings", "{tau: 0.1, train_freq: [2, step]}"]
    config = online(*words, "--algorithm.hidden", "8", "8").run.algorithm
    settings = {"tau": 0.1, "train_freq": [2, "step"]}
    assert config == SB3Config("sb3_contrib:TQC", hidden=(8, 8), settings=settings)


def test_the_last_of_repeated_options_counts():
    run = online("--steps=5000", "--steps", "6000", "--algorithm", "sac", "--algorithm=ppo").run
    assert (run.steps, run.algorithm) == (6000, PPOConfig())
    assert online("--algorithm=ppo", "--algorithm", "sac").run.algorithm == SACConfig()


def test_parts_that_may_be_left_out():
    config = online("--trainer.schedule.warmup", "0.2", "--trainer.epochs", "3")
    assert config.run.trainer.schedule == CosineSchedule(warmup=0.2)
    words = ("--demonstrations", "a", "--policy", "bc", "--env", "E", "--dt.regulariser.weight=2")
    run = parse(OfflineRunConfig, words, prog="").run
    assert run.dt.regulariser == DTRConfig(weight=2.0)
    assert run.iql is None


def test_what_has_to_be_given():
    config = parse(DataRecordConfig, ("--env", "E", "--algorithm", "sac"), prog="")
    assert (config.run.env, config.run.algorithm, config.trust) == ("E", SACConfig(), ())
    with pytest.raises(
        UsageError, match=r"^--env: expected a value, got none\. `preferl x --help`"
    ):
        parse(DataRecordConfig, (), prog="preferl x")
    with pytest.raises(UsageError, match=r"^NAME: expected a value"):
        parse(InviteConfig, (), prog="preferl x")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--stepz 100", "--stepz: expected an option of `preferl online run`, got none of that "
         "name. The nearest is --steps."),
        ("--n-steps 256", "The nearest is --algorithm.n-steps, with --algorithm ppo."),
        ("--epochs=4", "--epochs: .*The nearest is --trainer.epochs."),
        ("--algorithm.tau 0.1", "The nearest is --algorithm.tau, with --algorithm sac."),
        ("--algorithm sac --algorithm.n-epochs 9", "--algorithm.n-epochs, with --algorithm ppo."),
        ("--model lstm --model.membres 3", "The nearest is --model.members, with --model mlp."),
        ("--no-evaluation.oracel", "The nearest is --evaluation.oracle."),
        ("--xyzzy", "--help shows all of them."),
        ("steps 100", "'steps': expected an option of `preferl online run`, got a word that"),
        ("-x", "-x: expected an option"),
        ("--steps many", "--steps: expected INT, got 'many'."),
        ("--steps=1.5", "--steps: expected INT, got '1.5'."),
        ("--evaluation.clip-steps x", "--evaluation.clip-steps: expected INT, got 'x'."),
        ("--steps", "--steps: expected INT, got none."),
        ("--steps --seed 1", "--steps: expected INT, got none."),
        ("--algorithm sac --algorithm.hidden 8 x", "--algorithm.hidden: expected .*INT.*, "
         "got '8 x'."),
        ("--schedule hyperbollic", "expected one of .*, got 'hyperbollic'. The nearest is hyper"),
        ("--sampler unniform", "--sampler: expected one of .*, k_center_entropy, got "
         "'unniform'. The nearest is uniform."),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(words, line):
    with pytest.raises(UsageError, match=re.sub(r"\.(?!\*)", r"\\.", line)) as raised:
        online(*words.split())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--steps -5 --initial-steps 1", "steps: expected at least "),
        ("--trainer.epochs -1", "--trainer.epochs: expected at least 1, got -1."),
        ("--algorithm ppo --algorithm.gamma 2", "--algorithm.gamma: expected in [0, 1], got 2.0."),
        ("--reference all", "expected one of answers, experience"),
    ],
)
def test_a_setting_out_of_range_is_one_line(words, line):
    with pytest.raises(ConfigError, match=re.escape(line)) as raised:
        online(*words.split())
    assert "\n" not in str(raised.value)


def test_an_environment_may_be_named_like_an_earlier_choice():
    assert online("--env", "algorithm:Own-v0").run.env == "algorithm:Own-v0"


@pytest.mark.parametrize("command", COMMANDS)
def test_known_options_are_those_that_help_shows(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert run(*command.split(), "--help") == 0
    out = capsys.readouterr().out.partition("Of every command")[0]
    shown = set(re.findall(r"(?:^|  |│ |, )(--[a-z][\w.-]*)", out, re.M)) - {"--help"}
    found = Command.of(command)
    start = starting_config(found.config, (), found.start(()), every_part=True)
    known = known_options(found.config, start)
    assert {name for name, choice in known.items() if not choice} == shown


@pytest.mark.parametrize(
    ("words", "known", "unknown"),
    [
        ("online run --algorithm sac", "--algorithm.gradient-steps", "--algorithm.clip-range"),
        ("online run --algorithm ppo", "--algorithm.clip-range", "--algorithm.gradient-steps"),
        ("online run", "--algorithm", "--algorithm.clip-range"),
        ("online run --model pt", "--model.layers", "--model.hidden"),
        ("data record --algorithm ppo", "--algorithm.clip-range", "--algorithm.tau"),
        ("offline run", "--iql.expectile", "--iql.context"),
    ],
)
def test_help_shows_what_is_chosen(words, known, unknown, capsys):
    assert run(*words.split(), "--help") == 0
    out = capsys.readouterr().out
    assert known in out
    assert unknown not in out


def test_a_settings_file_is_a_default(tmp_path: Path):
    file = tmp_path / "it.yaml"
    file.write_text("algorithm: {kind: SACConfig, tau: 0.2}\n")
    default = Command.of("online run").start(["--config", str(file)])
    words = ("--config", str(file), "--algorithm.gamma", "0.5")
    config = parse(OnlineRunConfig, words, prog="", default=default)
    assert config.run.algorithm == SACConfig(tau=0.2, gamma=0.5)
