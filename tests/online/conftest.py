"""A store that somebody answers into."""

from shutil import copytree

import pytest

from helpers.answered_store import Answering
from preferl.store.store import Store


@pytest.fixture
def world(tmp_path, empty_store):
    with Store.open(copytree(empty_store, tmp_path / "store")) as store:
        yield Answering(store)
