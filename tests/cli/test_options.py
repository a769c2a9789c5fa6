"""Options that several commands have."""

import json
from pathlib import Path

import pytest

from preferl.cli.options import AnswersConfig, StoreConfig, import_trusted, opened, require_store
from preferl.configs import to_json
from preferl.errors import ConfigError, StorageError


def test_a_store_as_options_of_another_command():
    assert StoreConfig().options() == ("--store", "runs/labels")
    config = StoreConfig("postgresql://me@host/labels", Path("clips"), project="door")
    assert config.options() == ("--store", "postgresql://me@host/labels", "--files", "clips")


def test_answers_of_a_store_are_found_as_the_store_itself(tmp_path):
    config = AnswersConfig("postgresql://me@host/labels", Path("clips"), "door")
    assert config.options() == StoreConfig(config.store, config.files).options()
    assert AnswersConfig().store is None
    with (
        pytest.raises(StorageError, match=r"store : expected a folder of labels"),
        opened(StoreConfig("")),
    ):
        pass


def test_the_name_of_answers_in_a_database_has_no_password():
    config = AnswersConfig(store="postgresql://me:secret@host/labels")
    assert config.in_words == "postgresql://me:***@host/labels"
    assert "secret" not in json.dumps(to_json(config))


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


def test_a_trusted_module_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import_trusted(["--env", "Pendulum-v1"])  # trusts nothing, so imports nothing
    with pytest.raises(ConfigError, match="no_such_module"):
        import_trusted(["--trust", "no_such_module"])
