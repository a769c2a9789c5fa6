import os
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.waiting import SECONDS
from preferl.store.schema import Base
from preferl.store.store import Store


def _programs():
    """Where PostgreSQL's programs are; Debian does not put them on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    named = shutil.which("initdb")
    return found[0] if found else (Path(named).parent if named else None)


def _as_postgres(command, **more):
    """PostgreSQL refuses to run as root."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    return subprocess.run([*prefix, *command], check=True, capture_output=True, text=True, **more)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """The URL of a server; of its own unless `PREFERL_TEST_POSTGRES` names one."""
    pytest.importorskip("psycopg")
    if url := os.environ.get("PREFERL_TEST_POSTGRES"):
        yield url
        return
    programs = _programs()
    if programs is None or sys.platform != "linux":
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    shared = os.environ.get("PYTEST_DEBUG_TEMPROOT", "/tmp")  # its user cannot enter ours
    folder = Path(shared) / f"preferl-postgres-{uuid4().hex[:8]}"
    folder.mkdir(mode=0o777)
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    data = folder / "data"
    try:
        _as_postgres(
            [str(programs / "initdb"), "-D", str(data), "-U", "preferl", "-A", "trust", "-N"],
            cwd=folder,
        )
        # What is gone with the test need not reach the disk.
        options = f"-k {folder} -c listen_addresses='' -c max_connections=200 -c fsync=off"
        started = [
            "-D",
            str(data),
            "-w",
            "-t",
            f"{SECONDS:g}",
            "-l",
            str(folder / "log"),
            "-o",
            options,
            "start",
        ]
        _as_postgres([str(programs / "pg_ctl"), *started], cwd=folder)
        yield f"postgresql://preferl@/postgres?host={folder}"
        _as_postgres([str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def open_store(request, tmp_path, empty_store, monkeypatch):
    """Opens the same store as often as it is called, as several programs do."""
    monkeypatch.setattr("preferl.store.database.BUSY_SECONDS", SECONDS)
    opened = []
    location = tmp_path / "store"
    if request.param == "postgres":
        location = request.getfixturevalue("tables")
    else:
        shutil.copytree(empty_store, location)

    def open_it():
        opened.append(Store.open(location, tmp_path / "store"))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store):
    return open_store()


@pytest.fixture
def project(store):
    """The number of a new project."""
    return store.projects.create("dots").id


@pytest.fixture
def fresh_database(postgres):
    """The URL of an empty database."""
    return _new_database(postgres)


@pytest.fixture(scope="session")
def _migrated(postgres, tmp_path_factory):
    """The URL of a database with tables: making them takes longer than most tests."""
    url = _new_database(postgres)
    Store.open(url, tmp_path_factory.mktemp("tables")).close()
    return url


@pytest.fixture
def tables(_migrated):
    """The URL of a database with tables, which are empty."""
    import psycopg

    with psycopg.connect(_migrated, autocommit=True) as connection:
        names = ", ".join(f'"{table}"' for table in Base.metadata.tables)
        connection.execute(f"TRUNCATE {names} RESTART IDENTITY")
    return _migrated


def _new_database(postgres):
    import psycopg

    name = f"t{uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.replace("/postgres?", f"/{name}?")
