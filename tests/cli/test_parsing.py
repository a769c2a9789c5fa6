"""What commands make of words, and what they say about mistakes."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from helpers.command_line import run
from preferl import SB3Config
from preferl.cli.annotate import InviteConfig
from preferl.cli.data import DataRecordConfig
from preferl.cli.main import COMMANDS, Command
from preferl.cli.offline import OfflineRunConfig
from preferl.cli.online import OnlineRunConfig
from preferl.cli.parsing import POSITIONAL, Mark, known_options, parse, part_of
from preferl.errors import ConfigError, UsageError
from preferl.feedback import AnswerFilter, Preparation, PseudoLabels
from preferl.models.configs import (
    CNNRewardConfig,
    LSTMRewardConfig,
    MLPRewardConfig,
    RewardModelConfig,
)
from preferl.offline.learner_configs import DTRConfig
from preferl.online.configs import OnlineConfig, PPOConfig, SACConfig
from preferl.registry import SAMPLERS
from preferl.training.configs import CosineSchedule


def online(*words):
    return parse(OnlineRunConfig, words, prog="preferl online run")


TQC = SB3Config("sb3_contrib:TQC", hidden=(8, 8), settings={"tau": 0.1, "train_freq": [2, "step"]})


@pytest.mark.parametrize(
    ("words", "algorithm"),
    [
        ("--algorithm.tau 0.1 --algorithm sac", SACConfig(tau=0.1)),
        ("--algorithm '{kind: sac, tau: 0.1}'", SACConfig(tau=0.1)),
        ("--algorithm ppo --algorithm.n-steps=64", PPOConfig(n_steps=64)),
        (
            "--algorithm sac --algorithm.ent-coef auto_0.1 --algorithm.target-entropy -3.5",
            SACConfig(ent_coef="auto_0.1", target_entropy=-3.5),
        ),
        (
            "--algorithm sac --algorithm.ent-coef 0.2 --algorithm.use-sde",
            SACConfig(ent_coef=0.2, use_sde=True),
        ),
        (
            "--algorithm ppo --algorithm.clip-range-vf 0.3 --algorithm.no-normalize-advantage",
            PPOConfig(clip_range_vf=0.3, normalize_advantage=False),
        ),
        (
            "--algorithm sb3 --algorithm.algorithm sb3_contrib:TQC --algorithm.hidden 8 8 "
            "--algorithm.settings '{tau: 0.1, train_freq: [2, step]}'",
            TQC,
        ),
        ("--algorithm sac --algorithm=ppo", PPOConfig()),
        ("--algorithm=ppo --algorithm sac", SACConfig()),
    ],
)
def test_options_choose_an_algorithm_and_its_settings(words, algorithm):
    assert online(*shlex.split(words)).run.algorithm == algorithm


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


@pytest.mark.parametrize("command", COMMANDS)
def test_known_options_are_those_that_help_shows(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert run(*command.split(), "--help") == 0
    out = capsys.readouterr().out.partition("Of every command")[0]
    shown = set(re.findall(r"(?:^|  |│ |, )(--[a-z][\w.-]*)", out, re.M)) - {"--help"}
    helps = re.findall(r"^  --\S+ [A-Z]+ +(\S.*)$", out, re.M)
    assert all(one != following for one, following in pairwise(helps))
    found = Command.of(command)
    known = known_options(part_of(found.config, (), found.start(()), every_part=True))
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


def test_a_settings_file_is_a_default(tmp_path):
    file = tmp_path / "it.yaml"
    file.write_text("algorithm: {kind: SACConfig, tau: 0.2}\n")
    default = Command.of("online run").start(["--config", str(file)])
    words = ("--config", str(file), "--algorithm.gamma", "0.5")
    config = parse(OnlineRunConfig, words, prog="", default=default)
    assert config.run.algorithm == SACConfig(tau=0.2, gamma=0.5)


def test_models_are_registered_ones_or_those_of_presets():
    assert online("--model", "mlp").run.model == MLPRewardConfig(members=3)
    assert online("--model", "cnn").run.model == CNNRewardConfig(members=3)
    assert online("--model", "lstm").run.model == LSTMRewardConfig(context=50)
    long = online("--model", "pt", "--segment-length", "120").run.model
    assert (long.context, long.normalise) == (120, False)
    assert online("--model", "mr").run.model.hidden == (256, 256)


def test_what_a_preset_chose_is_kept_where_an_option_names_it_again():
    preset = OnlineRunConfig(replace(OnlineConfig(), algorithm=PPOConfig(gamma=0.9)))
    again = parse(OnlineRunConfig, ("--algorithm", "ppo"), prog="", default=preset)
    assert again.run.algorithm == PPOConfig(gamma=0.9)
    other = parse(OnlineRunConfig, ("--algorithm", "sac"), prog="", default=preset)
    assert other.run.algorithm == SACConfig()


def test_a_teacher_or_an_algorithm_is_a_name_or_settings():
    mistaken = online("--teacher", "mistake").run.teacher
    assert mistaken.error_rate == 0.1
    assert mistaken == online("--teacher={kind: mistake}").run.teacher
    skipping = online("--teacher", "{kind: skip, typical: 20}").run.teacher
    assert skipping == online("--teacher={typical: 20, kind: skip}").run.teacher
    with pytest.raises(UsageError, match="--teacher: expected a name, or settings"):
        online("--teacher", "{kind: skip")
    with pytest.raises(ConfigError, match=r"The nearest is tau"):
        online("--algorithm", "{kind: sac, taw: 0.1}")


@dataclass(frozen=True)
class Fields:
    """A sentence that help begins with.

    Attributes:
        folder: where to write.
    """

    folder: Annotated[Path, POSITIONAL]
    files: Path | None = None
    kind: Literal["drop", "keep"] | None = "keep"
    count: int | None = 3
    rate: float | str = 0.5
    noise: Literal["fitted"] | float = 0.1
    band: tuple[float, float] | None = None
    seeds: Annotated[tuple[int, ...], Mark("N,N,...", commas=True)] = (0, 1)
    trust: Annotated[tuple[str, ...], Mark("MODULE", repeated=True)] = ()
    sampler: Annotated[str, SAMPLERS] = "uniform"
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    prepare: tuple[Preparation, ...] = (AnswerFilter(beta=2.0),)
    model: RewardModelConfig = field(default_factory=lambda: MLPRewardConfig(members=3))
    other: MLPRewardConfig | None = None
    loud: bool = False


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("--files x --kind drop --count 5", {"files": Path("x"), "kind": "drop", "count": 5}),
        ("--kind None --count None", {"kind": None, "count": None}),
        ("--rate lin_3 --noise fitted", {"rate": "lin_3", "noise": "fitted"}),
        ("--rate 3 --noise 1e-3", {"rate": 3.0, "noise": 1e-3}),
        ("--files 7", {"files": Path("7")}),
        ("--band 1 -2.5", {"band": (1.0, -2.5)}),
        ("--seeds 3,4,5", {"seeds": (3, 4, 5)}),
        ("--seeds 3 4,5,", {"seeds": (3, 4, 5)}),
        ("--seeds", {"seeds": ()}),
        ("--trust a --trust=b", {"trust": ("a", "b")}),
        ("--sampler covering", {"sampler": "covering"}),
        ("--kwargs '{gravity: 3.7, size: [4, 4]}'", {"kwargs": {"gravity": 3.7, "size": [4, 4]}}),
        ("--prepare rime '{kind: surf}'", {"prepare": (AnswerFilter(), PseudoLabels())}),
        ("--prepare", {"prepare": ()}),
        ("--model.members 2", {"model": MLPRewardConfig(members=2)}),
        ("--other.members 2", {"other": MLPRewardConfig(members=2)}),
        ("--loud", {"loud": True}),
        ("--loud --no-loud", {"loud": False}),
    ],
)
def test_words_become_values(words, values):
    expected = replace(Fields(Path("out")), **values)
    assert parse(Fields, ["out", *shlex.split(words)], prog="") == expected


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--band 1", "--band: expected FLOAT, got '1'."),
        ("--seeds 3,x", "--seeds: expected N,N,..., got '3,x'."),
        ("--sampler unniform", "got 'unniform'. The nearest is uniform."),
        ("--kind other", "--kind: expected one of drop, keep, got 'other'."),
        ("--noise high", "--noise: expected {fitted}|FLOAT, got 'high'."),
        ("--loud=True", "--loud: expected"),
        ("--kwargs {gravity:3}", "--kwargs: expected {NAME: VALUE, ...}, got '{gravity:3}'."),
    ],
)
def test_a_value_that_an_option_cannot_take(words, line):
    with pytest.raises(UsageError, match=re.escape(line)):
        parse(Fields, ["out", *words.split()], prog="")


def test_help_describes_each_option(capsys):
    with pytest.raises(SystemExit):
        parse(Fields, ["--help"], prog="preferl x")
    out = capsys.readouterr().out
    for text in (
        "usage: preferl x [-h] [OPTIONS] FOLDER",
        "A sentence that help begins with.",
        "where to write. (required)",
        "--files PATH",
        "--kind {drop,keep}",
        "--model {mlp,cnn,",
        "(default: mlp)",
        "Shape of an `MLPReward`",
        "--prepare [{surf,rime} ...]",
        "--other.members",
    ):
        assert text in out
