"""Numbered folders, each complete or absent: published rewards, checkpoints, pending answers.

A program writes the next version under a temporary name and renames it in one step (see
`preferl.files.writing`). A file in each version lists the other files with their digests, which
show whether the folder is complete.
"""

import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from preferl.errors import StorageError
from preferl.printing import get_logger
from preferl.reading import inside
from preferl.remote import Location, SyncedFolder

LOGGER = get_logger(__name__)
VERSION: Final = re.compile(r"\d{5,}")
_DRAFT: Final = re.compile(r"\.\d{5,}\..+")  # left by a killed writer, or about to be removed


def versions(folder: Location | SyncedFolder) -> list[int]:
    """Return the numbers of the versions in a folder, readable or not, in rising order.

    A missing folder has no versions.

    Raises:
        StorageError: the folder cannot be read.
    """
    return sorted(int(name) for name in names_in(folder) if VERSION.fullmatch(name))


def version_name(number: int) -> str:
    """The name of a version in its folder."""
    return f"{number:05d}"


def version_folder(folder: Path | str, number: int) -> Path:
    """The folder of a version."""
    return Path(folder) / version_name(number)


def names_in(folder: Location | SyncedFolder) -> list[str]:
    """Return the names of everything in a folder; none if the folder is missing.

    Raises:
        StorageError: the folder cannot be read.
    """
    return SyncedFolder.at(folder).names()


def is_left(name: str) -> bool:
    """Whether a name in a folder of versions is that of a draft."""
    return _DRAFT.fullmatch(name) is not None


def digests(path: Path) -> dict[str, str]:
    """Return the digest of each file in a version's folder and its subfolders."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): _digest(file) for file in files}


def require_whole(path: Path, files: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless a version's files have the listed digests."""
    for name, digest in files.items():
        if _digest(inside(path, name)) != digest:
            raise ValueError(f"another {name} than was written")


def remove_versions(folder: Location | SyncedFolder, numbers: Iterable[int] = ()) -> None:
    """Remove versions, each in one step, and the drafts of writers that were killed.

    Only the folder's one writer may call it. A version that cannot be removed stays for now, with a
    warning.
    """
    folder = SyncedFolder.at(folder)
    for number in numbers:
        try:
            folder.remove(version_name(number))
        except StorageError as error:
            LOGGER.warning("The earlier version %d stays for now: %s", number, error)
    if folder.url is not None:  # other programs may be fetching into a copy
        return
    try:
        for name in filter(is_left, names_in(folder)):
            shutil.rmtree(folder.path / name, ignore_errors=True)
    except StorageError as error:  # the next call removes them
        LOGGER.warning("What was removed or left in %s stays for now: %s", folder, error)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
