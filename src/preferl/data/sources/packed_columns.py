"""What columns become when they are unpacked, told by the files before that happens."""

import struct
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from preferl._optional import require
from preferl.trust import module_program

_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
"""Bytes of a Parquet value in memory; one of text may be all that its column has."""

_LEVELS: Final = 4
"""Bytes that say, of each value, in which list it is."""


def unpacked_parquet(file: Path, columns: Collection[str]) -> int:
    """Bytes of columns in memory; repeated values take none in the file.

    Another process looks: over some damaged footers, pyarrow ends the program it is in.

    Args:
        file: of Parquet.
        columns: which are read.

    Raises:
        ValueError: a footer that pyarrow cannot read.
    """
    command = module_program(__name__, str(file), *columns)
    looked = subprocess.run(command, capture_output=True, text=True, check=False)
    if looked.returncode:
        words = looked.stderr.strip().splitlines() or [f"exit code {looked.returncode}"]
        raise ValueError(f"a footer that pyarrow cannot read: {words[-1]}")
    return int(looked.stdout)


def _declared(metadata: Any, columns: Collection[str]) -> int:
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    return sum(
        chunk.num_values
        * (_WIDTHS.get(chunk.physical_type, chunk.total_uncompressed_size) + _LEVELS)
        for chunk in chunks
        if chunk.path_in_schema.partition(".")[0] in columns
    )


def unpacked_message(message: Any) -> int:
    """Bytes of a message's compressed buffers in memory; 0 where none is compressed.

    A compressed buffer begins with its size in memory. Where buffers lie is in a table of
    FlatBuffers, see Message.fbs of Apache Arrow.

    Args:
        message: a `pyarrow.ipc.Message`.

    Raises:
        ValueError: a table or buffers that point out of the message.
    """
    if message.type != "record batch" or message.body is None:
        return 0
    try:
        return _unpacked(memoryview(message.metadata), memoryview(message.body))
    except struct.error as error:
        raise ValueError(f"a message that points out of itself: {error}") from error


def _unpacked(about: memoryview, body: memoryview) -> int:
    batch = _follow(about, _field(about, _follow(about, 0), 2))
    buffers, compression = _field(about, batch, 2), _field(about, batch, 3)
    if not (buffers and compression):
        return 0
    vector = _follow(about, buffers)
    (count,) = struct.unpack_from("<I", about, vector)
    places = struct.iter_unpack("<qq", about[vector + 4 : vector + 4 + 16 * count])
    sizes = (struct.unpack_from("<q", body, at)[0] for at, length in places if length >= 8)
    return sum(max(size, 0) for size in sizes)


def _follow(table: memoryview, at: int) -> int:
    """Where the offset at a place points."""
    return at + int(struct.unpack_from("<I", table, at)[0])


def _field(table: memoryview, at: int, number: int) -> int:
    """Where a field of a table is; 0 where it has its default."""
    fields = at - int(struct.unpack_from("<i", table, at)[0])
    (size,) = struct.unpack_from("<H", table, fields)
    if 4 + 2 * number >= size:
        return 0
    (offset,) = struct.unpack_from("<H", table, fields + 4 + 2 * number)
    return at + int(offset) if offset else 0


if __name__ == "__main__":
    _about = require("pyarrow.parquet", extra="parquet").read_metadata(sys.argv[1])
    sys.stdout.write(str(_declared(_about, sys.argv[2:])))
