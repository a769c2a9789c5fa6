"""At most one program uses a folder; the system lets go of the lock when that program dies."""

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, final

from preferl.errors import StorageError
from preferl.printing import get_logger
from preferl.reading import parse_json, reading

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOGGER = get_logger(__name__)

_PAUSE: Final = 0.02
"""Seconds between two tries."""

_LOOKING: Final = 10.0
"""Seconds within which even a busy machine lets go of a lock that somebody only looks at."""


@final
class FolderLock:
    """A lock on a folder, by a file of this name in it; `with` takes and releases it.

    The lock is the operating system's, so that it ends with its process, however that ends, and
    holds across containers that share a disk. A forked child does not keep it. It is on a hidden
    file beside the one that names the holder: process, machine, when it began and its command.
    Messages call the holder by its `role`. Taking it waits for so many seconds of `patience` for
    another program, which may be about to end. A disk that knows no locks is refused.
    """

    def __init__(self, folder: Path, name: str, role: str, *, patience: float = 0.1) -> None:
        self._folder = Path(folder)
        self._name = name
        self._role = role
        self._patience = patience
        self._lock: BaseFileLock | None = None

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> None:
        """Become the holder, also after one that was killed.

        Raises:
            StorageError: another program holds the folder, or it cannot be written to or locked.
        """
        expected = "a file that can be written and locked"
        with reading(self._locked, expected=expected, error=StorageError):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._acquired()
        before = self.left()
        if before:
            message = "%s ended without releasing its lock, which is taken over."
            LOGGER.warning(message, named(before))
        program = Path(next(iter(sys.argv), "")).name
        words = takewhile(str.isidentifier, sys.argv[1:3])  # no options, which may hold passwords
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": " ".join([program, *words]).strip(),
        }
        try:
            self._named.write_text(json.dumps(holder), encoding="utf-8")
        except OSError as error:  # a full disk must not stop anybody
            LOGGER.warning("%s does not name its %s: %s", self._named, self._role, error)

    def release(self) -> None:
        """Let others in; the files go."""
        if self._lock is None or not self._lock.is_locked:  # as in a forked child
            return
        try:
            self._named.unlink(missing_ok=True)
            if os.name != "nt":  # while it is held, so that nobody's lock is removed
                self._locked.unlink(missing_ok=True)
        except OSError as error:  # a disk that has become read-only must not hide what happened
            LOGGER.warning("%s stays, though nobody holds it: %s", self._named, error)
        with suppress(OSError):
            self._lock.release()

    def move(self, folder: Path) -> None:
        """Rename the folder that is held, and go on with it under its new name."""
        if os.name == "nt":  # which renames no folder with an open file
            self.release()
        self._folder = self._folder.rename(folder)

    def holder(self) -> dict[str, Any] | None:
        """What the program wrote that holds the folder; None if nobody does. Nothing changes."""
        from filelock import lock_descriptor

        for mode in ("r+b", "rb"):  # a lock may need the right to write, which not everybody has
            with suppress(OSError), self._locked.open(mode) as file:
                began = time.monotonic()
                while not lock_descriptor(file.fileno(), blocking=False):
                    if time.monotonic() - began > self._patience:
                        return self.left()
                    time.sleep(_PAUSE)  # for somebody else who only looks
                return None
        return None  # nobody has ever held it, or `take` reports what is wrong with it

    def require_free(self) -> None:
        """Raise `StorageError` if somebody holds the folder; nothing in it changes."""
        holder = self.holder()
        if holder is not None:
            raise self._taken(holder)

    def left(self) -> dict[str, Any]:
        """What a program wrote that has not released the folder; empty without one."""
        with suppress(OSError, ValueError):
            holder = parse_json(self._named.read_text(encoding="utf-8"))
            if isinstance(holder, dict):
                return holder
        return {}

    @property
    def _named(self) -> Path:
        """The file that names the holder."""
        return self._folder / self._name

    @property
    def _locked(self) -> Path:
        """The file that is locked."""
        return self._folder / f".{self._name}"

    def _acquired(self) -> "BaseFileLock":
        """The lock, once another program has let go of it."""
        from filelock import FileLock, Timeout

        lock = FileLock(self._locked, thread_local=False, fallback_to_soft=False)
        began = time.monotonic()
        waited_for = dict[str, Any]()
        while True:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                holder = self.left()
            else:
                return lock
            # Who only looks has no name in it.
            patience = self._patience if holder else max(self._patience, _LOOKING)
            if time.monotonic() - began > patience:
                raise self._taken(holder)
            if holder and holder != waited_for and self._patience > 1.0:
                waited_for = holder
                words = "Waits up to %g s for %s to end, which uses %s."
                LOGGER.warning(words, self._patience, named(holder), self._folder)
            time.sleep(_PAUSE)

    def _taken(self, holder: Mapping[str, Any]) -> StorageError:
        return StorageError(
            f"{self._folder}: expected to be its only {self._role}, got one at work already, "
            f"{named(holder)}. Wait for that one or stop it, or use another folder."
        )


def boot_id() -> str:
    """Tells one start of a machine from the next, where the system does; else is empty."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def named(holder: Mapping[str, Any]) -> str:
    """A holder in words: process, machine, command and since when."""
    words = f"process {holder.get('pid', 'unknown')} on {holder.get('host', 'an unknown machine')}"
    command = holder.get("command")
    since = holder.get("since")
    return words + (f" (`{command}`)" if command else "") + (f" since {since}" if since else "")
