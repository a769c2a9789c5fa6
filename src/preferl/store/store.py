"""The store as a whole: a folder, or a PostgreSQL database with a folder for its files."""

import os
from pathlib import Path
from typing import Self, final

from preferl.errors import ConfigError, StorageError
from preferl.store.clips import ClipStore
from preferl.store.database import Database, keep_private, sqlite_url
from preferl.store.key import SHORTEST, stored_key
from preferl.store.live import Events, Live, Progress
from preferl.store.migrate import upgrade
from preferl.store.people import People
from preferl.store.projects import Projects
from preferl.store.questions import Questions
from preferl.store.queue import Queue
from preferl.store.sign_ins import SignIns
from preferl.store.whole import require_whole

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
        for needed in (folder, *([Path(str(database.url.database)).parent] * database.is_sqlite)):
            _make(needed)
        if database.is_sqlite:
            require_whole(Path(str(database.url.database)), folder / CLIPS)
            keep_private(Path(str(database.url.database)))
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
        told = os.environ.get("PREFERL_SECRET")
        if told is not None:
            if len(told) < SHORTEST:
                expected = f"at least {SHORTEST} letters"
                fix = "Make one with: python -c 'import secrets; print(secrets.token_hex(32))'"
                raise ConfigError.mismatch(
                    "PREFERL_SECRET", expected=expected, got=len(told), fix=fix
                )
            return told.encode()
        return stored_key(self.files / KEY)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError.mismatch(
            f"{folder}", expected="a folder that can be made", got=error
        ) from error
