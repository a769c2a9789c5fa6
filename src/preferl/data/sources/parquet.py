"""The size of a Parquet file in memory, from the headers of its pages, before unpacking any page.

A few bytes of a page may stand for two thousand million values, and nothing checks the numbers in
the footer. pyarrow follows the headers of pages, so this module does the same. The structures are
those of `parquet.thrift` of Apache Parquet, in the compact protocol of Apache Thrift.
"""

import mmap
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from preferl.data.columns import reading_foreign

MAGIC: Final = b"PAR1"
"""The bytes with which a Parquet file begins and ends."""

PER_VALUE: Final = 4
"""Bytes that record for each value to which list it belongs."""

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(
    13
)
"""Types of Thrift's compact protocol."""

_BITS: Final = {_I16: 16, _I32: 32, _I64: 64}

_WIDTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Size of a value in bytes by its type: boolean, int32, int64, int96, float, double."""

_REPETITIONS: Final = {0, 1, 2}
"""How often a value may occur: once, at most once, any number of times."""

_TEXT = 6
_FIXED_TEXT = 7
_DATA_PAGE = 0
_DICTIONARY_PAGE = 2
_DATA_PAGE_2 = 3
_PREFIXES: Final = 7
"""The encoding in which texts share beginnings with earlier texts."""

Fields = Mapping[tuple[int, int], Any]
"""A structure of Thrift: values by number and type, since readers skip other types."""


class _Column(NamedTuple):
    """A column of the schema that holds values."""

    name: str  # name of its column of the table
    kind: int
    width: int | None  # bytes of a value; None for texts of any length


def unpacked_bytes(
    path: Path,
    *,
    columns: Collection[str] | None = None,
    texts_once: Collection[str] = (),
    per_value: int = PER_VALUE,
) -> int:
    """Count the bytes that columns of a Parquet file take in memory.

    Args:
        path: the file.
        columns: columns that will be read; by default all.
        texts_once: text columns that will be read as dictionaries, which keep each text once.
        per_value: bytes that each value takes in addition to its own.

    Raises:
        DataError: the file is damaged, or its footer and its pages have different counts.
    """
    with (
        reading_foreign(path, "a whole Parquet file"),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if content[-4:] != MAGIC:
            raise ValueError("no footer at its end")
        footer_start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        footer = _Structures(content, footer_start).read()
        elements = iter(footer[2, _LIST])
        schema = list(_columns_of(elements, None, next(elements)[5, _I32]))
        size = 0
        for group in footer[4, _LIST]:
            chunks = group[1, _LIST]
            for column, chunk in zip(schema, chunks, strict=True):
                if columns is None or column.name in columns:
                    counts_once = column.name in texts_once
                    size += _unpacked_chunk(
                        content, column, chunk[3, _STRUCT], counts_once, per_value
                    )
        return size


def _columns_of(elements: Iterator[Fields], name: str | None, count: int) -> Iterator[_Column]:
    """Yield the columns in the next `count` elements of a schema, in the order of the file."""
    for _ in range(count):
        element = next(elements)
        if element.get((3, _I32), 0) not in _REPETITIONS:  # pyarrow ends the program for other ones
            raise ValueError(f"a column that is there {element[3, _I32]} times")
        top = element[4, _BINARY].decode() if name is None else name
        children = element.get((5, _I32), 0)
        if children:
            yield from _columns_of(elements, top, children)
        else:
            kind = element[1, _I32]
            width = element[2, _I32] if kind == _FIXED_TEXT else _WIDTHS.get(kind)
            yield _Column(top, kind, width)


def _unpacked_chunk(
    content: mmap.mmap, column: _Column, about: Fields, once: bool, per_value: int
) -> int:
    """Return the size of the pages of a column that pyarrow reads, until all values are there."""
    start = about[9, _I64]
    dictionary = about.get((11, _I64), 0)
    if 0 < dictionary < start:
        start = dictionary
    declared = about[5, _I64]
    dictionary_bytes = 0
    entries = 0
    unpacked = 0
    pages = _Structures(content, start)
    while dictionary_bytes < declared:
        page = pages.read()
        kind = page[1, _I32]
        unpacked += _size(page[2, _I32])
        pages.at += _size(page[3, _I32])
        if kind == _DICTIONARY_PAGE:
            entries += _size(page[7, _STRUCT][1, _I32])
        elif kind in (_DATA_PAGE, _DATA_PAGE_2):
            header = page[5 if kind == _DATA_PAGE else 8, _STRUCT]
            dictionary_bytes += _size(header[1, _I32])
            if header[2 if kind == _DATA_PAGE else 4, _I32] == _PREFIXES:
                once = False
    if dictionary_bytes != declared:
        raise ValueError(
            f"{dictionary_bytes:,} values in pages of {column.name}, and {declared:,} declared"
        )
    if column.width is not None:
        return max((dictionary_bytes + entries) * (_size(column.width) + per_value), unpacked)
    if column.kind != _TEXT:
        raise ValueError(f"a column {column.name} of type {column.kind}")
    return unpacked + (dictionary_bytes + entries) * (per_value + (0 if once else unpacked))


def _size(number: int) -> int:
    if number < 0:
        raise ValueError(f"a size of {number}")
    return number


@final
class _Structures:
    """Structures of Thrift's compact protocol in a file, one after another, from position `at`."""

    def __init__(self, content: mmap.mmap, at: int) -> None:
        self._content = content
        self.at = at

    def read(self) -> Fields:
        """Read the structure at this position, and move to the next one."""
        fields: dict[tuple[int, int], Any] = {}
        number = 0
        while (head := self._byte()) & 15 != _STOP:
            number = number + (head >> 4) if head >> 4 else self._whole(16)
            if not 0 <= number < 2**15:
                raise ValueError(f"field {number}")
            kind = head & 15
            fields[number, kind] = kind == _TRUE if kind <= _FALSE else self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in _BITS:
            return self._whole(_BITS[kind])
        if kind == _BINARY:
            return self._take(self._varint())
        if kind == _STRUCT:
            return self.read()
        if kind in (_LIST, _SET):
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15) for _ in range(count)]
        if kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(count)]
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            return self._take(8)
        raise ValueError(f"a value of type {kind}")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        at = self.at
        if not 0 <= at <= len(self._content) - count:
            raise ValueError(f"{count:,} bytes at {at:,} of {len(self._content):,}")
        self.at = at + count
        return self._content[at : self.at]

    def _whole(self, bits: int) -> int:
        """Read a whole number, whose sign is its last bit."""
        number = self._varint()
        if number >= 2**bits:
            raise ValueError(f"a number of more than {bits} bits")
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number of more than ten bytes")
