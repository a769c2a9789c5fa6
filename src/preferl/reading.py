"""Read files from elsewhere, and turn every fault in them into one kind of error.

The memory that a file may take is limited by its size. Compressed and sparse files become larger in
memory than on disk: published data sets by a factor of ten at most, but malicious files by
thousands.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, final

from safetensors import SafetensorError

from preferl.errors import CheckpointError, DataError, PreferlError, in_words
from preferl.printing import UNSHOWN

MOST_JSON: Final = 64 * 2**20  # bytes of a file; ours are far smaller, as numbers lie in arrays

MOST_SETTINGS: Final = 2**16  # bytes of settings as YAML, which takes some 40 of them for each
MOST_LEVELS: Final = 32  # of settings within settings
MOST_BITS: Final = 1024  # of a whole number; more are beyond any float

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

    Errors of this kind, raised in the block, stay as they are.
    """
    try:
        yield
    except error:
        raise
    except DAMAGED as fault:
        got = in_words(fault).removesuffix(".") or type(fault).__name__
        raise error(f"{what}: expected {expected}, got {got}. {fix}".rstrip()) from fault


def read_bytes(path: Path, most: int) -> bytes:
    """Read a file; raise `OSError` if that fails, and `ValueError` beyond `most` bytes."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"more than {most:,} bytes")
    return content


def read_json(path: Path) -> Any:
    """Read JSON of at most `MOST_JSON` bytes; raises `OSError`, or `ValueError` if it is none."""
    return parse_json(read_bytes(path, MOST_JSON))


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object; raises as `read_json`, or `ValueError` if not."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{type(content).__name__}, not an object of JSON")
    return content


def parse_json(content: str | bytes) -> Any:
    """Parse JSON, bytes as UTF-8; raises `ValueError` if it is none, or nested too deeply.

    >>> parse_json("[1, 2]")
    [1, 2]
    """
    try:
        return json.loads(content if isinstance(content, str) else content.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


def parse_yaml(text: str) -> Any:
    """Parse settings as YAML, in which `1e-3` is a number as it is in JSON.

    Settings with all aliases and merge keys (`<<`) written out must keep the same limits.

    Raises:
        ValueError: it is no YAML, or needs more than plain values; it is longer than
            `MOST_SETTINGS`, nested deeper than `MOST_LEVELS`, holds aliases that multiply, a
            number without end, or characters that a terminal would obey.

    >>> parse_yaml("{learning_rate: 1e-3, env: Pendulum-v1}")
    {'learning_rate': 0.001, 'env': 'Pendulum-v1'}
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads plain values, and stops at brackets in brackets before it looks for their ends."""

        def fetch_flow_collection_start(self, token_class: Any) -> None:
            if self.flow_level > MOST_LEVELS:
                raise ValueError(f"YAML that is nested more than {MOST_LEVELS} levels deep")
            super().fetch_flow_collection_start(token_class)

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))
    if len(text) > MOST_SETTINGS:
        raise ValueError(f"more than {MOST_SETTINGS:,} letters")
    loader = None
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        letters, levels = (0, 0) if node is None else _extent(node, {})
        if letters > 2 * MOST_SETTINGS:
            raise ValueError("aliases that stand for more than all other settings")
        if levels > MOST_LEVELS:
            raise ValueError(f"YAML that is nested more than {MOST_LEVELS} levels deep")
        return None if node is None else loader.construct_document(node)
    except RecursionError as error:
        raise ValueError("YAML that is nested too deeply") from error
    except (yaml.YAMLError, *DAMAGED) as error:
        raise ValueError(f"{error}") from error
    finally:
        if loader is not None:
            loader.dispose()


_EXPONENT: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$")
"""Numbers such as `1e-3`, which YAML 1.1 takes for text."""


def _extent(node: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Letters and levels of a node of YAML when each alias is written out.

    They are counted before anything is built of them. `known` are those of nodes by `id`.
    """
    if isinstance(node.value, str):
        if UNSHOWN.search(node.value):
            raise ValueError(f"characters that a terminal would obey, in {node.value!r:.200}")
        number = node.tag.endswith(":int") and len(node.value) * 4 > MOST_BITS
        if number:
            raise ValueError(f"a whole number of {len(node.value):,} digits")
        return 1 + len(node.value), 0
    if id(node) not in known:
        known[id(node)] = 2 * MOST_SETTINGS, 0  # a node that holds itself has no end
        letters = 1
        levels = 0
        for part in node.value:
            for inner in part if isinstance(part, tuple) else (part,):
                inner_letters, inner_levels = _extent(inner, known)
                letters += inner_letters
                levels = max(levels, inner_levels)
        known[id(node)] = letters, levels + 1
    return known[id(node)]


def inside(folder: Path, name: str) -> Path:
    """Return the path of a name in a folder or its subfolders, and nowhere else.

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
    """Counts a file's bytes in memory, and refuses too many for the `stored` bytes on disk.

    >>> Expansion("bomb.npz", stored=1_000).add(10**9)
    Traceback (most recent call last):
    preferl.errors.DataError: bomb.npz: expected at most 33,554,432 bytes in memory of a file of
    1,000, got 1,000,000,000 or more. If you trust its maker, allow it: --allow-large
    (preferl.data.allow_large()).
    """

    def __init__(self, name: object, stored: int) -> None:
        self._name = name
        self._stored = stored
        self._held = 0

    @classmethod
    def of(cls, path: Path) -> "Expansion":
        """Return the counter of a file, by its size; raise `OSError` if the file is missing."""
        return cls(path, path.stat().st_size)

    @property
    def left(self) -> int:
        """Bytes that may still be added."""
        return 2**62 if _allowed.get() else max(FLOOR, RATIO * self._stored) - self._held

    def add(self, size: int) -> None:
        """Count bytes before they are allocated; raise `DataError` if they are too many."""
        if size > self.left:
            raise DataError(
                f"{self._name}: expected at most {self._held + self.left:,} bytes in memory of a "
                f"file of {self._stored:,}, got {self._held + size:,} or more. If you trust its "
                "maker, allow it: --allow-large (preferl.data.allow_large())."
            )
        self._held += size
