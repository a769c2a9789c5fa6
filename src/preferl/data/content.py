"""Names of clips and pairs by the steps that they hold, wherever these are stored."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from preferl.data.arrays import content_id
from preferl.data.comparisons import Comparisons
from preferl.data.segments import Segments
from preferl.shapes import Array, IntArray


def segment_ids(segments: Segments, columns: Iterable[Array]) -> NDArray[np.str_]:
    """Return the content id `[N]` of each segment, from its real steps in columns `[T, ...]`.

    Neither padding nor the place where a segment was cut changes its id.
    """
    columns = list(columns)
    ends = segments.start + segments.real
    names = [
        content_id(*(column[start:end] for column in columns))
        for start, end in zip(segments.start, ends, strict=True)
    ]
    return np.array(names, np.str_)


def pair_ids(comparisons: Comparisons) -> NDArray[np.str_]:
    """Return the content id `[P]` of each pair, which does not depend on the order of its clips.

    Two pairs have the same id if their clips hold the same observations and actions, since a
    reward sees nothing else. Ids are equal in every process and on every machine, so that pairs
    of several files can be compared: `np.isin(pair_ids(these), pair_ids(those))`.

    >>> block = np.array([[1.0], [2.0], [3.0], [1.0], [2.0]])
    >>> segments = Segments(block, block, np.zeros(5), np.array([0, 1, 3]), np.array([2, 2, 2]), 2)
    >>> pairs = np.array([[0, 1], [1, 2], [0, 2]])
    >>> ids = pair_ids(Comparisons.of(segments, pairs, np.ones(3)))
    >>> bool(ids[0] == ids[1]), bool(ids[0] == ids[2])
    (True, False)
    """
    ids = np.sort(compared_ids(comparisons), axis=1)
    return np.asarray(np.char.add(ids[:, 0], ids[:, 1]))


def pair_numbers(comparisons: Comparisons) -> IntArray:
    """Return `[P]` content ids of 64 bits, short enough for a reward to remember many pairs.

    Among a million pairs, two have the same number with a probability of 3 in 100 million.
    """
    return np.array(
        [
            int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)
            for name in pair_ids(comparisons)
        ],
        np.int64,
    )


def compared_ids(comparisons: Comparisons) -> NDArray[np.str_]:
    """Return the content ids `[P, 2]` of the clips of each pair, by observations and actions."""
    used, place = np.unique(comparisons.pairs, return_inverse=True)
    segments = _windows(comparisons.segments, used)
    observations = segments.observations
    if isinstance(observations, Mapping):  # another file may list the keys in another order
        seen = [observations[key] for key in sorted(observations)]
    else:
        seen = [observations]
    ids = segment_ids(segments, [*seen, segments.actions])
    return ids[place].reshape(comparisons.pairs.shape)


def _windows(segments: Segments, rows: IntArray) -> Segments:
    """Select segments over the same block of steps, without copying any step."""
    return replace(segments, start=segments.start[rows], real=segments.real[rows], origin=None)
