"""Databases of preferences that learning-from-human-preferences saved, such as `train.pkl.gz`.

Each is a pickled object of classes that today's Python cannot import. Nothing of it is executed:
its objects are read as bare attributes.
"""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from preferl.bounds import Expansion
from preferl.data.columns import require_numbers
from preferl.data.comparisons import Comparisons
from preferl.data.segments import Segments
from preferl.data.sources.pickles import Fields, array_of, read_pickle
from preferl.errors import DataError, UnsafePickleError
from preferl.shapes import Array

CLASSES: Final = frozenset({"PrefDB", "CompressedDict"})
DAMAGED: Final = (OSError, EOFError, zlib.error)


def load_drlhp_preferences(path: str | Path) -> Comparisons:
    """Read one of its databases.

    It holds pictures and answers only: actions and rewards are zeros, so that a reward model
    for it looks at observations alone (`use_actions=False`, the default of the one for pictures),
    and scripted teachers have nothing to go by. Answers that somebody could not tell were never
    stored.

    Args:
        path: `train.pkl.gz` or `val.pkl.gz` of a log folder, of either version of the project.

    Returns:
        Comparisons of clips that are each there once, however often they were compared.

    Raises:
        UnsafePickleError: the file asks for something else than arrays; nothing was executed.
        DataError: the file is not there, cut off, or holds something else.
    """
    path = Path(path)
    try:
        expansion = Expansion.of(path)
        with gzip.open(path) as file:
            content = file.read(expansion.left + 1)
        expansion.add(len(content))
        database = read_pickle(content, expansion=expansion, objects=CLASSES)
        named = _clips(database, expansion)
        comparisons = _compared(named, vars(database)["prefs"], expansion)
    except UnsafePickleError as error:
        raise UnsafePickleError(f"{path}: {error}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (*DAMAGED, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError.mismatch(
            f"{path}",
            expected="a whole database of preferences, as train.pkl.gz",
            got=f"{type(error).__name__}: {error}",
            fix="Check the path, and that the file was copied whole.",
        ) from error
    return comparisons


def _clips(database: Any, expansion: Expansion) -> dict[Any, Array]:
    """Pictures of each clip, `[L, *obs]`, by its name in the file."""
    if not isinstance(database, Fields):
        raise DataError.mismatch("database", expected="a PrefDB", got=type(database).__name__)
    segments: Any = vars(database)["segments"]
    stored: Mapping[Any, Any] = (
        vars(segments)["store"] if isinstance(segments, Fields) else segments
    )
    return {name: _pictures(packed, expansion) for name, packed in stored.items()}


def _pictures(packed: Any, expansion: Expansion) -> Array:
    if isinstance(packed, bytes):
        inflate = zlib.decompressobj()
        content = inflate.decompress(packed, expansion.left + 1)
        expansion.add(len(content))
        packed = read_pickle(content, expansion=expansion)
    pictures = np.asarray(array_of(packed, "clip", expansion))
    require_numbers("clip", pictures, "a stack of frames", axes=2)
    return np.ascontiguousarray(pictures)


def _compared(named: Mapping[Any, Array], prefs: Any, expansion: Expansion) -> Comparisons:
    if not prefs:
        raise DataError.mismatch("database", expected="at least one preference", got="none")
    place = {name: row for row, name in enumerate(named)}
    names = [name for first, second, _ in prefs for name in (first, second)]
    if not all(isinstance(name, int | str | bytes) for name in names):  # tuples may hash for ever
        raise DataError.mismatch("preferences", expected="names of clips", got="other objects")
    pairs = np.array([place[name] for name in names], np.int64).reshape(-1, 2)
    answers = array_of([mu for *_, mu in prefs], "preferences", expansion).astype(np.float64)
    if answers.shape != (len(pairs), 2) or not np.allclose(answers.sum(axis=1), 1):
        raise DataError.mismatch(
            "preferences", expected="(1, 0), (0, 1) or (0.5, 0.5)", got=answers[0]
        )
    clips = list(named.values())
    kinds = {(clip.shape[1:], clip.dtype) for clip in clips}
    if len(kinds) > 1:
        raise DataError.mismatch(
            "clips", expected="frames of one shape", got=sorted(map(str, kinds))
        )
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
