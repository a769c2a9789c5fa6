"""The store as a whole: a folder, or a PostgreSQL database with a folder for its files.

A store has a secret, which only its owner can read. When a store is opened, its schema is upgraded
to this version's, after a SQLite file has been copied.
"""

import os
import secrets
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Final, Self, final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, text

from preferl.errors import ConfigError, StorageError
from preferl.files import writing
from preferl.reading import reading
from preferl.remote import Location, SyncedFolder
from preferl.store.clips import CLIPS, ClipStore
from preferl.store.database import Database, is_read_only, keep_private, require_whole
from preferl.store.given_answers import GivenAnswers
from preferl.store.people import People
from preferl.store.progress import Reports
from preferl.store.projects import Projects
from preferl.store.queries import Queries, RankedQueries
from preferl.store.queue import Queue
from preferl.store.ratings import GivenRatings

LABELS = "labels.db"
KEY = "key"

SHORTEST: Final = 32  # bytes that a secret needs so that nobody can guess it

PG_LOCK: Final = 0x707265666572
"""Names the lock under which programs that start together upgrade one after another."""


@final
class Store:
    """Labels, the clips that they are about, and the people who give them.

    Open one with `Store.open`. Any number of programs may have the same store open.
    """

    def __init__(self, database: Database, files: SyncedFolder) -> None:
        self.database = database
        self.synced = files  # clips and videos, here or in object storage
        self.files = files.path  # this machine's folder of clips, videos and the secret
        self.projects = Projects(database)  # questions and the rules for asking them
        self.people = People(database, self.key)  # annotators and their signed-in browsers
        self.clips = ClipStore(database, files)  # segments and episodes to show
        self.queries = Queries(database, self.clips)  # queries and their answers
        self.ranked = RankedQueries(database, self.clips)  # queries that sort clips into lists
        self.queue = Queue(database, self.ranked)  # leases of queries to people
        self.answers = GivenAnswers(database)  # answers to list, withdraw and correct
        self.ratings = GivenRatings(database, self.clips)  # ratings and outcomes of clips
        self.reports = Reports(database)  # progress, heartbeats, reward versions, events
        self.progress = self.reports.progress  # progress of a project, and of a person in it

    @classmethod
    def open(cls, location: Location, files: Location | None = None) -> Self:
        """Open a store, create it if it is missing, and upgrade it to this version's schema.

        A folder of labels on a read-only disk is opened for reading only.

        Args:
            location: a folder, with the labels in a SQLite file, or a database URL.
            files: folder of clips and videos; by default the folder of the SQLite file. With
                PostgreSQL, it may be the URL of a folder in object storage (see `preferl.remote`).

        Raises:
            ConfigError: PostgreSQL has no `files`, SQLite has `files` in object storage, or the URL
                is of another kind.
            StorageError: the folder cannot be written to, a newer version has made the store, its
                database is damaged, or the database is empty although there are clips.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Store.open(folder) as store:
        ...         project = store.projects.create("door", question="Which opens the door better?")
        ...         store.people.invite(project.id, "Ann").annotator.name
        'Ann'
        """
        file_url = URL.create("sqlite", database=str(Path(location) / LABELS))
        url = str(location) if "://" in str(location) else file_url
        database = Database(url)
        if database.is_sqlite and is_read_only(Path(str(database.url.database))):
            database = Database(url, read_only=True)
        if files is None and not database.is_sqlite:
            raise ConfigError(
                "files: expected a folder for clips and videos beside a PostgreSQL database, got "
                "none."
            )
        file = Path(str(database.url.database))
        synced = SyncedFolder(files or file.parent)
        if database.is_sqlite and synced.url is not None:
            raise ConfigError(
                f"files: expected a folder beside SQLite, got {synced}. Keep labels in PostgreSQL "
                "for many machines."
            )
        folder = synced.path
        for needed in (folder, file.parent) if database.is_sqlite else (folder,):
            with reading(needed, expected="a folder that can be made", error=StorageError):
                needed.mkdir(parents=True, exist_ok=True)
        if database.is_sqlite and not database.read_only:
            require_whole(file, folder / CLIPS)
            keep_private(file)
        try:
            upgrade(database)
        except BaseException:
            database.close()
            raise
        return cls(database, synced if synced.url is not None else SyncedFolder(folder.resolve()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database. Acknowledged answers are on disk already."""
        self.database.close()

    def key(self) -> bytes:
        """Return the secret of the store: `PREFERL_SECRET`, or a secret that its folder keeps.

        Object storage does not keep the secret, as people who read clips there must not sign in as
        others.

        Raises:
            ConfigError: `PREFERL_SECRET` is too short, or it is missing and files are in object
                storage.
            StorageError: the folder cannot be written to, or its key is short or others can read
                it.
        """
        secret = os.environ.get("PREFERL_SECRET")
        if secret is None and self.synced.url is None:
            return stored_key(self.files / KEY)
        if secret is None or len(secret) < SHORTEST:
            raise ConfigError(
                f"PREFERL_SECRET: expected at least {SHORTEST} letters, the secret that all "
                f"programs of this store share, got {'none' if secret is None else len(secret)}. "
                "Make one with: python -c 'import secrets; print(secrets.token_hex(32))'"
            )
        return secret.encode()


def stored_key(file: Path) -> bytes:
    """Return the secret in `file`; make the file first if it is missing.

    Programs that start at the same time get the same secret. `StorageError` is raised if the file
    cannot be written or read, is short, or if others can read it.
    """
    with reading(file, expected="a file that can be written and read", error=StorageError):
        if not file.is_file():
            with writing(file, durable=True, private=True, first=True) as draft:
                draft.write_bytes(secrets.token_hex(32).encode())
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            key = opened.read()
    fix = "Delete it to get a new one; everybody is signed out then, and the owner's link changes."
    if os.name != "nt" and mode & 0o077:  # Windows has no such modes
        raise StorageError(
            f"{file}, the secret of this store: expected a file that only its owner may read, got "
            f"mode {mode:o}. If nobody else has read it: chmod 600 {file}. Otherwise: {fix}"
        )
    count = len(key.strip(b"\0 \t\r\n"))  # a loss of power may leave nothing, or zeros
    if count < SHORTEST:
        raise StorageError(
            f"{file}, the secret of this store: expected at least {SHORTEST} bytes, got {count}. "
            f"{fix}"
        )
    return key


def upgrade(database: Database) -> None:
    """Create the tables, or change them to this version's if they differ.

    `StorageError` is raised if a newer version has written the database.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    scripts = ScriptDirectory.from_config(config)
    newest = scripts.get_current_head()
    with database.read() as session:
        found = MigrationContext.configure(session.connection()).get_current_revision()
    if found == newest:
        return
    if found not in {None, *(script.revision for script in scripts.walk_revisions())}:
        raise StorageError(
            f"schema of the store: expected at most {newest}, which this version of preferl knows, "
            f"got {found}. Open it with the version that wrote it, or a newer one."
        )
    with database.write() as session:
        connection = session.connection()
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PG_LOCK})
        found = MigrationContext.configure(connection).get_current_revision()
        if found == newest:  # another program upgraded it first
            return
        if found is not None and database.is_sqlite:
            file = Path(str(database.url.database))
            kept = file.with_name(f"{file.name}.before-{found}")
            keep_private(kept)
            with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(kept)) as target:
                source.backup(target)  # includes the write-ahead log
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
