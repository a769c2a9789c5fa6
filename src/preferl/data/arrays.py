"""Folders of `.npy` files: written atomically, read as memory maps, addressed by content."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.npy import load_npy
from preferl.data.on_disk import OnDisk
from preferl.data.segments import Segments
from preferl.errors import DataError, StorageError
from preferl.files import writing
from preferl.reading import inside, read_object, reading
from preferl.shapes import Array, Observations

FORMAT = 1
"""Version of the folder layout, raised when it changes so that older readers say so."""

MOST_STEPS = 2**20
"""Of a clip in a folder: whoever gathers clips takes room for as many steps."""

ROWS_AT_ONCE = 1024
"""Pictures copied from disk to disk at a time."""


def save_arrays(
    path: Path, arrays: Mapping[str, Array], about: Mapping[str, Any], *, durable: bool = True
) -> None:
    """Write a folder with one `.npy` per array and an `about.json`, all or nothing.

    Args:
        path: the folder, replaced if it exists.
        arrays: names, in which `/` makes subfolders, to arrays of numbers.
        about: what else to remember, as JSON.
        durable: return only once all of it is on the disk, whatever happens to the power.

    Raises:
        DataError: an array of objects, or a name that points outside the folder.
        StorageError: the folder cannot be written to, or holds something else than arrays,
            which would be lost.
    """
    path = Path(path)
    _require_writable(arrays)
    if path.is_dir() and any(path.iterdir()) and not (path / "about.json").is_file():
        raise StorageError.mismatch(
            f"{path}",
            expected="a new or empty folder, or one written by preferl",
            got="a folder that holds something else",
            fix="Choose another name: what is there would be replaced.",
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
    else:
        written = np.lib.format.open_memmap(file, "w+", array.dtype, array.shape)
        for start in range(0, len(array), ROWS_AT_ONCE):
            written[start : start + ROWS_AT_ONCE] = array[start : start + ROWS_AT_ONCE]
        written.flush()


def load_arrays(path: Path, *, memory_map: bool = True) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what `save_arrays` wrote: `(arrays, about)`.

    Args:
        path: the folder.
        memory_map: leave the numbers on disk until they are used (the default).

    Raises:
        DataError: not such a folder, a newer format, or a file that is cut off.
    """
    path = Path(path)
    expected = "a folder written by preferl, with an about.json"
    with reading(path, expected=expected, error=DataError):
        about = read_object(path / "about.json")
    if about.get("format") != FORMAT:
        raise DataError.mismatch(
            f"format of {path}",
            expected=FORMAT,
            got=about.get("format"),
            fix="Read it with the version of preferl that wrote it.",
        )
    with reading(path / "about.json", expected="names of arrays in this folder", error=DataError):
        names = about.pop("arrays")  # in the order they were saved, since that has a meaning
        if not isinstance(names, list):
            raise TypeError(f"{type(names).__name__}, not a list")
        files = {name: inside(path, f"{name}.npy") for name in names}
    return {name: _load_array(file, memory_map) for name, file in files.items()}, about


def _load_array(file: Path, memory_map: bool) -> Array:
    try:
        return load_npy(file, memory_map=memory_map)
    except (OSError, ValueError) as error:
        there = isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
        raise DataError.mismatch(
            f"{file}",
            expected="a whole .npy file",
            got=error,
            fix="It cannot be read now; try again when what the system names is mended."
            if there
            else "The file is damaged or gone; restore it from a copy.",
        ) from error


def save_episodes(
    path: Path, episodes: Episodes, *, about: Mapping[str, Any] | None = None
) -> None:
    """Write episodes as a folder of arrays.

    Args:
        path: the folder, replaced if it exists.
        episodes: what to write.
        about: what else `about.json` tells of them, under the name `about`.
    """
    arrays = {
        **_flat("observations", episodes.observations),
        **_flat("final_observations", episodes.final_observations),
        "actions": episodes.actions,
        "rewards": episodes.rewards,
        "terminated": episodes.terminated,
        "lengths": episodes.lengths,
    }
    if episodes.states is not None:
        arrays["states"] = episodes.states
    known = {} if about is None else {"about": dict(about)}
    save_arrays(path, arrays, {"kind": "episodes", **known})


def load_episodes(path: Path, *, memory_map: bool = True) -> Episodes:
    """Read episodes, left on disk until used.

    Raises:
        DataError: the folder holds something else, or is damaged.
    """
    with _kept(path, "episodes", memory_map) as (arrays, _):
        return Episodes(
            observations=_nested("observations", arrays),
            actions=arrays["actions"],
            rewards=arrays["rewards"],
            terminated=arrays["terminated"],
            final_observations=_nested("final_observations", arrays),
            lengths=arrays["lengths"],
            states=arrays.get("states"),
        )


def save_segments(path: Path, segments: Segments, *, durable: bool = True) -> None:
    """Write segments with only the steps they need, each once."""
    segments = segments.select(np.arange(len(segments)))
    about = {"kind": "segments", "length": segments.length}
    save_arrays(path, segment_arrays(segments), about, durable=durable)


def load_segments(path: Path, *, memory_map: bool = True) -> Segments:
    """Read segments, left on disk until used.

    Raises:
        DataError: the folder holds something else, or is damaged.
    """
    with _kept(path, "segments", memory_map) as (arrays, about):
        return _to_segments(arrays, about)


def save_comparisons(path: Path, comparisons: Comparisons) -> None:
    """Write comparisons with only the steps they need, each once."""
    comparisons = comparisons.compact()
    arrays = segment_arrays(comparisons.segments) | {
        "pairs": comparisons.pairs,
        "preference": comparisons.preference,
        "weight": comparisons.weight,
    }
    if comparisons.annotator is not None:
        arrays["annotator"] = comparisons.annotator
    length = comparisons.segments.length
    save_arrays(path, arrays, {"kind": "comparisons", "length": length})


def load_comparisons(path: Path, *, memory_map: bool = True) -> Comparisons:
    """Read comparisons, left on disk until used.

    Raises:
        DataError: the folder holds something else, or is damaged.
    """
    with _kept(path, "comparisons", memory_map) as (arrays, about):
        return Comparisons(
            _to_segments(arrays, about),
            arrays["pairs"],
            arrays["preference"],
            arrays["weight"],
            arrays.get("annotator"),
        )


def segment_arrays(segments: Segments) -> dict[str, Array]:
    """The arrays of segments by the names that they have in a folder."""
    arrays = {
        **_flat("observations", segments.observations),
        "actions": segments.actions,
        "rewards": segments.rewards,
        "start": segments.start,
        "real": segments.real,
    }
    optional = {"origin": segments.origin, "states": segments.states}
    return arrays | {name: array for name, array in optional.items() if array is not None}


def _to_segments(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> Segments:
    if int(about["length"]) > MOST_STEPS:
        raise ValueError(f"clips of {about['length']} steps")
    return Segments(
        observations=_nested("observations", arrays),
        actions=arrays["actions"],
        rewards=arrays["rewards"],
        start=arrays["start"],
        real=arrays["real"],
        length=int(about["length"]),
        origin=arrays.get("origin"),
        states=arrays.get("states"),
    )


def content_id(*arrays: Array) -> str:
    """A name for arrays by their content, equal in every process and on every machine.

    Raises:
        DataError: an array of objects, whose bytes are addresses.

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
        raise DataError.mismatch(name, expected="numbers or strings", got="Python objects")


def _require_writable(arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        _require_plain(f"array {name!r}", array)
        if not all(part.strip(".") for part in name.split("/")):
            raise DataError.mismatch("array name", expected="words joined by '/'", got=repr(name))


@contextmanager
def _kept(
    path: Path, kind: str, memory_map: bool
) -> Iterator[tuple[dict[str, Array], dict[str, Any]]]:
    """The arrays of a folder of a kind and what it says of them, to be put together."""
    arrays, about = load_arrays(path, memory_map=memory_map)
    if about.get("kind") != kind:
        raise DataError.mismatch(f"{path}", expected=kind, got=about.get("kind"))
    with reading(path, expected=f"the arrays of {kind}", error=DataError):
        yield arrays, about


def _flat(name: str, observations: Observations) -> dict[str, Array]:
    if isinstance(observations, dict):
        return {f"{name}/{key}": array for key, array in observations.items()}
    return {name: observations}


def _nested(name: str, arrays: Mapping[str, Array]) -> Observations:
    if name in arrays:
        return arrays[name]
    prefix = f"{name}/"
    found = {key[len(prefix) :]: a for key, a in arrays.items() if key.startswith(prefix)}
    if not found:
        raise DataError.mismatch("array folder", expected=f"an array {name!r}", got=list(arrays))
    return found
