"""Locks of folders, so that one program at a time uses each; a lock ends with its program."""

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
"""How long, on a busy machine, a program that only looks at a lock may hold it, in seconds."""


@final
class FolderLock:
    """A lock on a folder, with a file `name` in it; `with` takes and releases the lock.

    The lock is the operating system's. It ends with its process, however that ends, and works
    across containers that share a disk. A forked child does not keep it. The locked file is hidden.
    The file beside it names the holder: process, machine, start time and command. Messages call the
    holder by its `role`. If the holder may be about to end, taking the lock waits up to `patience`
    seconds. A disk without locks is refused.
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
        """Take the lock, even after a holder that was killed.

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
        words = takewhile(str.isidentifier, sys.argv[1:3])  # options may hold passwords
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": " ".join([program, *words]).strip(),
        }
        try:
            self._named.write_text(json.dumps(holder), encoding="utf-8")
        except OSError as error:  # a full disk must not stop the program
            LOGGER.warning("%s does not name its %s: %s", self._named, self._role, error)

    def release(self) -> None:
        """Release the lock and remove its files."""
        # not held, for example in a forked child
        if self._lock is None or not self._lock.is_locked:
            return
        try:
            self._named.unlink(missing_ok=True)
            if os.name != "nt":  # while it is held, so that no other program's lock is removed
                self._locked.unlink(missing_ok=True)
        except OSError as error:  # an error here must not hide what has happened
            LOGGER.warning("%s stays, though nobody holds it: %s", self._named, error)
        with suppress(OSError):
            self._lock.release()

    def move(self, folder: Path) -> None:
        """Rename the held folder, and keep the lock under its new name."""
        if os.name == "nt":  # Windows cannot rename a folder with an open file
            self.release()
        self._folder = self._folder.rename(folder)

    def holder(self) -> dict[str, Any] | None:
        """Return what the folder's holder wrote about itself, or None; change nothing."""
        from filelock import lock_descriptor

        for mode in ("r+b", "rb"):  # a lock may need write access, which not every user has
            with suppress(OSError), self._locked.open(mode) as file:
                began = time.monotonic()
                while not lock_descriptor(file.fileno(), blocking=False):
                    if time.monotonic() - began > self._patience:
                        return self.left()
                    time.sleep(_PAUSE)  # another program may only be looking
                return None
        return None  # never held; `take` reports other faults

    def require_free(self) -> None:
        """Raise `StorageError` if a program holds the folder; change nothing in it."""
        holder = self.holder()
        if holder is not None:
            raise self._taken(holder)

    def left(self) -> dict[str, Any]:
        """Return what a holder wrote that did not release the folder; empty if there is none."""
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
        """Return the lock, after other programs have released it."""
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
            # A program that only looks writes no name into the file.
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
    """Return an id that changes with each start of the machine; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def named(holder: Mapping[str, Any]) -> str:
    """Return the holder in words: process, machine, command and start time."""
    words = f"process {holder.get('pid', 'unknown')} on {holder.get('host', 'an unknown machine')}"
    command = holder.get("command")
    since = holder.get("since")
    return words + (f" (`{command}`)" if command else "") + (f" since {since}" if since else "")
