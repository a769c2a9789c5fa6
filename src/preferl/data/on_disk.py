"""Pictures that stay in their files until a minibatch is gathered from them."""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, cast, final

import numpy as np

from preferl.errors import DataError
from preferl.shapes import Array, BoolArray, IntArray

PICTURE_BYTES: Final = 1024
"""Pictures stay on disk if a row has at least this many bytes; others are read into memory."""


@final
@dataclass(frozen=True, eq=False)
class OnDisk:
    """Rows of several array files as one array, in any order. They are read when they are used.

    It has the `shape`, `dtype` and rows of an array. `numpy.asarray` reads all of it into memory.
    No file stays open, so there may be thousands of files.

    Attributes:
        sources: files, or arrays in memory; row `t` is `sources[part[t]][row[t]]`.
        part: `[T]` number of the source that holds each row.
        row: `[T]` number of each row within its source.
        row_shape: shape of each row.
        dtype: type of the numbers, the same in all sources.

    Raises:
        DataError: a file is gone or was replaced. This is found when rows are read.
    """

    sources: tuple[Any, ...]
    part: IntArray
    row: IntArray
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, arrays: "Sequence[Array | OnDisk]") -> Self:
        """Join arrays of equal row shape end to end; memory maps of files stay on disk."""
        sources: list[Any] = []
        parts: list[IntArray] = []
        rows: list[IntArray] = []
        for array in arrays:
            if isinstance(array, OnDisk):
                parts.append(array.part + len(sources))
                rows.append(array.row)
                sources += array.sources
            else:
                parts.append(np.full(len(array), len(sources)))
                rows.append(np.arange(len(array)))
                sources.append(_source(array))
        row_shape = tuple(arrays[0].shape[1:])
        dtype = arrays[0].dtype
        return cls(tuple(sources), np.concatenate(parts), np.concatenate(rows), row_shape, dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows, then the shape of a row."""
        return (len(self.row), *self.row_shape)

    @property
    def ndim(self) -> int:
        """The number of axes, including the axis of rows."""
        return len(self.shape)

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, rows: int | slice | IntArray | BoolArray) -> Array:
        """Read rows into memory: row numbers `[...]` give `[..., *row]`."""
        numbers = np.arange(len(self))[rows]
        part = self.part[numbers].ravel()
        row = self.row[numbers].ravel()
        out = np.empty((len(part), *self.row_shape), self.dtype)
        order = np.argsort(part, kind="stable")
        used_sources, first_rows = np.unique(part[order], return_index=True)
        for source, row_numbers in zip(used_sources, np.split(order, first_rows)[1:], strict=True):
            out[row_numbers] = self.sources[source][row[row_numbers]]
        return out.reshape(*np.shape(numbers), *self.row_shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Read all rows into memory."""
        del copy
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)

    def select(self, rows: IntArray | BoolArray | slice) -> Self:
        """Select rows and leave them on disk."""
        used_sources, part = np.unique(self.part[rows], return_inverse=True)
        sources = tuple(self.sources[source] for source in used_sources)
        return replace(self, sources=sources, part=part, row=self.row[rows])


def stays_on_disk(array: Any) -> bool:
    """Whether an array holds pictures in a file. These may be larger than memory."""
    if isinstance(array, OnDisk):
        return True
    large = int(np.prod(array.shape[1:])) * array.dtype.itemsize >= PICTURE_BYTES
    return isinstance(array, np.memmap) and array.dtype == np.uint8 and large


def select_rows(array: Any, rows: IntArray) -> Array:
    """Return `array[rows]`; rows of an array on disk stay on disk."""
    if not stays_on_disk(array):
        return cast("Array", array[rows])
    stored = array if isinstance(array, OnDisk) else OnDisk.of([array])
    return cast("Array", stored.select(rows))


def concatenate_rows(arrays: Sequence[Array]) -> Array:
    """Concatenate arrays by rows; the result stays on disk if one of them is on disk."""
    if any(stays_on_disk(array) for array in arrays):
        return cast("Array", OnDisk.of(arrays))
    return np.concatenate(arrays)


@dataclass(frozen=True)
class _File:
    """An array in a file that is opened for each read; it has the fields of a `numpy.memmap`."""

    path: Path
    layout: Mapping[str, Any]
    identity: tuple[int, int]

    def __getitem__(self, rows: IntArray) -> Array:
        """Read rows into memory. Refuse a replaced file, since it holds rows of other clips."""
        if _identity(self.path) != self.identity:
            raise DataError(
                f"{self.path}: expected the file in which these pictures were found, got another "
                "file or none. Load the folder again."
            )
        return cast("Array", np.memmap(self.path, mode="r", **self.layout)[rows])


def _source(array: Any) -> Any:
    """Return a `_File` for a memory map of a whole file, and any other array unchanged."""
    is_whole_file: bool = isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap)
    if not is_whole_file:
        return array
    path = Path(array.filename)
    layout = {"dtype": array.dtype, "offset": array.offset}
    layout |= {"shape": array.shape, "order": "C" if array.flags.c_contiguous else "F"}
    return _File(path, layout, _identity(path))


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return (status.st_ino, status.st_mtime_ns)
