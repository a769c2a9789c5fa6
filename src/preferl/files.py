"""Write files and folders that are either complete or absent."""

import ctypes
import errno
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from safetensors import SafetensorError

from preferl.errors import StorageError, in_words

_HERE: Final = -100  # Linux's `AT_FDCWD`: paths start in the current folder
_EXCHANGE: Final = 2  # Linux's `RENAME_EXCHANGE`, an option of `renameat2`
_DRAFT: Final = re.compile(r"\.(.+)\.[a-z0-9_]{8}")  # the folder in which `writing` makes a file


@contextmanager
def writing(
    path: Path, *, durable: bool = True, private: bool = False, first: bool = False
) -> Iterator[Path]:
    """Yield a temporary path, which replaces `path` when the block succeeds.

    The block creates a file or folder at the temporary path. If it fails, that path is removed and
    `path` is unchanged. Readers of `path` find either all of the old content or all of the new,
    even after a power cut.

    Args:
        path: the file or folder to write.
        durable: wait until the content is on disk. Otherwise a power cut may leave an empty file,
            so only pass false for files that are cheap to make again.
        private: only the owner can ever read the content.
        first: keep a file that exists already. If several programs write it at once, the first one
            wins.

    Raises:
        StorageError: the folder cannot be written to or is full, or `path` is a folder instead of a
            file or a file instead of a folder.
    """
    path = Path(path)
    try:
        make_folder(path.parent)
        holder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            draft = holder / path.name
            yield draft
            _set_modes(draft, private=private)
            if durable:
                sync_all(draft)
            if first:
                with suppress(FileExistsError):
                    os.link(draft, path)
            else:
                _replace(path, draft, holder / "old")
            if durable:
                sync(path.parent)
        finally:
            shutil.rmtree(holder, ignore_errors=True)
    except StorageError:
        raise
    except (OSError, SafetensorError) as error:  # safetensors has its own error for a full disk
        raise StorageError(
            f"{path}: expected a place that can be written to, got {in_words(error)}. Choose "
            "another path, change its permissions or free some space."
        ) from error


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a text file that is either complete or absent; for `durable`, see `writing`."""
    with writing(path, durable=durable) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    """Write a file of indented JSON that is either complete or absent; NaN is refused."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n", durable=durable)


def remove_drafts(folder: Path) -> None:
    """Remove the temporary files that killed writers left in a folder and below it.

    No other program may write there at the same time. If a writer was killed between two renames,
    the folder that it had moved away is put back.

    Raises:
        StorageError: a file or folder cannot be removed.
    """
    for holder in sorted(folder.rglob(".*.*")):
        name = _DRAFT.fullmatch(holder.name)
        if not (name and holder.is_dir()):
            continue
        if not {inside.name for inside in holder.iterdir()} <= {name[1], "old"}:
            continue
        path = holder.with_name(name[1])
        aside = holder / "old"
        try:
            if aside.exists() and not path.exists():
                aside.rename(path)
            shutil.rmtree(holder)
        except OSError as error:
            raise StorageError(
                f"{holder}: expected a draft that can be removed, got {in_words(error)}."
            ) from error


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, and wait until they are on disk.

    Raises:
        OSError: the folder that contains it cannot be written to, or a file of this name exists.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or the list of names in a folder, is on disk.

    Raises:
        OSError: the file or folder is missing, or the disk cannot be reached.
    """
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders, and writes their entries through
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(path: Path) -> None:
    """Wait until a file, or a folder with all its content, is on disk; for errors, see `sync`."""
    for inside in _all(path):
        sync(inside)


def _set_modes(draft: Path, *, private: bool) -> None:
    """Give files the usual permissions, since some libraries let only the owner read them."""
    mask = os.umask(0)
    os.umask(mask)
    for path in _all(draft):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~(0o077 if private else mask))


def _all(path: Path) -> list[Path]:
    """Return all that is in a folder and then the folder itself; for a file, only the file."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, NotADirectoryError):  # `path` may be a file
            raise error

    walk = os.walk(path, topdown=False, onerror=refuse)
    return [*(Path(top, name) for top, folders, names in walk for name in names + folders), path]


def _replace(path: Path, draft: Path, aside: Path) -> None:
    """Move `draft` to `path`; if that fails, put the earlier folder back."""
    if not (draft.is_dir() and path.is_dir()):
        try:
            draft.replace(path)
            return
        except OSError:
            # otherwise another program has made the folder
            if not (draft.is_dir() and path.is_dir()):
                raise
    if not exchange(draft, path):
        path.rename(aside)
        try:
            draft.replace(path)
        except OSError:
            aside.rename(path)
            raise


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return False if the system or disk cannot do that.

    Python has no function for this. With two renames, one path would be missing for a moment.
    """
    if sys.platform != "linux":
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(error, os.strerror(error), str(other))
