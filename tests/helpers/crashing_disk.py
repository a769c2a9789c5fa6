"""Disks that lose their power: the operations of a program, and all states they may leave.

The model is that of file systems with a journal (ext4, xfs, btrfs, APFS), and otherwise the worst
that they allow:

- Names (making, renaming, exchanging and removing) reach the disk in their order, but any number of
  the last ones may be lost. `fsync` of a folder makes those before it last.
- What was written into a file reaches the disk whenever it likes, also long after the file's name:
  until `fsync` of the file it may be all there, cut in half, zeros, or nothing at all.

Like SQLite's crash tests, but on recorded operations instead of a simulated disk.
"""

import os
import shutil
import stat
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from preferl import files

LOSSES = {
    "all there": lambda now, synced: now,
    "as it was": lambda now, synced: synced or b"",
    "nothing": lambda now, synced: b"",
    "half": lambda now, synced: now[: len(now) // 2],
    "zeros": lambda now, synced: bytes(len(now)),
}


@dataclass
class Disk:
    """Folders and files by name; files by number, as their names may change."""

    names: dict[str, int | None] = field(default_factory=dict)  # None is a folder
    now: dict[int, bytes] = field(default_factory=dict)
    synced: dict[int, bytes] = field(default_factory=dict)


@dataclass
class Recorder:
    """What a program does to the files below `root`, in order."""

    root: Path
    operations: list[tuple] = field(default_factory=list)
    _seen: Disk = field(default_factory=Disk)
    _busy: bool = False

    def acknowledge(self, what):
        """The program has learned that `what` is on the disk."""
        self._look()
        self.operations.append(("known", what))

    @contextmanager
    def recording(self, patch):
        """Follow the program for the block."""
        self._look()
        with patch.context() as inner:
            for name in ("mkdir", "rename", "replace", "unlink", "rmdir"):
                inner.setattr(os, name, self._before(getattr(os, name)))
            inner.setattr(os, "fsync", self._sync(os.fsync))
            inner.setattr(shutil, "rmtree", self._rmtree(shutil.rmtree))
            inner.setattr(files, "exchange", self._exchange(files.exchange))
            yield self
        self._look()

    def states(self):
        """Every disk that a loss of power may leave, and what was known to be on it."""
        disk = Disk()
        lasting = 0
        known = 0
        names = [dict(disk.names)]  # after each operation on them
        for at, operation in enumerate([*self.operations, ("known", None)]):
            for loss, lose in LOSSES.items():
                left = {
                    number: lose(now, synced) if now != (synced := disk.synced.get(number)) else now
                    for number, now in disk.now.items()
                }
                for kept in range(lasting, len(names)):
                    state = f"before {at}, {kept} of {len(names) - 1} names, {loss}"
                    yield state, Disk(names[kept], left), known
                if disk.now == disk.synced:
                    break  # the disk holds all of it
            kind, *what = operation
            if kind == "write":
                disk.now[what[0]] = what[1]
            elif kind == "sync" and isinstance(what[0], int):
                disk.synced[what[0]] = disk.now[what[0]]
            elif kind == "sync":
                lasting = len(names) - 1
            elif kind == "known":
                known = known if what[0] is None else what[0]
            else:
                _apply(disk, operation)
                names.append(dict(disk.names))

    def _look(self):
        """Note files and folders that are new or have changed since the last look."""
        for folder, folders, names in os.walk(self.root):
            for name in folders:
                place = self._name(Path(folder, name))
                if place not in self._seen.names:
                    self._note("make", place, None)
            for name in names:
                path = Path(folder, name)
                number = path.stat().st_ino
                content = path.read_bytes()
                if self._seen.now.get(number) != content:
                    self._seen.now[number] = content
                    self.operations.append(("write", number, content))
                if self._seen.names.get(self._name(path), -1) != number:
                    self._note("make", self._name(path), number)

    def _note(self, *operation):
        self.operations.append(operation)
        _apply(self._seen, operation)

    def _name(self, path):
        return os.path.relpath(path, self.root)

    def _inside(self, path):
        return not self._name(path).startswith("..")

    def _before(self, call):
        def followed(path, *more, **options):
            if self._busy or options.get("dir_fd") is not None or not self._inside(path):
                return call(path, *more, **options)
            self._look()
            result = call(path, *more, **options)
            match call.__name__:
                case "mkdir":
                    self._note("make", self._name(path), None)
                case "rename" | "replace":
                    self._note("rename", self._name(path), self._name(more[0]))
                case _:
                    self._note("remove", self._name(path))
            return result

        return followed

    def _rmtree(self, call):
        def followed(path, *more, **options):
            self._look()
            for folder, folders, names in os.walk(path, topdown=False):
                for name in [*names, *folders]:
                    self._note("remove", self._name(Path(folder, name)))
            if Path(path).is_dir():
                self._note("remove", self._name(path))
            self._busy = True
            call(path, *more, **options)
            self._busy = False

        return followed

    def _exchange(self, call):
        def followed(one, other):
            self._look()
            if not call(one, other):
                return False
            self._note("exchange", self._name(one), self._name(other))
            return True

        return followed

    def _sync(self, call):
        def followed(handle):
            self._look()
            call(handle)
            about = os.fstat(handle)
            folder = stat.S_ISDIR(about.st_mode)
            self.operations.append(("sync", "folder" if folder else about.st_ino))

        return followed


def _apply(disk, operation):
    match operation:
        case ("make", name, number):
            disk.names[name] = number
        case ("remove", name):
            disk.names.pop(name, None)
        case ("rename", old, new):
            for name in [name for name in disk.names if _is_in(name, new)]:
                del disk.names[name]
            for name in [name for name in disk.names if _is_in(name, old)]:
                disk.names[new + name[len(old) :]] = disk.names.pop(name)
        case ("exchange", one, other):
            _apply(disk, ("rename", one, "\0"))
            _apply(disk, ("rename", other, one))
            _apply(disk, ("rename", "\0", other))


def _is_in(name, folder):
    return name == folder or name.startswith(folder + os.sep)


def lay_out(disk, folder):
    """Write a disk down, as a program would find it after the power is back."""
    folder.mkdir()
    for name, number in sorted(disk.names.items()):
        path = folder / name
        if number is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(disk.now.get(number, b""))


def after_every_loss(recorder, folder, read, last):
    """Read each state that a loss of power may leave; how many there were.

    States that differ in hidden drafts alone are read once: readers pass over these.

    Args:
        recorder: of the program.
        folder: empty, for the states.
        read: the content's number, 0 where there is none; raises where it finds a half.
        last: number of the newest content.
    """
    seen = set()
    count = 0
    for count, (state, disk, known) in enumerate(recorder.states(), start=1):  # noqa: B007
        content = {
            name: None if number is None else disk.now.get(number)
            for name, number in disk.names.items()
            if not name.startswith(".") and f"{os.sep}." not in name
        }
        key = (known, *sorted(content.items()))
        if key in seen:
            continue
        seen.add(key)
        place = folder / str(len(seen))
        lay_out(disk, place)
        try:
            found = read(place)
        except Exception as error:
            raise AssertionError(f"{state}: {error}") from error
        assert known <= found <= last, f"{state}: {known} was known to be there, {found} is"
        shutil.rmtree(place)
    return count
