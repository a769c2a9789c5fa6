"""Labels on a disk that is mounted to be read are read, and nothing is written there."""

import os

import numpy as np
import pytest

from preferl.data.comparisons import Comparisons
from preferl.errors import StorageError
from preferl.store.exchange.exports import export_answers
from preferl.store.exchange.imports import import_comparisons
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.testing import example_segments


@pytest.fixture
def folder(tmp_path):
    """A store with one answer, and the program that goes on writing it."""
    with Store.open(tmp_path / "labels") as writer:
        segments = example_segments(np.random.default_rng(0))
        given = Comparisons.of(segments, np.array([[0, 1]]), np.array([1.0]))
        project = writer.projects.create("dots").id
        import_comparisons(writer, project, given, ["Ann"], source="made up")
        yield tmp_path / "labels", writer


@pytest.fixture
def read_only_disk(monkeypatch):
    """What the operating system says of files on a disk that is mounted to be read."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("as_url", [True, False])
def test_a_read_only_store_is_read(folder, tmp_path, read_only_disk, is_closed, as_url):
    path, writer = folder
    if is_closed:
        writer.close()
    before = {file.name: file.stat().st_mtime_ns for file in path.iterdir()}
    location = f"sqlite:///{path}/labels.db" if as_url else path
    with Store.open(location) as store:
        assert len(StoredFeedback(store).comparisons()) == 1
        assert export_answers(store, store.projects.only().id, tmp_path / "answers.jsonl") == 1
        assert store.progress(store.projects.only().id).answered == 1
        with pytest.raises(
            StorageError, match=r"labels\.db: expected a folder that can be written"
        ):
            store.projects.create("spots")
    after = {file.name: file.stat().st_mtime_ns for file in path.iterdir()}
    if is_closed:
        assert after == before, "nothing is written, not even a log"
