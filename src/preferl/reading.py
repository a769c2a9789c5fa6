"""Read files from elsewhere, and turn every fault in them into one kind of error.

Readers limit the memory that a file may take, relative to its size. Compressed and sparse files
take more memory than disk: published data sets at most ten times as much, but malicious files
thousands of times.
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

# bytes of a JSON file; those of preferl are far smaller, since arrays are in other files
MOST_JSON: Final = 64 * 2**20

# bytes of settings as YAML, each of which takes about 40 bytes of memory
MOST_SETTINGS: Final = 2**16
MOST_LEVELS: Final = 32  # levels of settings within settings
MOST_BITS: Final = 1024  # bits of a whole number; a larger one is beyond any float

DAMAGED: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError,
    RuntimeError, SafetensorError, TypeError, ValueError,
)  # fmt: skip
"""Errors that reading or using a damaged file raises.

Causes are infinite numbers, lists nested without end (a `RecursionError` is a `RuntimeError`),
missing keys, values of other types, and what gymnasium asserts about spaces.
"""


@contextmanager
def reading(
    what: object, *, expected: str, fix: str = "", error: type[PreferlError] = CheckpointError
) -> Iterator[None]:
    """Turn any error in the block into one kind of error, about a file.

    An error that is already of this kind stays as it is.
    """
    try:
        yield
    except error:
        raise
    except DAMAGED as fault:
        got = in_words(fault).removesuffix(".") or type(fault).__name__
        raise error(f"{what}: expected {expected}, got {got}. {fix}".rstrip()) from fault


def read_bytes(path: Path, most: int) -> bytes:
    """Read a file; raise `OSError` if that fails, and `ValueError` if it has over `most` bytes."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"more than {most:,} bytes")
    return content


def read_json(path: Path) -> Any:
    """Read JSON of at most `MOST_JSON` bytes.

    Raise `OSError`, or `ValueError` if it is not JSON.
    """
    return parse_json(read_bytes(path, MOST_JSON))


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object; errors as in `read_json`, or `ValueError` if not."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{type(content).__name__}, not an object of JSON")
    return content


def parse_json(content: str | bytes) -> Any:
    """Parse JSON, bytes as UTF-8; raise `ValueError` if it is not JSON or nested too deeply.

    >>> parse_json("[1, 2]")
    [1, 2]
    """
    try:
        return json.loads(content if isinstance(content, str) else content.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


def parse_yaml(text: str) -> Any:
    """Parse settings as YAML, in which `1e-3` is a number as it is in JSON.

    The limits also hold after all aliases and merge keys (`<<`) are written out.

    Raises:
        ValueError: the text is not YAML, needs more than plain values, is longer than
            `MOST_SETTINGS`, is nested deeper than `MOST_LEVELS`, or contains aliases that multiply,
            a whole number of too many digits, or characters that a terminal would obey.

    >>> parse_yaml("{learning_rate: 1e-3, env: Pendulum-v1}")
    {'learning_rate': 0.001, 'env': 'Pendulum-v1'}
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads plain values, and stops at nested brackets before it looks for where they end."""

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
"""Numbers such as `1e-3`, which YAML 1.1 reads as text."""


def _extent(node: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return how many letters and levels a YAML node has once each alias is written out.

    This is counted before anything is built from the nodes. `known` has earlier counts, by the `id`
    of their node.
    """
    if isinstance(node.value, str):
        if UNSHOWN.search(node.value):
            raise ValueError(f"characters that a terminal would obey, in {node.value!r:.200}")
        number = node.tag.endswith(":int") and len(node.value) * 4 > MOST_BITS
        if number:
            raise ValueError(f"a whole number of {len(node.value):,} digits")
        return 1 + len(node.value), 0
    if id(node) not in known:
        known[id(node)] = 2 * MOST_SETTINGS, 0  # a node may contain itself, without end
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
        ValueError: the name leads out of the folder, either by itself or through a link in the
            folder.

    >>> inside(Path("run"), "../key")
    Traceback (most recent call last):
    ValueError: '../key' points out of its folder
    """
    path = folder / name
    if "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} points out of its folder")
    return path


RATIO: Final = 100
"""Most bytes in memory for each byte of the file.

Compressed states of robots stay below 10, and compressed frames of games below 60. A byte of zlib
becomes up to 1,032 bytes, and a byte of a sparse array any number.
"""

# bytes that any file may take in memory; sparse arrays of this size do no harm
FLOOR: Final = 32 * 2**20

_allowed: ContextVar[bool] = ContextVar("preferl_allow_large", default=False)


@contextmanager
def allow_large() -> Iterator[None]:
    """In this block, let readers open files that take far more memory than disk.

    Otherwise, readers refuse a file that takes over 32 MiB and over 100 times its size in memory,
    since a few bytes can be made to fill any memory. Allow it only if you trust the file's maker.

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
    """Counts how many bytes of memory a file takes, and refuses too many for its `stored` bytes.

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
        """Return a counter for a file of this size; raise `OSError` if the file is missing."""
        return cls(path, path.stat().st_size)

    @property
    def left(self) -> int:
        """Bytes that may still be added."""
        return 2**62 if _allowed.get() else max(FLOOR, RATIO * self._stored) - self._held

    def add(self, size: int) -> None:
        """Count bytes before they are allocated; raise `DataError` if there are too many."""
        if size > self.left:
            raise DataError(
                f"{self._name}: expected at most {self._held + self.left:,} bytes in memory of a "
                f"file of {self._stored:,}, got {self._held + size:,} or more. If you trust its "
                "maker, allow it: --allow-large (preferl.data.allow_large())."
            )
        self._held += size
