"""Whether a SQLite file is the one that a store was left with: whole, and with its tables."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from preferl.errors import StorageError

LOGGER = logging.getLogger(__name__)

MOST_CHECKED: Final = 2**30
"""Bytes up to which a file is looked through as it is opened, at 5 ms of processor time a
megabyte: 0.2 s with 100,000 answers. Damage to a larger one is found where it is read."""

RESTORE: Final = (
    "Restore it from a back-up, or save what can be read: sqlite3 labels.db .recover | "
    "sqlite3 rescued.db"
)

_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def require_whole(file: Path, clips: Path) -> None:
    """Refuse a SQLite file that is damaged, or that lost its tables beside the clips of a store.

    Args:
        file: the database, which need not be there where the store is new.
        clips: the folder of clips that labels would be about.

    Raises:
        StorageError: a damaged file, or none where there are clips already.
    """
    if not file.is_file() or not file.stat().st_size:
        if clips.is_dir() and any(clips.iterdir()):
            raise StorageError.mismatch(
                f"{file}",
                expected=f"the labels of the clips in {clips}",
                got="an empty file" if file.is_file() else "no file",
                fix="Restore it from a back-up, or move the clips away to begin a new store.",
            )
        return
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=rw", uri=True)) as database:
            tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables and clips.is_dir() and any(clips.iterdir()):
                raise StorageError.mismatch(
                    f"{file}",
                    expected=f"the labels of the clips in {clips}",
                    got="a database without tables",
                    fix="Restore it from a back-up, or move the clips away.",
                )
            if file.stat().st_size > MOST_CHECKED:
                LOGGER.info("%s is too large to be looked through as it is opened.", file)
                return
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        if is_damaged(error):
            raise damaged(f"{file}", error) from error
        return  # locked or out of reach, which opening it will find as well
    if found != "ok":
        raise damaged(f"{file}", found)


def is_damaged(error: BaseException | None) -> bool:
    """Whether SQLite says that the file is damaged, not that it is busy or out of reach."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def damaged(name: str, got: object) -> StorageError:
    """An error that calls a database damaged."""
    return StorageError.mismatch(
        name, expected="a whole database", got=f"a damaged one: {got}", fix=RESTORE
    )
