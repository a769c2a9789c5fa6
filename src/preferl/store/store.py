"""The store as a whole: a folder, or a PostgreSQL database with a folder for its files.

It has a secret, for its owner alone, and is brought to this version's schema when it is opened. A
SQLite file is copied before its schema changes.
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
from sqlalchemy import text

from preferl.errors import ConfigError, StorageError
from preferl.files import writing
from preferl.store.clips import ClipStore
from preferl.store.database import Database, keep_private, require_whole, sqlite_url
from preferl.store.live import Events, Live, Progress
from preferl.store.people import People, SignIns
from preferl.store.projects import Projects
from preferl.store.questions import Questions
from preferl.store.queue import Queue

LABELS = "labels.db"
CLIPS = "clips"
"""Of the folder: the clips of all projects."""
KEY = "key"


@final
class Store:
    """Labels, the clips they are about, and the people who give them.

    Open one with `Store.open`; any number of programs may have the same store open.

    Attributes:
        database: transactions.
        files: the folder of clips, videos and the secret.
        projects: what is asked, and by which rules.
        people: who answers.
        sign_ins: in which browsers they are.
        clips: what is shown.
        questions: queries and what was said about them.
        queue: whose turn it is.
        live: progress, reward versions, the last episode.
        events: what else happened.
    """

    def __init__(self, database: Database, files: Path) -> None:
        self.database = database
        self.files = files
        self.projects = Projects(database)
        self.people = People(database, self.key)
        self.sign_ins = SignIns(database)
        self.clips = ClipStore(database, files)
        self.questions = Questions(database, self.clips)
        self.queue = Queue(database)
        self.live = Live(database)
        self.events = Events(database)

    @classmethod
    def open(cls, location: str | Path, files: str | Path | None = None) -> Self:
        """Open a store, made if it is not there, and brought to this version's schema.

        Args:
            location: a folder, in which labels are kept in one SQLite file, or a database URL.
            files: the folder of clips and videos; that of the SQLite file by default.

        Raises:
            ConfigError: PostgreSQL without `files`, or a URL of another database.
            StorageError: the folder cannot be written to, a newer version made the store, its
                database is damaged, or it is empty where there are clips already.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Store.open(folder) as store:
        ...         project = store.projects.create("door", question="Which opens the door better?")
        ...         store.people.invite(project.id, "Ann").annotator.name
        'Ann'
        """
        text = str(location)
        if "://" in text:
            database = Database(text)
            if files is None and not database.is_sqlite:
                raise ConfigError.mismatch(
                    "files",
                    expected="a folder for clips and videos beside a PostgreSQL database",
                    got="none",
                )
            folder = Path(files or Path(str(database.url.database)).parent)
        else:
            folder = Path(files or location)
            database = Database(sqlite_url(Path(location) / LABELS))
        _make(folder)
        if database.is_sqlite:
            file = Path(str(database.url.database))
            _make(file.parent)
            require_whole(file, folder / CLIPS)
            keep_private(file)
        try:
            upgrade(database)
        except BaseException:
            database.close()
            raise
        return cls(database, folder.resolve())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database; what was acknowledged is on disk anyway."""
        self.database.close()

    def progress(
        self, project_id: int, annotator_id: int | None = None, *, within: float = 0.0
    ) -> Progress:
        """How far a project is, and this person in it; see `Live.progress`."""
        return self.live.progress(project_id, annotator_id, within=within)

    def key(self) -> bytes:
        """The secret of the store: `PREFERL_SECRET`, or one made and kept in its folder.

        Raises:
            ConfigError: `PREFERL_SECRET` is too short to be one.
            StorageError: the folder cannot be written to, or its key is short or read by others.
        """
        chosen = os.environ.get("PREFERL_SECRET")
        if chosen is None:
            return stored_key(self.files / KEY)
        if len(chosen) < SHORTEST:
            expected = f"at least {SHORTEST} letters"
            fix = "Make one with: python -c 'import secrets; print(secrets.token_hex(32))'"
            raise ConfigError.mismatch(
                "PREFERL_SECRET", expected=expected, got=len(chosen), fix=fix
            )
        return chosen.encode()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError.mismatch(
            f"{folder}", expected="a folder that can be made", got=error
        ) from error


SHORTEST: Final = 32
"""Bytes of a secret that nobody guesses."""

OTHERS: Final = 0o077
"""What a mode permits to the group and to everybody."""


def stored_key(file: Path) -> bytes:
    """The secret in `file`, made if there is none; programs that start together share one.

    Raises:
        StorageError: the file cannot be written or read, is short, or others may read it.
    """
    try:
        if not file.is_file():
            with writing(file, durable=True, private=True, first=True) as draft:
                draft.write_bytes(secrets.token_hex(32).encode())
        with file.open("rb") as opened:
            mode, key = stat.S_IMODE(os.fstat(opened.fileno()).st_mode), opened.read()
    except StorageError:
        raise
    except OSError as error:
        raise StorageError.mismatch(
            f"{file}", expected="a file that can be written and read", got=error
        ) from error
    what = f"{file}, the secret of this store"
    anew = "elete it to get a new one; everybody is signed out then, and the owner's link changes."
    if os.name != "nt" and mode & OTHERS:  # Windows has no such modes
        raise StorageError.mismatch(
            what,
            expected="a file that nobody but its owner may read",
            got=f"mode {mode:o}",
            fix=f"If nobody else has read it: chmod 600 {file}. Otherwise d{anew}",
        )
    count = len(key.strip(b"\0 \t\r\n"))  # a loss of power leaves nothing, or zeros
    if count < SHORTEST:
        expected = f"at least {SHORTEST} bytes"
        raise StorageError.mismatch(what, expected=expected, got=count, fix=f"D{anew}")
    return key


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
        found = MigrationContext.configure(session.connection()).get_current_revision()
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


def _copy(file: Path, revision: str) -> None:
    """Keep the file as it was, with what its write-ahead log holds, beside it."""
    kept = file.with_name(f"{file.name}.before-{revision}")
    keep_private(kept)
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(kept)) as target:
        source.backup(target)
