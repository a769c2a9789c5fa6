"""A damaged database is called damaged, and one that lost its labels is not taken for a new one."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import select

from preferl.errors import ConfigError, StorageError
from preferl.store.database import Database, keep_private, now
from preferl.store.store import Store


@pytest.fixture
def filled(empty_store, tmp_path):
    """A store with some clips beside labels of 200 people."""
    folder = tmp_path / "store"
    shutil.copytree(empty_store, folder)
    with Store.open(folder) as store:
        project = store.projects.create("dots", question="Which is better?").id
    with sqlite3.connect(folder / "labels.db") as database:
        database.executemany(
            "INSERT INTO annotator (project_id, name, role, secret_hash, created_at, is_model)"
            " VALUES (?, ?, 'annotator', ?, 0, false)",
            [(project, f"person {n}", f"{n:064d}") for n in range(200)],
        )
    database.close()
    (folder / "clips" / "1").mkdir(parents=True)
    return folder


def spoil(folder, start=4096 * 3, size=4096 * 8):
    """Overwrite some pages behind the first ones, as a disk that fails does."""
    file = folder / "labels.db"
    content = bytearray(file.read_bytes())
    content[start : start + size] = os.urandom(len(content[start : start + size]))
    file.write_bytes(content)


def test_a_damaged_database_is_called_damaged(filled):
    for content in (None, b"not a database" * 1000):
        spoil(filled)
        if content is not None:
            (filled / "labels.db").write_bytes(content)
        with pytest.raises(StorageError, match=r"labels\.db: expected a whole database, got a dam"):
            Store.open(filled)


def test_damage_that_opening_does_not_see_is_called_damage(filled, monkeypatch):
    monkeypatch.setattr("preferl.store.database.MOST_CHECKED", 0)
    spoil(filled, size=10**6)
    with pytest.raises(StorageError, match="a damaged one"), Store.open(filled) as store:
        store.people.all(1)


@pytest.mark.parametrize("loss", ["empty", "gone", "without tables"])
def test_no_labels_beside_clips_are_no_new_store(filled, loss):
    file = filled / "labels.db"
    file.unlink()
    if loss == "empty":
        file.touch()
    elif loss == "without tables":
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE t (a)")
            database.execute("DROP TABLE t")
        database.close()
    before = sorted(path.name for path in filled.iterdir())
    with pytest.raises(StorageError, match="the labels of the clips in"):
        Store.open(filled)
    assert sorted(path.name for path in filled.iterdir()) == before


def test_an_empty_folder_is_a_new_store(tmp_path):
    (tmp_path / "clips").mkdir()
    Store.open(tmp_path).close()
    Store.open(tmp_path).close()


def test_a_new_store_opens_while_another_program_reads_it(tmp_path):
    file = tmp_path / "labels.db"
    keep_private(file)  # as the other program does first
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        with Store.open(tmp_path) as store:
            assert not store.projects.all()


def test_messages_about_a_database_hide_its_password(tmp_path):
    pytest.importorskip("psycopg")
    options = "connect_timeout=1&sslpassword=hidden"
    with (
        closing(Database(f"postgresql://me:hidden@127.0.0.1:1/labels?{options}")) as database,
        pytest.raises(StorageError, match=r"me:\*\*\*@127") as caught,
    ):
        database.all(select(now()))
    assert "hidden" not in str(caught.value)
    for wrong in ("mysql://me:hidden@host/a", "postgresql://me:hidden@host:port/a", "nonsense://"):
        with pytest.raises(ConfigError) as caught:
            Database(wrong)
        assert "hidden" not in str(caught.value)
