"""How tyro reads optional values, values between commas and names of a registry."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from preferl.cli.parsing.rules import comma_separated, reading_rules
from preferl.feedback import AnswerFilter, Preparation, PseudoLabels
from preferl.models.configs import MLPRewardConfig, RewardModelConfig
from preferl.registry import SAMPLERS


def parsed(cls, *words):
    return tyro.cli(cls, args=words, registry=reading_rules())


def test_what_may_be_left_out_is_taken_as_ever(capsys):
    @dataclass(frozen=True)
    class Config:
        files: Path | None = None
        kind: Literal["drop", "keep"] | None = "keep"
        count: int | None = 3

    assert parsed(Config) == Config()
    given = parsed(Config, "--files", "x", "--kind", "drop", "--count", "5")
    assert given == Config(Path("x"), "drop", 5)
    assert parsed(Config, "--kind", "None", "--count", "None") == Config(None, None, None)
    with pytest.raises(SystemExit):
        parsed(Config, "--help")
    out = capsys.readouterr().out
    assert "--files PATH" in out
    assert "--kind {drop,keep}" in out
    assert "--count INT" in out
    with pytest.raises(SystemExit):
        parsed(Config, "--kind", "other")
    assert "keep" in capsys.readouterr().err


def test_several_values_stand_between_commas_or_spaces():
    numbers = Annotated[tuple[int, ...], comma_separated(int, "N,N,...")]

    @dataclass(frozen=True)
    class Config:
        seeds: numbers = (0, 1)

    assert parsed(Config).seeds == (0, 1)
    for words in (["3,4,5"], ["3", "4,5,"]):
        assert parsed(Config, "--seeds", *words).seeds == (3, 4, 5)
    assert parsed(Config, "--seeds").seeds == ()
    with pytest.raises(SystemExit):
        parsed(Config, "--seeds", "3,x")


def test_a_field_annotated_with_a_registry_takes_its_names(capsys):
    @dataclass(frozen=True)
    class Config:
        sampler: Annotated[str, SAMPLERS] = "uniform"

    assert parsed(Config, "--sampler", "covering") == Config("covering")
    with pytest.raises(SystemExit):
        parsed(Config, "--sampler", "unniform")
    assert "informative" in capsys.readouterr().err


def test_a_part_has_the_options_of_its_kind_beside_one_for_the_name(capsys):
    @dataclass(frozen=True)
    class Config:
        """A sentence that help begins with."""

        model: RewardModelConfig = field(default_factory=lambda: MLPRewardConfig(members=3))
        other: MLPRewardConfig | None = None

    assert parsed(Config, "--model.members", "2") == Config(MLPRewardConfig(members=2))
    with pytest.raises(SystemExit):
        parsed(Config, "--help")
    out = capsys.readouterr().out
    assert "A sentence that help begins with." in out
    assert "--model {mlp,cnn," in out
    assert "(default: mlp)" in out
    assert "Shape of an `MLPReward`" in out
    assert "--other" not in out


def test_several_things_of_a_registry_are_names_or_settings(capsys):
    @dataclass(frozen=True)
    class Config:
        prepare: tuple[Preparation, ...] = (AnswerFilter(beta=2.0),)

    assert parsed(Config).prepare == (AnswerFilter(beta=2.0),)
    words = ["--prepare", "rime", "{kind: surf, confidence: 0.9}"]
    assert parsed(Config, *words).prepare == (AnswerFilter(), PseudoLabels(confidence=0.9))
    assert parsed(Config, "--prepare").prepare == ()
    with pytest.raises(SystemExit):
        parsed(Config, "--help")
    assert "--prepare {surf,rime} ..." in capsys.readouterr().out
