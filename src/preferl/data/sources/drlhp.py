"""Preference databases that learning-from-human-preferences saved, such as `train.pkl.gz`.

Each is a pickled object of classes that today's Python cannot import. Nothing in it is executed:
its objects are read as plain attributes.
"""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from preferl.data.columns import naming, reading_foreign, require_numbers
from preferl.data.comparisons import Comparisons
from preferl.data.segments import Segments
from preferl.data.sources.pickles import Fields, array_of, read_pickle
from preferl.errors import DataError
from preferl.reading import Expansion
from preferl.shapes import Array

CLASSES: Final = frozenset({"PrefDB", "CompressedDict"})


def load_drlhp_preferences(path: str | Path) -> Comparisons:
    """Read a preference database of learning-from-human-preferences.

    It holds only pictures and answers, so actions and rewards are zeros. Fit a reward model that
    looks only at observations (`use_actions=False`, the default for pictures). Scripted teachers
    cannot answer. Queries that people declined were never stored.

    Args:
        path: `train.pkl.gz` or `val.pkl.gz` of a log folder, of either version of the project.

    Raises:
        UnsafePickleError: the file asks for something other than arrays. Nothing was executed.
        DataError: the file is missing, cut off, or holds something else.
    """
    path = Path(path)
    with reading_foreign(path, "a whole database of preferences, as train.pkl.gz"), naming(path):
        expansion = Expansion.of(path)
        with gzip.open(path) as file:
            content = file.read(expansion.left + 1)
        expansion.add(len(content))
        database = read_pickle(content, expansion=expansion, objects=CLASSES)
        if not isinstance(database, Fields):
            raise DataError(f"database: expected a PrefDB, got {type(database).__name__}.")
        stored: Any = vars(database)["segments"]
        stored = vars(stored)["store"] if isinstance(stored, Fields) else stored
        named = {name: _pictures(packed, expansion) for name, packed in stored.items()}
        return _compared(named, vars(database)["prefs"], expansion)


def _pictures(packed: Any, expansion: Expansion) -> Array:
    """Return the pictures `[L, *obs]` of a clip."""
    if isinstance(packed, bytes):
        content = zlib.decompressobj().decompress(packed, expansion.left + 1)
        expansion.add(len(content))
        packed = read_pickle(content, expansion=expansion)
    pictures = np.asarray(array_of(packed, "clip", expansion))
    require_numbers("clip", pictures, "a stack of frames", axes=2)
    return np.ascontiguousarray(pictures)


def _compared(named: Mapping[Any, Array], prefs: Any, expansion: Expansion) -> Comparisons:
    if not prefs:
        raise DataError("database: expected at least one preference, got none.")
    place = {name: row for row, name in enumerate(named)}
    names = [name for first, second, _ in prefs for name in (first, second)]
    # hashing nested tuples may take for ever
    if not all(isinstance(name, int | str | bytes) for name in names):
        raise DataError("preferences: expected names of clips, got other objects.")
    pairs = np.array([place[name] for name in names], np.int64).reshape(-1, 2)
    answers = array_of([mu for *_, mu in prefs], "preferences", expansion).astype(np.float64)
    if not (answers.shape == (len(pairs), 2) and np.allclose(answers.sum(axis=1), 1)):
        raise DataError(f"preferences: expected (1, 0), (0, 1) or (0.5, 0.5), got {answers[0]}.")
    clips = list(named.values())
    kinds = {(clip.shape[1:], clip.dtype) for clip in clips}
    if len(kinds) != 1:
        raise DataError(f"clips: expected frames of one shape, got {sorted(map(str, kinds))}.")
    real = np.array([len(clip) for clip in clips])
    segments = Segments(
        observations=np.concatenate(clips),
        actions=np.zeros((int(real.sum()), 1), np.float32),
        rewards=np.zeros(int(real.sum())),
        start=np.cumsum(real) - real,
        real=real,
        length=int(real.max()),
    )
    return Comparisons(segments, pairs, answers[:, 0], np.ones(len(pairs)))
