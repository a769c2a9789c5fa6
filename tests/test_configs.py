import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal

import pytest

from preferl.configs import changed, decoded, from_json, plain, to_json, without_password
from preferl.errors import ConfigError
from preferl.reporting import read_jsonl


class Mode(Enum):
    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True)
class Small:
    width: int = 64


@dataclass(frozen=True)
class Large:
    width: int = 256
    heads: int = 4


@dataclass(frozen=True)
class Fit:
    epochs: int
    rate: float = 3e-4
    clip: float = math.inf
    model: Small | Large = field(default_factory=Small)
    extra: Large | None = None
    layers: tuple[int, ...] = (64, 64)
    size: tuple[int, float] = (1, 2.0)
    mode: Mode = Mode.FAST
    side: Literal["left", "right"] = "left"
    folder: Path = Path("runs")
    reader: Callable[[Path], object] | None = None
    prices: dict[str, float] = field(default_factory=dict)
    name: str = "a:b"


def test_config_survives_the_round_trip_through_text():
    config = Fit(
        3,
        model=Large(heads=2),
        extra=Large(8),
        layers=(1, 2, 3),
        mode=Mode.SLOW,
        reader=read_jsonl,
        prices={"apple": 2.0},
    )
    text = json.dumps(to_json(config), allow_nan=False)
    assert from_json(Fit, json.loads(text)) == config


def test_only_a_union_of_dataclasses_is_tagged():
    data = to_json(Fit(1, extra=Large()))
    assert data["model"] == {"kind": "Small", "width": 64}
    assert data["extra"] == {"width": 256, "heads": 4}


def test_left_out_keys_keep_their_default():
    assert from_json(Fit, {"epochs": 2}) == Fit(2)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"epochs": 1, "epoch": 1}, "epoch"),
        ({}, "epochs"),
        ({"epochs": "three"}, "epochs"),
        ({"epochs": True}, "epochs"),
        ({"epochs": 1, "model": {"kind": "Huge"}}, "model.kind"),
        ({"epochs": 1, "model": {"kind": "Small", "heads": 1}}, "heads"),
        ({"epochs": 1, "extra": {"width": "x"}}, "extra.width"),
        ({"epochs": 1, "extra": 3}, "extra"),
        ({"epochs": 1, "layers": 3}, "layers"),
        ({"epochs": 1, "layers": [1, "x"]}, r"layers\[1\]"),
        ({"epochs": 1, "size": [1]}, "size"),
        ({"epochs": 1, "side": "up"}, "side"),
        ({"epochs": 1, "mode": "faster"}, "mode"),
        ({"epochs": 1, "prices": []}, "prices"),
        ({"epochs": 1, "reader": 3}, "reader"),
    ],
)
def test_wrong_data_is_named(data, named):
    with pytest.raises(ConfigError, match=named):
        from_json(Fit, data)


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "preferl.reporting:no_such",
        "preferl.no_such:run",
        "preferl.reporting",
        "preferl.files:os.system",  # what a module imports is not its own
        "preferl._optional:import_module",
        "preferl.trust:import_module",
        "preferl.configs:read_jsonl",
        "preferl.reporting:JsonlSink.write.__globals__",
        "preferl.trust:_parts",
        "preferl.trust:ALLOWED.union",
        "preferl.trust:ALLOWED",
        "preferl:RunFolder",  # it is defined elsewhere
        "gymnasium:make",
        "evilmod:run",
    ],
)
def test_names_of_functions_that_preferl_does_not_define_are_refused(name):
    with pytest.raises(ConfigError, match="reader"):
        from_json(Fit, {"epochs": 1, "reader": name})


@pytest.mark.parametrize("name", ["preferl.reporting:read_jsonl", "preferl.reporting:JsonlSink"])
def test_functions_and_classes_of_preferl_are_found(name):
    reader = from_json(Fit, {"epochs": 1, "reader": name}).reader
    assert to_json(Fit(1, reader=reader))["reader"] == name


def test_only_fields_for_functions_look_names_up():
    name = "preferl.reporting:read_jsonl"
    text = from_json(Fit, {"epochs": 1, "name": name, "folder": name, "prices": {name: 1.0}})
    assert (text.name, text.folder, text.prices) == (name, Path(name), {name: 1.0})
    for field_of_numbers in ("epochs", "rate", "layers", "size", "prices", "model", "extra"):
        with pytest.raises(ConfigError, match=field_of_numbers):
            from_json(Fit, {"epochs": 1} | {field_of_numbers: name})


def test_lambdas_have_no_name_that_is_found():
    written = to_json(Fit(1, reader=lambda path: path))
    with pytest.raises(ConfigError, match="reader"):
        from_json(Fit, written)


def test_what_json_cannot_hold_is_refused():
    @dataclass
    class Odd:
        value: object = field(default_factory=object)

    with pytest.raises(ConfigError, match="object"):
        to_json(Odd())
    with pytest.raises(ConfigError, match="dataclass"):
        to_json({"epochs": 1})


def test_defaults_are_not_changed_settings():
    assert changed(Fit, to_json(Fit(3))) == {"epochs": 3}, "which has no default"


def test_changed_settings_of_a_section():
    assert changed(Fit, to_json(Fit(3, model=Small(8)))) == {"epochs": 3, "model.width": 8}
    other = changed(Fit, to_json(Fit(3, model=Large(256, 8))))
    assert other == {"epochs": 3, "model.kind": "Large", "model.heads": 8}
    assert changed(Fit, to_json(Fit(3, extra=Large(heads=2)))) == {"epochs": 3, "extra.heads": 2}


def test_a_kind_that_nobody_knows_differs_as_a_whole():
    section = {"kind": "Moon", "module": "moon", "craters": 3}
    assert changed(Fit, {"model": section}) == {"model": section}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:secret@host/labels", "postgresql://me:***@host/labels"),
        ("postgresql+psycopg://me:se@cr:et@host:5432/a", "postgresql+psycopg://me:***@host:5432/a"),
        ("postgresql://:se/cret@host/labels", "postgresql://:***@host/labels"),
        ("postgresql://host/a?user=me&password=secret&x=1", "postgresql://host/a?user=me&password=***&x=1"),
        ("from postgresql://a:b@c/d to http://e:f@g", "from postgresql://a:***@c/d to http://e:***@g"),
        ("postgresql://h:5432/a?sslpassword=se@cret", "postgresql://h:5432/a?sslpassword=***"),
        ("postgresql://me@host/labels", "postgresql://me@host/labels"),
        ("http://localhost:8765/join/a:b", "http://localhost:8765/join/a:b"),
        ("runs/labels: a@b", "runs/labels: a@b"),
    ],
    ids=["plain", "odd-letters", "slash", "option", "two", "at", "none", "port", "folder"],
)  # fmt: skip
def test_nobody_reads_a_password(text, shown):
    assert without_password(text) == shown
    assert plain({"places": [text]}) == {"places": [shown]}


@pytest.mark.parametrize(
    "text",
    [
        "://a:" * 200_000,
        "@" + "://a:" * 200_000,
        "://a:" * 200_000 + "@",
        "://" + "?password" * 100_000,
        "://" + "?&a" * 300_000,
        "a://" + "a" * 1_000_000,
        "://a:@" * 200_000,
        "://a:b@/" * 100_000,
    ],
)
def test_a_long_text_is_searched_for_passwords_in_time(text):
    """A megabyte each: what grows with the square of the length would take hours."""
    started = time.process_time()
    without_password(text)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(("word", "value"), [("1e-05", 1e-5), ("-2E3", -2e3), ("inf", math.inf)])
def test_numbers_that_yaml_reads_as_text_are_numbers(word, value):
    assert decoded(float, word, "rate") == value
    with pytest.raises(ConfigError, match="rate: expected float, got 'e5'"):
        decoded(float, "e5", "rate")
