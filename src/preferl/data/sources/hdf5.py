"""HDF5 files read with errors that name the file and the array (h5py, imported late).

An HDF5 file may point to others on the machine, declare arrays that it does not hold, and ask for
a library to decompress them. Before anything is read, all of it is looked at, and such is refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from preferl._optional import require
from preferl.bounds import Expansion
from preferl.data.sources.hdf5_checks import check_hdf5
from preferl.errors import DataError, PreferlError
from preferl.shapes import Array

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""The bytes that an HDF5 file begins with."""


@contextmanager
def open_hdf5(path: str | Path) -> Iterator[Any]:
    """The open file, an `h5py.File` for reading, which points to no other and is as large as it is.

    Raises:
        DataError: no such file, cut off, not HDF5, pointing to other files, far larger in memory
            than on disk, or found damaged while the block reads.
        MissingExtraError: h5py is not installed.
    """
    h5py = require("h5py", extra="d4rl")
    try:
        with h5py.File(path, "r") as file:
            check_hdf5(file, str(path), Expansion.of(Path(path)))
            yield file
    except PreferlError:
        raise
    except Exception as error:  # a damaged file fails in whichever way its bytes suggest
        raise DataError.mismatch(
            f"{path}",
            expected="a whole HDF5 file",
            got=f"{type(error).__name__}: {error}",
            fix="Check the path, and that the file was downloaded whole.",
        ) from error


def read_array(group: Any, key: str, name: str) -> Array:
    """The numbers of one array, with an axis of steps first.

    Args:
        group: an `h5py.File` or group.
        key: of the array, with `/` between nested groups.
        name: how errors call the group.

    Raises:
        DataError: no such array, damaged content, no numbers, or NaN and infinity among them.
    """
    held = group.get(key)
    if not isinstance(held, require("h5py", extra="d4rl").Dataset):
        raise DataError.mismatch(
            name, expected=f"an array {key!r}", got=f"only {', '.join(sorted(group))}"
        )
    if held.dtype.kind not in "biuf" or not held.shape:
        raise DataError.mismatch(
            f"{name}, {key}",
            expected="numbers with an axis of steps",
            got=f"{held.dtype} of shape {held.shape}",
        )
    try:
        array = np.asarray(held[()])
    except OSError as error:  # the array is damaged, not the file
        raise DataError.mismatch(f"{name}, {key}", expected="a whole array", got=error) from error
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0, 0])
        raise DataError.mismatch(
            f"{name}, {key}", expected="finite numbers", got=f"NaN or infinity, first in row {row}"
        )
    return array


def members(file: Any, group: str) -> list[str]:
    """Names in a group, in lexicographic order; none if it is not there or is an array."""
    held = file.get(group)
    return sorted(held) if isinstance(held, require("h5py", extra="d4rl").Group) else []


def require_rows(arrays: dict[str, Array], name: str) -> int:
    """The rows that all arrays have.

    Raises:
        DataError: arrays of different lengths.
    """
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError.mismatch(name, expected="arrays of one length", got=lengths)
    return next(iter(lengths.values()))
