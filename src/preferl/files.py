"""Files and folders that are either whole or not there."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from preferl.errors import StorageError, mismatch


@contextmanager
def writing(
    path: Path, *, durable: bool = False, private: bool = False, first: bool = False
) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well.

    The block creates a file or folder there. If it fails, nothing of it remains and what was at
    `path` is untouched.

    Args:
        path: what to write.
        durable: also wait until the disk holds it, so that what refers to it never outlives it.
        private: nobody but the owner may read it, at any moment.
        first: of several programs that write this file at once the first wins, and what the
            others wrote is dropped; so is this where there is a file already.

    Raises:
        StorageError: the folder cannot be written to, is full, or `path` is a folder where a
            file should come or the other way round.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        holder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            draft = holder / path.name
            yield draft
            _set_modes(draft, 0o077 if private else _mask())
            if durable:
                _to_disk(draft)
            if first:
                _link(path, draft)
            else:
                _replace(path, draft, holder / "old")
            if durable:
                _sync(path.parent)
        finally:
            shutil.rmtree(holder, ignore_errors=True)
    except StorageError:
        raise
    except (OSError, SafetensorError) as error:  # safetensors raises its own where a disk is full
        raise StorageError(
            mismatch(
                f"{path}",
                expected="a place that can be written to",
                got=error,
                fix="Choose another path, change its permissions or free some space.",
            )
        ) from error


def _mask() -> int:
    """What new files here do not permit; some libraries write for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _set_modes(draft: Path, mask: int) -> None:
    for path in [draft, *draft.rglob("*")] if draft.is_dir() else [draft]:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def _to_disk(draft: Path) -> None:
    for path in [*draft.rglob("*"), draft] if draft.is_dir() else [draft]:
        _sync(path)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders, and writes their entries through
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _link(path: Path, draft: Path) -> None:
    with suppress(FileExistsError):
        os.link(draft, path)


def _replace(path: Path, draft: Path, aside: Path) -> None:
    """Put `draft` at `path`; a folder that was there is back if that fails."""
    if not (draft.is_dir() and path.is_dir()):
        draft.replace(path)
        return
    path.rename(aside)
    try:
        draft.replace(path)
    except OSError:
        aside.rename(path)
        raise


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a text file so that it is either whole or not there; `durable` as for `writing`."""
    with writing(path, durable=durable) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object, *, durable: bool = False) -> None:
    """Write indented JSON so that it is either whole or not there; NaN is refused."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n", durable=durable)
