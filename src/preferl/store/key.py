"""The secret that a store keeps in its folder: for its owner alone, and long enough or refused."""

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from preferl.errors import StorageError
from preferl.files import writing

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
    _require_private(file, mode)
    _require_long(file, key)
    return key


def _require_private(file: Path, mode: int) -> None:
    if os.name != "nt" and mode & OTHERS:  # Windows has no such modes
        raise StorageError.mismatch(
            f"{file}, the secret of this store",
            expected="a file that nobody but its owner may read",
            got=f"mode {mode:o}",
            fix=f"If nobody else has read it: chmod 600 {file}. Otherwise delete it to get a "
            "new one; everybody is signed out then, and the owner's link changes.",
        )


def _require_long(file: Path, key: bytes) -> None:
    """Refuse what a loss of power leaves, too: nothing, or zeros."""
    count = len(key.strip(b"\0 \t\r\n"))
    if count < SHORTEST:
        raise StorageError.mismatch(
            f"{file}, the secret of this store",
            expected=f"at least {SHORTEST} bytes",
            got=count,
            fix="Delete it to get a new one; everybody is signed out then, and the owner's "
            "link changes.",
        )
