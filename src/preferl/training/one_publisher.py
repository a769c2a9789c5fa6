"""At most one program publishes into a folder; the system lets go when that program dies."""

import errno
import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import IO, Any, Final, final

from preferl.errors import StorageError, mismatch

LOGGER = logging.getLogger(__name__)

NAME: Final = "publisher"
_TAKEN: Final = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


@final
class OnePublisher:
    """A lock on a folder, with a file that says who holds it.

    The lock is the operating system's, so that it ends with its process, however that ends, and
    holds across containers that share a disk. The file names the process and the boot of its
    machine; where a disk knows no locks, these decide.

    Args:
        folder: made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Become the publisher, also after one that was killed.

        Raises:
            StorageError: another program publishes here, or the folder cannot be written to.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("a+", encoding="utf-8")
        except OSError as error:
            raise StorageError(
                mismatch(f"{self._path}", expected="a file that can be written", got=error)
            ) from error
        file.seek(0)
        before = _parsed(file.read())
        if not _lock(file, before):
            file.close()
            raise StorageError(
                mismatch(
                    f"{self._path.parent}",
                    expected="to be its only publisher",
                    got=f"one at work already, {_named(before)}",
                    fix="Stop that one, or publish into another folder.",
                )
            )
        if before:
            LOGGER.warning("%s ended without a word; its place is taken.", _named(before))
        self._file = file
        self._say(json.dumps(_own()))

    def release(self) -> None:
        """Let others publish."""
        if self._file is not None:
            self._say("")
            self._file.close()  # which unlocks it
            self._file = None

    def _say(self, text: str) -> None:
        """Who holds the lock is for people to read; a full disk must not stop anybody."""
        if self._file is None:
            return
        try:
            self._file.truncate(0)
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            LOGGER.warning("%s does not say who publishes: %s", self._path, error)


def boot_id() -> str:
    """Tells one start of a machine from the next, where the system does; else is empty."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _own() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "boot": boot_id()}


def _parsed(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _named(said: dict[str, Any]) -> str:
    return f"process {said.get('pid', 'unknown')} on {said.get('host', 'an unknown machine')}"


def _lock(file: IO[str], before: dict[str, Any]) -> bool:
    """Whether the file is now locked by us; where locks are unknown, whether its holder is gone."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(1 << 20)  # beyond the text, which others may then read
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        return not _lives(before)
    return True


def _lives(said: dict[str, Any]) -> bool:
    """Whether a process may still run; one on another machine may."""
    if not said:
        return False
    if said.get("host") != socket.gethostname():
        return True
    if said.get("boot") != boot_id():
        return False
    try:
        os.kill(int(said["pid"]), 0)
    except (ProcessLookupError, KeyError, TypeError, ValueError):
        return False
    except OSError:
        return True
    return True
