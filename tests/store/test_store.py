"""The secret of a store and its database are for its owner alone, and whole or refused."""

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

from preferl import files
from preferl.data.comparisons import Comparisons
from preferl.errors import StorageError
from preferl.store.exchange.exports import export_answers
from preferl.store.exchange.imports import import_comparisons
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.testing import example_segments

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")


@pytest.fixture(autouse=True)
def _no_secret_of_this_shell(monkeypatch):
    monkeypatch.delenv("PREFERL_SECRET", raising=False)


@pytest.fixture
def loose():
    """What is written is for everybody, unless somebody says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_key_that_anybody_could_guess_is_refused(tmp_path):
    with Store.open(tmp_path) as store:
        project = store.projects.create("dots").id
        for content in (b"", b"x" * 31, b"\0" * 64, b" " * 40 + b"\n"):
            (tmp_path / "key").write_bytes(content)
            (tmp_path / "key").chmod(0o600)
            with pytest.raises(StorageError, match=r"at least 32 bytes.*Delete it"):
                store.people.owner(project)
        (tmp_path / "key").unlink()
        assert len(store.key()) == 64


def test_a_key_that_others_may_read_is_refused(tmp_path):
    with Store.open(tmp_path) as store:
        known = store.key()
        for shared in (0o640, 0o604, 0o660, 0o644, 0o610):
            (tmp_path / "key").chmod(shared)
            with pytest.raises(StorageError, match="chmod 600"):
                store.key()
        (tmp_path / "key").chmod(0o600)
        assert store.key() == known


def test_nobody_else_reads_a_store_at_any_moment(tmp_path, loose, monkeypatch):
    seen = []
    link = os.link

    def linked(draft, path):
        seen.extend([mode(draft), mode(draft.parent)])
        link(draft, path)

    monkeypatch.setattr(files.os, "link", linked)
    with Store.open(tmp_path) as store:
        store.key()
        store.projects.create("dots")
        there = {path.name for path in tmp_path.iterdir()}
        assert {"labels.db", "labels.db-wal", "labels.db-shm", "key"} <= there
        assert {mode(path) for path in tmp_path.iterdir()} == {0o600}
    assert seen == [0o600, 0o700] * 2  # the database and the key


def test_a_database_of_before_becomes_private(tmp_path, loose):
    with Store.open(tmp_path) as store:
        store.projects.create("dots")
        for path in tmp_path.iterdir():
            path.chmod(0o644)
        with Store.open(tmp_path) as again:
            assert again.projects.only().slug == "dots"
            assert {mode(path) for path in tmp_path.iterdir()} == {0o600}


def test_a_database_of_somebody_else_is_left_as_it_is(tmp_path, monkeypatch):
    Store.open(tmp_path).close()

    def refused(*_, **__):
        raise PermissionError

    (tmp_path / "labels.db").chmod(0o666)
    monkeypatch.setattr("pathlib.Path.chmod", refused)
    with Store.open(tmp_path) as store:
        assert store.projects.all() == []


def test_the_copy_before_an_upgrade_is_private(tmp_path, loose, monkeypatch):
    with Store.open(tmp_path) as store:
        store.projects.create("dots")
    head = "preferl.store.store.ScriptDirectory.get_current_head"
    monkeypatch.setattr(head, lambda self: "9999")
    Store.open(tmp_path).close()
    kept = tmp_path / "labels.db.before-0001"
    assert mode(kept) == 0o600
    with closing(sqlite3.connect(kept)) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
        assert database.execute("SELECT slug FROM project").fetchall() == [("dots",)]


def test_to_open_a_store_again_lets_go_of_no_lock(tmp_path):
    """SQLite warns of it: whoever closes a file ends all locks of the process on that file."""
    code = (
        "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone())"
    )
    file = str(tmp_path / "labels.db")
    command = [sys.executable, "-c", code, file, "SELECT count(*) FROM project"]
    with Store.open(tmp_path) as store:
        for count, name in enumerate(("first", "second"), start=1):
            store.projects.create(name)
            Store.open(tmp_path).close()  # the last one to close a database removes its log
            assert subprocess.check_output(command).split() == [b"%d" % count]


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
