"""Brings a database to the schema of this version; a SQLite file is copied before."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from preferl.errors import StorageError
from preferl.store.database import Database, keep_private

PG_LOCK = 0x707265666572
"""Names the lock under which programs that start together upgrade one after the other."""


def upgrade(database: Database) -> None:
    """Create the tables, or change them to what this version expects; does nothing if they fit.

    Raises:
        StorageError: a database that a newer version has written.
    """
    config = _config()
    scripts = ScriptDirectory.from_config(config)
    newest = scripts.get_current_head()
    with database.read() as session:
        found = _revision(session.connection())
    if found == newest:
        return
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise StorageError.mismatch(
            "schema of the store",
            expected=f"at most {newest}, which this version of preferl knows",
            got=found,
            fix="Open it with the version that wrote it, or a newer one.",
        )
    if found is not None and database.is_sqlite:
        _copy(Path(str(database.url.database)), found)
    with database.write() as session:
        connection = session.connection()
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PG_LOCK})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")  # again from what is there now: another may have been first


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    return config


def _revision(connection: Connection) -> Any:
    return MigrationContext.configure(connection).get_current_revision()


def _copy(file: Path, revision: str) -> None:
    """Keep the file as it was, with what its write-ahead log holds, beside it."""
    kept = file.with_name(f"{file.name}.before-{revision}")
    keep_private(kept)
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(kept)) as target:
        source.backup(target)
