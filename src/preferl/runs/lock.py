"""At most one program uses a folder; the system lets go of the lock when that program dies."""

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, Final, Self, final
from weakref import WeakSet

from preferl.errors import StorageError
from preferl.printing import get_logger
from preferl.reading import parse_json, reading

LOGGER = get_logger(__name__)

_TAKEN: Final = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_PAUSE: Final = 0.02
"""Seconds between two tries."""

_LOOKING: Final = 10.0
"""Seconds within which even a busy machine lets go of a lock that somebody only looks at."""

_OPEN: WeakSet[IO[str]] = WeakSet()
"""Locked files, of which forked children close their copies."""


@final
class FolderLock:
    """A lock on a folder, with a file of this name in it; `with` takes and releases it.

    The lock is the operating system's, so that it ends with its process, however that ends, and
    holds across containers that share a disk. A forked child does not keep it. The file names the
    process, the boot of its machine, when it began and its command; where a disk knows no locks,
    these decide. Messages call the holder by its `role`. Taking it waits for so many seconds of
    `patience` for another program, which may be about to end.
    """

    def __init__(self, folder: Path, name: str, role: str, *, patience: float = 0.1) -> None:
        self._path = Path(folder) / name
        self._role = role
        self._patience = patience
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> None:
        """Become the holder, also after one that was killed.

        Raises:
            StorageError: another program holds the folder, or it cannot be written to.
        """
        file = self._opened()
        before = _parsed(file.read())
        if before:
            message = "%s ended without releasing its lock, which is taken over."
            LOGGER.warning(message, named(before))
        self._file = file
        _OPEN.add(file)
        _close_in_children()
        program = Path(next(iter(sys.argv), "")).name
        words = takewhile(str.isidentifier, sys.argv[1:3])  # no options, which may hold passwords
        command = " ".join([program, *words]).strip()
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "boot": boot_id()}
        self._write(file, json.dumps(holder | {"since": since, "command": command}))

    def release(self) -> None:
        """Let others in; the file goes."""
        if self._file is None or self._file.closed:  # as in a forked child
            return
        self._write(self._file, "")
        try:
            if os.name != "nt":  # while it is held, so that nobody's lock is removed
                self._path.unlink(missing_ok=True)
        except OSError as error:  # a disk that has become read-only must not hide what happened
            LOGGER.warning("%s stays, though nobody holds it: %s", self._path, error)
        with suppress(OSError):  # of what could not be written to it
            self._file.close()  # which unlocks it

    def move(self, folder: Path) -> None:
        """Rename the folder that is held, and go on with it under its new name."""
        if os.name == "nt":  # which renames no folder with an open file
            self.release()
        self._path = self._path.parent.rename(folder) / self._path.name

    def holder(self) -> dict[str, Any] | None:
        """What the program wrote that holds the folder; None if nobody does. Nothing changes."""
        for mode in ("r+", "r"):  # a lock may need the right to write, which not everybody has
            with suppress(OSError, ValueError), self._path.open(mode, encoding="utf-8") as file:
                before = _parsed(file.read())
                return None if _lock(file, before, look=True) else before
        return None  # nobody has ever held it, or `take` reports what is wrong with it

    def require_free(self) -> None:
        """Raise `StorageError` if somebody holds the folder; nothing in it changes."""
        before = self.holder()
        if before is not None:
            raise self._taken(before)

    def left(self) -> dict[str, Any]:
        """What a program wrote that ended without releasing the folder; empty without one."""
        with suppress(OSError, ValueError):
            return _parsed(self._path.read_text(encoding="utf-8"))
        return {}

    def _opened(self) -> IO[str]:
        """The file, locked, read from its beginning, and still the one in the folder."""
        began = time.monotonic()
        waited_for = dict[str, Any]()
        while True:
            with reading(self._path, expected="a file that can be written", error=StorageError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                file = self._path.open("a+", encoding="utf-8")
            file.seek(0)
            before = _parsed(file.read())
            if _lock(file, before) and self._is_there(file):
                file.seek(0)
                return file
            file.close()
            # Who only looks has no name in it.
            patience = self._patience if before else max(self._patience, _LOOKING)
            if time.monotonic() - began > patience:
                raise self._taken(before)
            if before and before != waited_for and self._patience > 1.0:
                waited_for = before
                words = "Waits up to %g s for %s to end, which uses %s."
                LOGGER.warning(words, self._patience, named(before), self._path.parent)
            time.sleep(_PAUSE)

    def _is_there(self, file: IO[str]) -> bool:
        """Whether the path still names this file: its last holder may just have removed it."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except OSError:
            return False

    def _taken(self, before: dict[str, Any]) -> StorageError:
        expected = f"to be its only {self._role}"
        got = f"one at work already, {named(before)}"
        fix = "Wait for that one or stop it, or use another folder."
        return StorageError.mismatch(f"{self._path.parent}", expected=expected, got=got, fix=fix)

    def _write(self, file: IO[str], text: str) -> None:
        """Name the holder for people to read; a full disk must not stop anybody."""
        try:
            file.truncate(0)
            file.write(text)
            file.flush()
        except OSError as error:
            LOGGER.warning("%s does not name its %s: %s", self._path, self._role, error)


def boot_id() -> str:
    """Tells one start of a machine from the next, where the system does; else is empty."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _close_all() -> None:
    for file in list(_OPEN):
        file.close()


@cache
def _close_in_children() -> None:
    """See that children forked from now on keep no locks; those of `exec` have none anyway."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_close_all)


def _parsed(text: str) -> dict[str, Any]:
    with suppress(ValueError):
        if isinstance(holder := parse_json(text), dict):
            return holder
    return {}


def named(holder: Mapping[str, Any]) -> str:
    """A holder in words: process, machine, command and since when."""
    words = f"process {holder.get('pid', 'unknown')} on {holder.get('host', 'an unknown machine')}"
    command = holder.get("command")
    since = holder.get("since")
    return words + (f" (`{command}`)" if command else "") + (f" since {since}" if since else "")


def _lock(file: IO[str], before: dict[str, Any], *, look: bool = False) -> bool:
    """Lock the file; returns whether it is ours, or, where locks are unknown, its holder gone.

    Several programs may `look` at once where the system can tell that from holding it.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(1 << 20)  # beyond the text, which others may then read
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, (fcntl.LOCK_SH if look else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _TAKEN and not _may_run(before)
    return True


def _may_run(holder: dict[str, Any]) -> bool:
    """Whether a process may still run; one on another machine may."""
    if not holder or holder.get("host") != socket.gethostname():
        return bool(holder)
    if holder.get("boot") != boot_id():
        return False
    try:
        os.kill(int(holder["pid"]), 0)
    except (ProcessLookupError, KeyError, TypeError, ValueError):
        return False
    except OSError:
        return True
    return True
