"""Read files from elsewhere, so that whatever is wrong with them becomes one error."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError

from preferl.errors import CheckpointError, PreferlError

MOST_JSON: Final = 64 * 2**20
"""Bytes of a JSON file; what preferl writes as JSON is far smaller, since numbers lie in arrays."""

DAMAGED: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError,
    RuntimeError, SafetensorError, TypeError, ValueError,
)  # fmt: skip
"""What reading and using a damaged file raises: numbers without end, lists without end (a
`RecursionError` is a `RuntimeError`), missing keys, values of other types, and what gymnasium
asserts of spaces."""


@contextmanager
def reading(
    what: object, *, expected: str, fix: str = "", error: type[PreferlError] = CheckpointError
) -> Iterator[None]:
    """Turn whatever goes wrong in the block into one error about a file.

    Args:
        what: the file or folder.
        expected: what it should be.
        fix: what to do.
        error: its kind; errors of this kind, raised in the block, stay as they are.
    """
    try:
        yield
    except error:
        raise
    except DAMAGED as fault:
        got = f"{fault}".removesuffix(".") or type(fault).__name__
        raise error.mismatch(f"{what}", expected=expected, got=got, fix=fix) from fault


def read_bytes(path: Path, most: int) -> bytes:
    """Read a file; raises `OSError` where that fails, and `ValueError` beyond so many bytes."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"more than {most:,} bytes")
    return content


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger than `MOST_JSON`, or no JSON.
    """
    return parse_json(read_bytes(path, MOST_JSON))


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object; raises as `read_json`, and `ValueError` of others."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{type(found).__name__}, not an object of JSON")
    return found


def parse_json(content: str | bytes) -> Any:
    """Parse JSON, in UTF-8 if it comes as bytes.

    Raises:
        ValueError: it is none, or nested too deeply.

    >>> parse_json("[1, 2]")
    [1, 2]
    """
    try:
        return json.loads(content if isinstance(content, str) else content.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


def inside(folder: Path, name: str) -> Path:
    """The file of a name in a folder, or in folders within, and nowhere else.

    Raises:
        ValueError: the name points elsewhere, by itself or by a link that lies in the folder.

    >>> inside(Path("run"), "../key")
    Traceback (most recent call last):
    ValueError: '../key' points out of its folder
    """
    path = folder / name
    if "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} points out of its folder")
    return path
