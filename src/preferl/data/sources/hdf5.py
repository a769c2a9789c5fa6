"""HDF5 files read with errors that name the file and the array (h5py, imported late)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from preferl._optional import require
from preferl.errors import DataError, mismatch
from preferl.shapes import Array

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""The bytes that an HDF5 file begins with."""


@contextmanager
def open_hdf5(path: str | Path) -> Iterator[Any]:
    """The open file, an `h5py.File` for reading.

    Raises:
        DataError: no such file, cut off, or not HDF5.
        MissingExtraError: h5py is not installed.
    """
    h5py = require("h5py", extra="d4rl")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(
            mismatch(
                f"{path}",
                expected="a whole HDF5 file",
                got=error,
                fix="Check the path, and that the file was downloaded whole.",
            )
        ) from error
    with file:
        yield file


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
    if held is None or not hasattr(held, "shape"):  # a group has none
        raise DataError(
            mismatch(name, expected=f"an array {key!r}", got=f"only {', '.join(sorted(group))}")
        )
    try:
        array = np.asarray(held[()])
    except OSError as error:
        raise DataError(mismatch(f"{name}, {key}", expected="a whole array", got=error)) from error
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise DataError(
            mismatch(
                f"{name}, {key}",
                expected="numbers with an axis of steps",
                got=f"{array.dtype} of shape {array.shape}",
            )
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0, 0])
        raise DataError(
            mismatch(
                f"{name}, {key}",
                expected="finite numbers",
                got=f"NaN or infinity, first in row {row}",
            )
        )
    return array


def require_rows(arrays: dict[str, Array], name: str) -> int:
    """The rows that all arrays have.

    Raises:
        DataError: arrays of different lengths.
    """
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(mismatch(name, expected="arrays of one length", got=lengths))
    return next(iter(lengths.values()))
