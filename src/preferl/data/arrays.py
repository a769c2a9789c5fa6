"""Arrays in files: `.npy`, `.npz`, and atomic folders of `.npy` that are read as memory maps."""

import hashlib
import json
import math
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast

import numpy as np

from preferl.data.columns import require_names
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import STEPS, Episodes
from preferl.data.on_disk import OnDisk
from preferl.data.segments import Segments
from preferl.errors import DataError, StorageError, in_words
from preferl.files import writing
from preferl.reading import Expansion, inside, read_object, reading
from preferl.shapes import Array

Table = TypeVar("Table", Episodes, Segments, Comparisons)

FORMAT = 1
"""Version of the folder layout; folders with another version are refused."""

ROW_BYTES: Final = 8
"""Bytes of a row number."""

ROWS_AT_ONCE = 1024
"""Number of pictures that are copied from disk to disk at once."""

_HEADERS: Final[dict[tuple[int, int], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@contextmanager
def _damage_as_value_error() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError):
        raise
    except Exception as error:  # headers are Python literals, and members may be encrypted
        raise ValueError(f"{type(error).__name__}: {error}") from error


def load_npy(path: Path, *, memory_map: bool = False) -> Array:
    """Read a `.npy` file of numbers or text; a damaged file raises OSError or ValueError."""
    with _damage_as_value_error():
        with path.open("rb") as file:
            _declared_size(file, path.stat().st_size, "")
        array = np.load(path, mmap_mode="r" if memory_map else None, allow_pickle=False)
        return cast("Array", array)


def load_npz(path: Path, names: Collection[str] | None = None) -> dict[str, Array]:
    """Read all arrays of numbers from a `.npz` file, or only the arrays with the given names.

    A damaged file raises OSError or ValueError. Missing or far too large arrays raise DataError.
    """
    expansion = Expansion.of(path)
    # The file is opened here because numpy leaves a file open that is not in its format.
    with _damage_as_value_error(), path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        member_names = {name.removesuffix(".npy"): name for name in archive.namelist()}
        require_names(path, names or (), member_names, "arrays")
        arrays = {}
        for name in member_names if names is None else names:
            with archive.open(member_names[name]) as member:
                stored = archive.getinfo(member_names[name]).file_size
                expansion.add(_declared_size(member, stored, f"{member_names[name]} of "))
            with archive.open(member_names[name]) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
        return arrays


def _declared_size(file: IO[bytes], stored: int, what: str) -> int:
    """Return how many bytes a header declares; check that they exist and numpy can index them."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:  # version 3.0 is for names of columns
        raise ValueError(f"version {version} of the format")
    shape: tuple[int, ...]
    shape, _, dtype = _HEADERS[version](file)
    if dtype.kind not in "biufcSU" or not dtype.itemsize:
        raise ValueError(f"an array of {dtype}")
    # Numpy indexes by the other axes even if one of them is 0.
    if min(shape, default=0) < 0 or math.prod(max(n, 1) for n in shape) * dtype.itemsize >= 2**62:
        raise ValueError(f"shape {shape}")
    size = math.prod(shape) * int(dtype.itemsize)
    available = stored - file.tell()
    if size > available:
        raise ValueError(f"{what}{size:,} bytes declared and {available:,} there")
    return size


def save_arrays(
    path: Path, arrays: Mapping[str, Array], about: Mapping[str, Any], *, durable: bool = True
) -> None:
    """Write a folder with one `.npy` per array and an `about.json`, all or nothing.

    Args:
        path: the folder; an older one is replaced.
        arrays: arrays of numbers by name; `/` in a name makes subfolders.
        about: further values to store, as JSON.
        durable: return only after all files are on disk, so that a power loss cannot undo them.

    Raises:
        DataError: an array holds objects, or a name points outside the folder.
        StorageError: the folder cannot be written to, or holds files other than arrays, which
            writing would delete.
    """
    path = Path(path)
    for name, array in arrays.items():
        _require_plain(f"array {name!r}", array)
        if not all(part.strip(".") for part in name.split("/")):
            raise DataError(f"array name: expected words joined by '/', got {name!r}.")
    if path.is_dir() and any(path.iterdir()) and not (path / "about.json").is_file():
        raise StorageError(
            f"{path}: expected a new or empty folder, or one written by preferl, got a folder that "
            "holds something else. Choose another name, since its content would be replaced."
        )
    remembered = {"format": FORMAT, **about, "arrays": list(arrays)}
    with writing(path, durable=durable) as draft:
        draft.mkdir()
        for name, array in arrays.items():
            file = draft / f"{name}.npy"
            file.parent.mkdir(parents=True, exist_ok=True)
            _save(file, array)
        (draft / "about.json").write_text(json.dumps(remembered, indent=2), encoding="utf-8")


def _save(file: Path, array: Any) -> None:
    if not isinstance(array, OnDisk):
        np.save(file, array, allow_pickle=False)
        return
    written = np.lib.format.open_memmap(file, "w+", array.dtype, array.shape)
    for start in range(0, len(array), ROWS_AT_ONCE):
        written[start : start + ROWS_AT_ONCE] = array[start : start + ROWS_AT_ONCE]
    written.flush()


def load_arrays(path: Path, *, memory_map: bool = True) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what `save_arrays` wrote: `(arrays, about)`. The arrays may stay on disk until used.

    Raises:
        DataError: the folder was not written by `save_arrays`, has a newer format, or holds a file
            that is cut off.
    """
    path = Path(path)
    expected = "a folder written by preferl, with an about.json"
    with reading(path, expected=expected, error=DataError):
        description = read_object(path / "about.json")
    version = description.get("format")
    if version != FORMAT:
        raise DataError(
            f"format of {path}: expected {FORMAT}, got {version}. Read it with the version of "
            "preferl that wrote it."
        )
    with reading(path / "about.json", expected="names of arrays in this folder", error=DataError):
        names = description.pop("arrays")  # their order has a meaning
        if not isinstance(names, list):
            raise TypeError(f"{type(names).__name__}, not a list")
        files = {name: inside(path, f"{name}.npy") for name in names}
    return {name: _load_array(file, memory_map) for name, file in files.items()}, description


def _load_array(file: Path, memory_map: bool) -> Array:
    try:
        return load_npy(file, memory_map=memory_map)
    except (OSError, ValueError) as error:
        fix = "The file is damaged or gone; restore it from a copy."
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            fix = "It cannot be read now; remove the cause and try again."
        raise DataError(
            f"{file}: expected a whole .npy file, got {in_words(error)}. {fix}"
        ) from error


def save_episodes(
    path: Path, episodes: Episodes, *, about: Mapping[str, Any] | None = None
) -> None:
    """Write episodes as a folder of arrays, and replace an older one.

    `about` is stored with them.
    """
    metadata = {} if about is None else {"about": dict(about)}
    save_arrays(path, arrays_of(episodes), {"kind": "episodes", **metadata})


def load_episodes(path: Path, *, memory_map: bool = True) -> Episodes:
    """Read episodes, which stay on disk until they are used.

    Raises:
        DataError: the folder holds something else, or is damaged.
    """
    with _loaded(path, "episodes", memory_map) as (arrays, _):
        return _table(Episodes, arrays)


def save_segments(path: Path, segments: Segments, *, durable: bool = True) -> None:
    """Write segments with only the steps that they need. Each step is written once."""
    segments = segments.select(np.arange(len(segments)))
    description = {"kind": "segments", "length": segments.length}
    save_arrays(path, arrays_of(segments), description, durable=durable)


def load_segments(path: Path, *, memory_map: bool = True) -> Segments:
    """Read segments, which stay on disk until they are used."""
    with _loaded(path, "segments", memory_map) as (arrays, description):
        return _segments(path, arrays, description)


def save_comparisons(path: Path, comparisons: Comparisons) -> None:
    """Write comparisons with only the steps that they need. Each step is written once."""
    comparisons = comparisons.compact()
    arrays = arrays_of(comparisons.segments) | arrays_of(comparisons)
    save_arrays(path, arrays, {"kind": "comparisons", "length": comparisons.segments.length})


def load_comparisons(path: Path, *, memory_map: bool = True) -> Comparisons:
    """Read comparisons from their folder or from that of a run. They stay on disk.

    For errors, see `load_episodes`.
    """
    path = comparisons_folder(path)
    with _loaded(path, "comparisons", memory_map) as (arrays, about):
        return _table(Comparisons, arrays, segments=_segments(path, arrays, about))


def comparisons_folder(path: Path) -> Path:
    """Return a folder of comparisons, or the folder of those in a run."""
    kept = Path(path) / "comparisons"  # runs keep them there
    return kept if kept.is_dir() and not (kept.parent / "about.json").is_file() else path


def content_id(*arrays: Array) -> str:
    """Name arrays by their content. The name is the same in every process and on every machine.

    Raises:
        DataError: an array holds objects, whose bytes are addresses.

    >>> content_id(np.zeros(2)) == content_id(np.zeros(2)), content_id(np.zeros((2, 1)))[:8]
    (True, 'cee5f447')
    """
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        _require_plain("array", array)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _require_plain(name: str, array: Array) -> None:
    if array.dtype.hasobject:
        raise DataError(f"{name}: expected numbers or strings, got Python objects.")


@contextmanager
def _loaded(
    path: Path, kind: str, memory_map: bool
) -> Iterator[tuple[dict[str, Array], dict[str, Any]]]:
    """Yield the arrays of a folder and its `about.json`; errors in the block name the folder."""
    arrays, description = load_arrays(path, memory_map=memory_map)
    if description.get("kind") != kind:
        raise DataError(f"{path}: expected {kind}, got {description.get('kind')}.")
    with reading(path, expected=f"the arrays of {kind}", error=DataError):
        yield arrays, description


def arrays_of(table: Any) -> dict[str, Array]:
    """Return the columns that a table has, by name.

    Dictionary observations give a column per key.
    """
    arrays: dict[str, Any] = {}
    for field in fields(table):
        column = getattr(table, field.name)
        if isinstance(column, dict):
            arrays |= {f"{field.name}/{key}": array for key, array in column.items()}
        elif column is not None and field.name not in ("length", "segments"):
            arrays[field.name] = column
    return arrays


def _table(cls: type[Table], arrays: Mapping[str, Array], **others: Any) -> Table:
    """Build a table from arrays, with the names that `arrays_of` gives them, and other fields."""
    for name, default in ((f.name, f.default) for f in fields(cls) if f.name not in others):
        start = f"{name}/"
        keyed = {k.removeprefix(start): a for k, a in arrays.items() if k.startswith(start)}
        others[name] = arrays.get(name, keyed or None)
        if others[name] is None and default is not None:
            raise DataError(f"array folder: expected an array {name!r}, got {list(arrays)}.")
    return cls(**others)


def _segments(path: Path, arrays: Mapping[str, Array], description: Mapping[str, Any]) -> Segments:
    segments = _table(Segments, arrays, length=int(description["length"]))
    columns = [array for name, array in arrays.items() if name.partition("/")[0] in STEPS]
    step_bytes = sum(array.nbytes for array in columns) // max(1, segments.steps)
    places = len(segments) * segments.length
    padded = places - int(segments.real.sum())
    # Laying out clips needs memory for row numbers and for padding, which is not stored.
    expansion = Expansion(path, sum(array.nbytes for array in arrays.values()))
    expansion.add(places * ROW_BYTES + padded * step_bytes)
    return segments
