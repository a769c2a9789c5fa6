"""How much memory a file from elsewhere may take: as much as its size explains.

Compressed and sparse files become larger in memory than they are on disk. Published data sets
grow by a factor of ten at most; a file that is made to fill the memory grows by thousands.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, final

from preferl.errors import DataError

RATIO: Final = 100
"""Bytes in memory for each byte of the file. Compressed states of robots stay below 10 and
compressed frames of games below 60; zlib makes up to 1,032 of a byte, and sparse arrays any
number."""

FLOOR: Final = 32 * 2**20
"""Bytes that any file may become, however small it is: sparse arrays of this size harm nobody."""

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
    """Count what a file becomes in memory, and refuse more than its size explains.

    Args:
        name: how errors call the file.
        stored: its size in bytes.

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
        """Count bytes before they are taken.

        Raises:
            DataError: more than the size of the file explains.
        """
        if size > self.left:
            most, got = self._held + self.left, self._held + size
            raise DataError.mismatch(
                f"{self._name}",
                expected=f"at most {most:,} bytes in memory of a file of {self._stored:,}",
                got=f"{got:,} or more",
                fix="If you trust its maker, allow it: --allow-large (preferl.data.allow_large()).",
            )
        self._held += size
