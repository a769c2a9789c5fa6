"""Tables of names: complete, lazy, open to others, and closed to modules that nobody trusts."""

import sys
from dataclasses import dataclass, is_dataclass
from functools import partial

import pytest

from preferl import registry
from preferl.configs import from_json, to_json
from preferl.errors import ConfigError
from preferl.registry import REWARD_MODELS, TEACHERS, Entry, Registry, imported

TABLES = {name: table for name, table in vars(registry).items() if isinstance(table, Registry)}


@dataclass(frozen=True)
class Shape:
    size: int = 3


class Thing:
    def __init__(self, size=0, colour="red"):
        self.size = size
        self.colour = colour


@pytest.fixture
def table():
    return Registry("thing", {"plain": Entry("preferl.registry:Registry")})


@pytest.mark.parametrize("name", TABLES)
def test_every_entry_is_there_where_it_says(name):
    table = TABLES[name]
    assert table.names()
    for key in table.names():
        assert callable(table.load(key))
        try:
            config = table.config(key)
        except ConfigError:  # a thing without settings
            continue
        assert is_dataclass(config)
        assert table.config(config.__name__) is config
        assert table.name_of(config) == key, "it is defined elsewhere"


def test_names_that_are_not_there_are_refused_with_those_that_are(table):
    with pytest.raises(ConfigError, match="thing: expected one of plain, got 'round'"):
        table.load("round")
    with pytest.raises(ConfigError, match="one with settings"):
        table.config("plain")
    with pytest.raises(ConfigError, match="thing config: expected one of"):
        table.name_of(Shape())


def test_things_of_ones_own_are_added_and_taken_out(table):
    table.register("round", Thing, Shape)
    table.register("round", Thing, Shape)  # a module that is imported twice
    assert table.names() == ("plain", "round")
    assert "round" in table
    assert table.config("round") is table.config("Shape") is Shape
    assert table.tag(Shape()) == {"kind": "round", "module": __name__}
    with pytest.raises(ConfigError, match="expected a free name"):
        table.register("plain", Thing)
    table.remove("round")
    assert "round" not in table


def test_configs_name_registered_ones_beside_those_that_are_listed():
    from preferl.models import MLPRewardConfig
    from preferl.online import OnlineConfig

    REWARD_MODELS.register("round", Thing, Shape)
    try:
        written = to_json(OnlineConfig(model=Shape(5)))
        assert written["model"] == {"kind": "Shape", "size": 5}
        assert from_json(OnlineConfig, written).model == Shape(5)
        assert from_json(OnlineConfig, {"model": {"kind": "mlp"}}).model == MLPRewardConfig()
    finally:
        REWARD_MODELS.remove("round")
    with pytest.raises(ConfigError, match=r"model\.kind: expected one of"):
        from_json(OnlineConfig, written)
    with pytest.raises(ConfigError, match=r"model\.kind: expected one of"):
        from_json(OnlineConfig, {"model": {"kind": "PPOConfig"}})


def test_a_module_that_a_file_names_is_imported_only_if_somebody_trusts_it(
    table, tmp_path, monkeypatch
):
    (tmp_path / "strangers.py").write_text("raise SystemExit('it ran')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    about = {"kind": "theirs", "module": "strangers"}
    with pytest.raises(ConfigError, match="a module that may be imported"):
        table.named(about, source="a file")
    assert "strangers" not in sys.modules
    with pytest.raises(SystemExit, match="it ran"):
        table.named(about, source="a file", trust=["strangers"])
    with pytest.raises(ConfigError, match="expected a module"):
        table.named(about | {"module": "nobodys"}, source="a file", trust=["nobodys"])


def plain_thing():
    """A function that its module has by name."""
    return "plain"


def test_a_function_is_known_by_where_it_is_defined(table):
    name = table.registered_name(plain_thing)
    assert name == f"{__name__}:plain_thing"
    assert table.load(name)() == "plain"
    assert table.registered_name(name) == table.registered_name(plain_thing) == name
    table.register("simple", plain_thing)
    table.remove(name)
    assert table.registered_name(plain_thing) == "simple"
    assert table.registered_name("plain") == "plain"


@pytest.mark.parametrize("thing", [lambda: 3, partial(plain_thing), Thing()])
def test_what_no_module_has_by_name_is_not_known(table, thing):
    with pytest.raises(
        ConfigError, match=r"thing: expected a function or class with a name in its.*def"
    ):
        table.registered_name(thing)


def test_a_function_that_text_names_is_known_once_its_module_was_let_in(
    table, tmp_path, monkeypatch
):
    (tmp_path / "ones_own").mkdir()
    for file in ("__init__.py", "below.py"):
        text = "def thing():\n    return 7\n"
        (tmp_path / "ones_own" / file).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="expected one of plain, got 'ones_own:thing'"):
        table.registered_name("ones_own:thing")
    assert "ones_own" not in sys.modules
    registry.imported("ones_own", source="--trust")
    assert table.load(table.registered_name("ones_own:thing"))() == 7
    assert table.load(table.registered_name("ones_own.below:thing"))() == 7
    with pytest.raises(ConfigError, match="expected module:Name"):
        table.load("ones_own:other")
    for name in ("ones_own", "ones_owner:thing"):
        with pytest.raises(ConfigError, match="expected one of plain"):
            table.registered_name(name)


def test_a_thing_is_given_what_it_takes(table):
    table.register("round", Thing)
    assert vars(table.build("round", size=4, weight=7)) == {"size": 4, "colour": "red"}
    bound = table.bound("round", size=4, weight=7)
    assert vars(bound(colour="blue")) == {"size": 4, "colour": "blue"}


@pytest.mark.parametrize("name", ["os.system", "system"])
def test_a_trusted_module_lends_no_trust_to_what_it_imports(tmp_path, monkeypatch, name):
    (tmp_path / "lends_trust.py").write_text("import os\nfrom os import system\n")
    monkeypatch.syspath_prepend(tmp_path)
    imported("lends_trust", source="--trust")
    with pytest.raises(ConfigError, match="what that package defines"):
        TEACHERS.load(f"lends_trust:{name}")


def test_modules_of_allowed_packages_lend_no_names():
    imported("preferl.files", source="a folder")
    with pytest.raises(ConfigError, match="expected one of"):
        TEACHERS.load("preferl.files:write_text")
