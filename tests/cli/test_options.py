"""Options that commands share, and how help shows them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from preferl.cli.options import (
    StoreConfig,
    comma_separated,
    import_trusted,
    opened,
    options_of,
    plain_metavars,
    require_store,
)
from preferl.errors import ConfigError, StorageError


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


def test_a_store_as_options_of_another_command():
    assert StoreConfig().options() == ("--store", "runs/labels")
    config = StoreConfig("postgresql://me@host/labels", Path("clips"), project="door")
    assert config.options() == ("--store", "postgresql://me@host/labels", "--files", "clips")


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("--env A", ["A"]),
        ("--env=A", ["A"]),
        ("--env= --env B", ["B", ""]),
        ("--environments 3 --env-id=A", []),
        ("--other --env", []),
        ("--env a=b --env=c=d", ["a=b", "c=d"]),
    ],
)
def test_all_values_of_an_option_are_found(words, values):
    assert options_of(words.split(), "--env") == values


def test_a_store_that_is_not_there_is_not_made(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        with (
            pytest.raises(StorageError, match=r"expected a folder of labels, got none. Make one"),
            opened(StoreConfig(str(place))),
        ):
            pass
    assert list(tmp_path.iterdir()) == []
    require_store("postgresql://me@nowhere/labels")  # a database is asked only once it is opened


def test_the_only_project_needs_no_name(tmp_path):
    place = str(tmp_path / "store")
    with opened(StoreConfig(place), new=True) as (_, project):
        assert project.slug == "labels"
    with opened(StoreConfig(place)) as (_, project):
        assert project.slug == "labels"
    with opened(StoreConfig(place, project="second"), new=True) as (_, project):
        assert project.slug == "second"
    with opened(StoreConfig(place, project="labels")) as (_, project):
        assert project.slug == "labels"
    with pytest.raises(ConfigError, match="labels, second"), opened(StoreConfig(place)):
        pass
    with (
        pytest.raises(ConfigError, match="labels, second"),
        opened(StoreConfig(place, project="third")),
    ):
        pass


def test_several_values_stand_between_commas_or_spaces():
    numbers = Annotated[tuple[int, ...], comma_separated(int, "N,N,...")]

    @dataclass(frozen=True)
    class Config:
        seeds: numbers = (0, 1)

    def parsed(*words):
        return tyro.cli(Config, args=words).seeds

    assert parsed() == (0, 1)
    assert parsed("--seeds", "3,4,5") == parsed("--seeds", "3", "4,5,") == (3, 4, 5)
    assert parsed("--seeds") == ()
    with pytest.raises(SystemExit):
        parsed("--seeds", "3,x")


def test_a_trusted_module_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import_trusted(["--env", "Pendulum-v1"])  # trusts nothing, so imports nothing
    with pytest.raises(ConfigError, match="no_such_module"):
        import_trusted(["--trust", "no_such_module"])
