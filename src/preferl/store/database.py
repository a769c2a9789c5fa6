"""Access to the database: SQLite beside the clips, or PostgreSQL by its URL.

On SQLite, a writing transaction takes the lock when it begins. It therefore never fails half-way
because it does not get the lock. It is on disk before it is acknowledged (write-ahead log,
synchronous FULL). A file that is damaged or has lost its tables is refused.
"""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, TypeVar, TypeVarTuple, final

from sqlalchemy import (
    URL,
    Engine,
    Float,
    Row,
    Select,
    create_engine,
    event,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    SQLAlchemyError,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.functions import FunctionElement

from preferl._optional import require
from preferl.configs import without_password
from preferl.errors import ConfigError, StorageError
from preferl.files import writing
from preferl.printing import get_logger
from preferl.reading import reading

BUSY_SECONDS = 10.0  # how long a transaction waits for others before it fails
MOST_PARAMETERS = 500  # values per statement, which databases limit
SLACK_SECONDS = 60.0
"""How far a clock may step back without an effect on leases.

On a busy machine, a transaction sees leases that were granted after it has read the time. So this
is longer than a transaction takes.
"""

MOST_CHECKED: Final = 2**30
"""Largest size in bytes of a file that is checked when it is opened.

Checking takes 5 ms of processor time per megabyte: 0.2 s with 100,000 answers. Damage to a larger
file is found when it is read.
"""

RESTORE: Final = (
    "Restore it from a back-up, or save what can be read: sqlite3 labels.db .recover | "
    "sqlite3 rescued.db"
)

LOGGER = get_logger(__name__)

Value = TypeVar("Value")
Columns = TypeVarTuple("Columns")


class now(FunctionElement[float]):  # noqa: N801 (reads as SQL's own function)
    """The database's clock in seconds since the epoch, so that all programs share one clock."""

    type = Float()
    inherit_cache = True


@compiles(now, "sqlite")
def _now_sqlite(*_: object, **__: object) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _now_postgresql(*_: object, **__: object) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


def clock(session: Session) -> float:
    """Return the time by the database's clock."""
    return float(session.scalar(_CLOCK) or 0.0)


_CLOCK: Final = select(now())
_NOT_DURABLE: Final = text("SET LOCAL synchronous_commit = off")


@final
class Database:
    """Reading and writing transactions on one database, SQLite or PostgreSQL (psycopg 3).

    With `read_only`, for a SQLite file on a disk that cannot be written to, writing is refused.

    Raises:
        ConfigError: the URL is malformed, or names another kind of database.
        MissingExtraError: the URL is PostgreSQL's, and the extra `postgres` is not installed.
    """

    def __init__(self, url: str | URL, *, read_only: bool = False) -> None:
        self.read_only = read_only
        self.engine = _read_only_engine(url) if read_only else _engine(url)
        self.url = self.engine.url
        # SQLite polls for its own lock; this lock wakes the next writer at once.
        self._writing = threading.Lock() if self.is_sqlite else nullcontext()

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is one SQLite file."""
        return self.url.get_backend_name() == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a reading transaction; raise `StorageError` if the database cannot be reached."""
        with _worded(self.url), Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Session]:
        """Open a writing transaction: on disk when the block has ended, undone if the block fails.

        Without `durable`, the transaction does not wait for the disk. A power cut may then undo the
        last writes, but a crash of the program does not. Leases and heartbeats can bear that.
        `StorageError` is raised if the database cannot be reached, is read-only, locked for long or
        full.
        """
        if self.read_only:
            raise StorageError(
                f"{self.url.database}: expected a folder that can be written to, got a read-only "
                "one. Copy the folder to another disk to change anything."
            )
        with _worded(self.url), self._writing:
            engine = self.engine.execution_options(writes=True, durable=durable)
            with Session(engine, expire_on_commit=False) as session, session.begin():
                if not durable and not self.is_sqlite:  # for SQLite, the connection does this
                    session.execute(_NOT_DURABLE)
                yield session

    def all(self, statement: Select[Value], **parameters: Any) -> list[Value]:
        """Return the first column of every current row, with these parameters of the statement."""
        with self.read() as session:
            return list(session.scalars(statement, parameters))

    def rows(self, statement: Select[*Columns], **parameters: Any) -> Sequence[Row[*Columns]]:
        """Return every row; for the parameters, see `all`."""
        with self.read() as session:
            return session.execute(statement, parameters).all()

    def first(self, statement: Select[Value], **parameters: Any) -> Value | None:
        """Return the first column of the first row, or None; for the parameters, see `all`."""
        with self.read() as session:
            return session.scalar(statement, parameters)

    def close(self) -> None:
        """Close all connections. A SQLite file is then complete without its log."""
        self.engine.dispose()


def rows_among(
    session: Session, statement: Select[*Columns], column: Any, values: Iterable[Any]
) -> Iterator[Row[*Columns]]:
    """Yield the rows in which a column has one of these values, however many values there are."""
    values = list(values)
    for start in range(0, len(values), MOST_PARAMETERS):
        some = values[start : start + MOST_PARAMETERS]
        yield from session.execute(statement.where(column.in_(some)))


def keep_private(file: Path) -> None:
    """Let only its owner read a SQLite file; make the file, without tables, if it is missing.

    SQLite gives its log the mode of the file. A file that belongs to somebody else does not change.
    Nothing opens an existing file here: closing it would end this process's locks on it, and
    another process would then remove the log that holds the answers. A new file has its write-ahead
    log from the start: if two programs switched it on at once, SQLite would refuse one of them
    without waiting. `StorageError` is raised if the file cannot be made.
    """
    with reading(file, expected="a file that can be written and read", error=StorageError):
        if not file.exists():
            drafts = writing(file, private=True, first=True)
            with drafts as draft, closing(sqlite3.connect(draft)) as database:
                database.execute("PRAGMA journal_mode = WAL")
        for path in (file, *(file.with_name(f"{file.name}-{log}") for log in ("wal", "shm"))):
            with suppress(PermissionError, FileNotFoundError):
                if path.stat().st_mode & 0o077:
                    path.chmod(0o600)


def _engine(location: str | URL) -> Engine:
    try:
        url = make_url(location)
        name = url.get_backend_name()
        if name in ("postgres", "postgresql"):  # hosting services hand out the short name
            require("psycopg", extra="postgres")
            url = url.set(drivername="postgresql+psycopg")
            return create_engine(url, pool_size=20, max_overflow=20, pool_pre_ping=True)
        if name != "sqlite" or url.database in (None, "", ":memory:"):
            raise ArgumentError("no file of SQLite")
        waiting = {"timeout": BUSY_SECONDS}
        engine = create_engine(url, pool_size=20, max_overflow=40, connect_args=waiting)
    # for example sqlite+something, or a wrong port
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError(
            "store: expected a folder, sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME, "
            f"got {without_password(str(location))!r}."
        ) from error
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _read_only_engine(url: str | URL) -> Engine:
    """Make an engine on a SQLite file where nothing can be written, not even a lock."""
    url = make_url(url)
    file = Path(str(url.database))
    log = file.with_name(f"{file.name}-wal")
    # Without a log, SQLite needs no other file. A log can only be read together with its index.
    option = "mode=ro" if log.is_file() and log.stat().st_size else "immutable=1"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            f"{file.resolve().as_uri()}?{option}", uri=True, check_same_thread=False
        )

    return create_engine(url, creator=connect)


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins transactions instead of the driver
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}").close()


def _begin_sqlite(connection: Any) -> None:
    options = connection.get_execution_options()
    writes = options.get("writes", False)
    if writes:
        level = "FULL" if options.get("durable", True) else "NORMAL"
        connection.exec_driver_sql(f"PRAGMA synchronous = {level}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _worded(url: URL) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise  # the error is about the written values, which callers know
    except SQLAlchemyError as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        _refuse_damage(f"{url.database}", reason)
        raise StorageError(
            f"store {without_password(str(url))}: expected a database that can be reached and "
            f"written to, got {reason}. Check that it runs, that its disk has room, and try "
            "again: nothing was lost."
        ) from error


def is_read_only(file: Path) -> bool:
    """Whether a SQLite file exists and cannot be changed, as in a mounted archive."""
    writable = os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    return file.is_file() and not writable


def require_whole(file: Path, clips: Path) -> None:
    """Raise `StorageError` for a damaged SQLite file, or one without tables beside a store's clips.

    The file may be missing if the store is new.
    """
    size = file.stat().st_size if file.is_file() else 0
    tables = 0
    damage = "ok"
    try:
        if size:
            uri = f"{file.resolve().as_uri()}?mode=rw"
            with closing(sqlite3.connect(uri, uri=True)) as database:
                tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if size <= MOST_CHECKED:
                    damage = database.execute("PRAGMA quick_check(1)").fetchone()[0]
                else:
                    LOGGER.info("%s is too large to be checked as it is opened.", file)
    except sqlite3.Error as error:
        _refuse_damage(f"{file}", error)
        return  # locked or out of reach; opening the file reports this
    if damage != "ok":
        _refuse_damage(f"{file}", damage)
    if not tables and clips.is_dir() and any(clips.iterdir()):
        raise StorageError(
            f"{file}: expected the labels of the clips in {clips}, got "
            f"{'a database without tables' if size else 'an empty file or none'}. Restore it from "
            "a back-up, or move the clips away to begin a new store."
        )


def _refuse_damage(name: str, damage: object) -> None:
    """Raise `StorageError` for damage; return if the file is only busy or out of reach."""
    primary = getattr(damage, "sqlite_errorcode", 0) & 0xFF
    if isinstance(damage, str) or primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        raise StorageError(
            f"{name}: expected a whole database, got a damaged one: {damage}. {RESTORE}"
        )
