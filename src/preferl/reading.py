"""Read files from elsewhere, so that whatever is wrong with them becomes one error.

A file may take as much memory as its size explains. Compressed and sparse files become larger in
memory than they are on disk: published data sets by a factor of ten at most, a file that is made to
fill the memory by thousands.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, final

from safetensors import SafetensorError

from preferl.errors import CheckpointError, DataError, PreferlError, in_words

MOST_JSON: Final = 64 * 2**20  # bytes of a file; ours are far smaller, as numbers lie in arrays

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
    """Turn whatever goes wrong in the block into one error about a file, worded by `mismatch`.

    Errors of this kind, raised in the block, stay as they are.
    """
    try:
        yield
    except error:
        raise
    except DAMAGED as fault:
        got = in_words(fault).removesuffix(".") or type(fault).__name__
        raise error.mismatch(f"{what}", expected=expected, got=got, fix=fix) from fault


def read_bytes(path: Path, most: int) -> bytes:
    """Read a file; raises `OSError` where that fails, and `ValueError` beyond so many bytes."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"more than {most:,} bytes")
    return content


def read_json(path: Path) -> Any:
    """Read JSON of at most `MOST_JSON` bytes; raises `OSError`, or `ValueError` if it is none."""
    return parse_json(read_bytes(path, MOST_JSON))


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object; raises as `read_json`, and `ValueError` of others."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{type(found).__name__}, not an object of JSON")
    return found


def parse_json(content: str | bytes) -> Any:
    """Parse JSON, bytes as UTF-8; raises `ValueError` if it is none, or nested too deeply.

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


RATIO: Final = 100
"""Bytes in memory for each byte of the file. Compressed states of robots stay below 10 and
compressed frames of games below 60; zlib makes up to 1,032 of a byte, and sparse arrays any
number."""

FLOOR: Final = 32 * 2**20  # bytes that any file may become; sparse arrays of this size harm nobody

_allowed: ContextVar[bool] = ContextVar("preferl_allow_large", default=False)


@contextmanager
def allow_large() -> Iterator[None]:
    """Let readers open files in this block that become far larger in memory than they are.

    Readers refuse what grows beyond 32 MiB and beyond 100 times the size of its file, since a few
    bytes can be made to fill any memory. Allow it for files whose maker you trust.

    >>> with allow_large():
    ...     Expansion("sparse.hdf5", stored=1_000).add(10**9)
    """
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


@final
class Expansion:
    """Count what a file becomes in memory, and refuse more than `stored`, its bytes, explain.

    >>> Expansion("bomb.npz", stored=1_000).add(10**9)
    Traceback (most recent call last):
    preferl.errors.DataError: bomb.npz: expected at most 33,554,432 bytes in memory of a file of
    1,000, got 1,000,000,000 or more. If you trust its maker, allow it: --allow-large
    (preferl.data.allow_large()).
    """

    def __init__(self, name: object, stored: int) -> None:
        self._name, self._stored, self._held = name, stored, 0

    @classmethod
    def of(cls, path: Path) -> "Expansion":
        """That of a file, by the size that it has; raises `OSError` where there is none."""
        return cls(path, path.stat().st_size)

    @property
    def left(self) -> int:
        """Bytes that may still be added."""
        return 2**62 if _allowed.get() else max(FLOOR, RATIO * self._stored) - self._held

    def add(self, size: int) -> None:
        """Count bytes before they are taken; raises `DataError` beyond what the size explains."""
        if size > self.left:
            most, got = self._held + self.left, self._held + size
            raise DataError.mismatch(
                f"{self._name}",
                expected=f"at most {most:,} bytes in memory of a file of {self._stored:,}",
                got=f"{got:,} or more",
                fix="If you trust its maker, allow it: --allow-large (preferl.data.allow_large()).",
            )
        self._held += size
