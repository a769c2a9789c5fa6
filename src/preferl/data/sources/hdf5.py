"""HDF5 files, read with errors that name the file and the array (h5py, imported late).

An HDF5 file may link to other files of the machine, declare arrays that it does not hold, and make
the HDF5 library load plug-ins to decompress them. All of these are refused before arrays are read.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from preferl._optional import require
from preferl.data.columns import reading_foreign, require_finite, require_numbers
from preferl.errors import DataError
from preferl.reading import Expansion
from preferl.shapes import Array

SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
"""The bytes with which an HDF5 file begins."""

DEEPEST: Final = 32
"""How deep groups may be inside groups; published files have at most four levels."""

MOST_DEFLATED: Final = 1_032
"""Most bytes that one byte of deflate can unpack to."""

_DEFLATE = 1
_CHECKSUM = 3
_LZF = 32000
_COMPRESS: Final = {_DEFLATE, 4, _LZF}
"""Filters that make chunks smaller: deflate, szip, LZF."""

_ARRANGE: Final = {2, _CHECKSUM, 5, 6}
"""Further filters that are allowed: shuffle, checksums, n-bit, scale and offset.

For any other filter, the HDF5 library would search folders of plug-ins, and run what it finds.
"""

_COPY: Final = "Copy the arrays into one plain file, if you trust its maker."


@contextmanager
def open_hdf5(path: str | Path, expansion: Expansion | None = None) -> Iterator[Any]:
    """Open an `h5py.File` for reading, unless it links to other files or unpacks to too much.

    The sizes of its arrays are added to `expansion`. A caller that unpacks them further adds to it.

    Raises:
        DataError: the file is missing, cut off or not HDF5, it links to other files or is far
            larger in memory than on disk, or the block finds damage while it reads.
        MissingExtraError: h5py is not installed.
    """
    h5py = require("h5py", extra="d4rl")
    with reading_foreign(path, "a whole HDF5 file"), h5py.File(path, "r") as file:
        expansion = expansion or Expansion.of(Path(path))
        # first, since soft links may lead through external ones
        _refuse_links(file, f"{path}", set())
        expansion.add(_size(file, f"{path}", {}, 0))
        yield file


def read_array(group: Any, key: str, name: str) -> Array:
    """Read the finite numbers `[T, ...]` of an array in a group; errors name the group `name`."""
    array_file = group.get(key)
    array_name = f"{name}, {key}"
    if not isinstance(array_file, require("h5py", extra="d4rl").Dataset):
        raise DataError(f"{name}: expected an array {key!r}, got only {', '.join(sorted(group))}.")
    require_numbers(array_name, array_file)
    with reading_foreign(array_name, "a whole array"):  # the array is damaged, not the file
        array = np.asarray(array_file[()])
    require_finite(array_name, array)
    return array


def _refuse_links(group: Any, name: str, visited: set[int]) -> None:
    """Refuse links to other files, without reading any array."""
    h5py = require("h5py", extra="d4rl")
    visited.add(_address(group))
    for key in group:
        kind = None
        with suppress(TypeError):  # h5py has no class for links that programs define
            kind = group.get(key, getclass=True, getlink=True)
        if kind is h5py.SoftLink:
            continue  # another link of this file leads there, too, or it leads nowhere
        if kind is not h5py.HardLink:
            raise DataError(
                f"{name}, {group.name.rstrip('/')}/{key}: expected an array of this file, got "
                f"a link to another one. {_COPY}"
            )
        item = group[key]
        if isinstance(item, h5py.Group) and _address(item) not in visited:
            _refuse_links(item, name, visited)


def _size(group: Any, name: str, size_of: dict[int, int], depth: int) -> int:
    """Return the bytes of all arrays in a group.

    An array with several paths counts several times.
    """
    h5py = require("h5py", extra="d4rl")
    if depth > DEEPEST:
        raise DataError(
            f"{name}: expected groups at most {DEEPEST} deep, got deeper ones, or one inside "
            f"itself. {_COPY}"
        )
    size = 0
    for key in group:
        item = group.get(key)
        if isinstance(item, h5py.Group) and _address(item) not in size_of:
            size_of[_address(item)] = _size(item, name, size_of, depth + 1)
        elif isinstance(item, h5py.Dataset) and _address(item) not in size_of:
            size_of[_address(item)] = _size_of_array(item, f"{name}, {item.name}")
        size += 0 if item is None else size_of.get(_address(item), 0)
    return size


def _size_of_array(array: Any, where: str) -> int:
    """Return how many bytes reading an array takes: its own, or those of a chunk if larger."""
    layout = array.id.get_create_plist()
    if layout.get_external_count() or array.is_virtual:
        raise DataError(
            f"{where}: expected an array of this file, got one that lies in other files. {_COPY}"
        )
    filters = [layout.get_filter(number)[0] for number in range(layout.get_nfilters())]
    packers = [position for position, number in enumerate(filters) if number in _COMPRESS]
    later_filters = {number for position in packers[:1] for number in filters[position + 1 :]}
    if not (set(filters) <= _COMPRESS | _ARRANGE and later_filters <= {_CHECKSUM}):
        raise DataError(
            f"{where}: expected at most one of deflate, szip and LZF, and only checksums after "
            f"it, got filters {filters}. {_COPY}"
        )
    item = max(1, int(array.dtype.itemsize))
    chunk = int(prod(array.chunks or ())) * item
    if _DEFLATE in filters:
        _check_chunks(array, chunk, where)
    return max(int(array.id.get_space().get_select_npoints()) * item, chunk)


def _check_chunks(array: Any, size: int, where: str) -> None:
    """Refuse chunks that unpack to more bytes than declared, which the HDF5 library would do."""
    chunks: list[Any] = []
    array.id.chunk_iter(chunks.append)
    for chunk in chunks:
        if chunk.size * MOST_DEFLATED <= max(size, 2**20):
            continue
        _, packed = array.id.read_direct_chunk(chunk.chunk_offset)
        inflate = zlib.decompressobj()
        unpacked = 0
        with suppress(zlib.error):  # this chunk was not compressed, or is damaged
            while packed and unpacked <= size and not inflate.eof:
                unpacked += len(inflate.decompress(packed, 2**20))
                packed = inflate.unconsumed_tail
        if unpacked > size:
            raise DataError(
                f"{where}: expected chunks of {size:,} bytes, got one that unpacks to more. {_COPY}"
            )


def _address(item: Any) -> int:
    return int(require("h5py", extra="d4rl").h5o.get_info(item.id).addr)
