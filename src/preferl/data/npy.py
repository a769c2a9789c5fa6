"""Numpy's own files, `.npy` and `.npz`, whose declared shapes are compared with their sizes."""

import tokenize
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np

from preferl.bounds import Expansion
from preferl.data.columns import require_names
from preferl.shapes import Array

DAMAGED: Final = (
    OSError, ValueError, EOFError, TypeError, LookupError, OverflowError, RecursionError,
    MemoryError, NotImplementedError, RuntimeError, SyntaxError,
    zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip
"""What numpy and zipfile raise for damaged files: headers are literals, members are encrypted."""

_HEADERS: Final[dict[tuple[int, int], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def load_npy(path: Path, *, memory_map: bool = False) -> Array:
    """Read a `.npy` file of numbers or text, as large as its header says.

    Args:
        path: the file.
        memory_map: leave the numbers on disk until they are used.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none, cut off, or holds objects.
    """
    try:
        with path.open("rb") as file:
            shape, dtype = _header(file)
            wanted = _size(shape, dtype)
            there = path.stat().st_size - file.tell()
        if wanted > there:
            raise ValueError(f"{wanted:,} bytes declared and {there:,} there")
        array = np.load(path, mmap_mode="r" if memory_map else None, allow_pickle=False)
        return cast("Array", array)
    except (OSError, ValueError):
        raise
    except DAMAGED as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def load_npz(path: Path, names: Collection[str] | None = None) -> dict[str, Array]:
    """Read arrays of numbers from a `.npz` file, which do not become larger than it explains.

    Args:
        path: the file.
        names: of the arrays; all of them by default.

    Raises:
        DataError: arrays that are missing, or far larger than the file.
        OSError: it cannot be read.
        ValueError: no such file, damaged, or with other things than arrays of numbers.
    """
    expansion = Expansion.of(path)
    try:
        # Opened here, since numpy leaves a file open that turns out to be none of its own.
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            held = {name.removesuffix(".npy"): name for name in archive.namelist()}
            require_names(path, names or (), held, "arrays")
            wanted = held if names is None else names
            return {name: _member(archive, held[name], expansion) for name in wanted}
    except (OSError, ValueError):
        raise
    except DAMAGED as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _member(archive: zipfile.ZipFile, name: str, expansion: Expansion) -> Array:
    with archive.open(name) as member:
        shape, dtype = _header(member)
        size = _size(shape, dtype)
        there = archive.getinfo(name).file_size - member.tell()
    if size > there:
        raise ValueError(f"{name} of {size:,} bytes declared and {there:,} there")
    expansion.add(size)
    with archive.open(name) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:  # 3.0 is for names of columns
        raise ValueError(f"version {version} of the format")
    shape, _, dtype = _HEADERS[version](file)
    return shape, dtype


def _size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes of an array; nothing that numpy could not index, even where they are none."""
    if dtype.kind not in "biufcSU" or not dtype.itemsize:
        raise ValueError(f"an array of {dtype}")
    entries = 1
    for axis in shape:
        if axis < 0:
            raise ValueError(f"shape {shape}")
        entries *= max(axis, 1)
    if entries * dtype.itemsize >= 2**62:
        raise ValueError(f"shape {shape}")
    return 0 if 0 in shape else entries * dtype.itemsize
