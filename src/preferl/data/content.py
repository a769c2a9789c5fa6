"""Names of clips and pairs that follow from their steps, wherever these are stored."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Final

import numpy as np
from numpy.typing import NDArray

from preferl.data.arrays import content_id
from preferl.data.comparisons import Comparisons
from preferl.data.segments import Segments
from preferl.shapes import Array, IntArray

FACTOR: Final = 0x9E3779B97F4A7C15
"""Odd number by which the first clip of a pair differs from the second: 2^64 / golden ratio."""


def segment_ids(segments: Segments, columns: Iterable[Array]) -> NDArray[np.str_]:
    """Return the content id `[N]` of each segment, from its real steps in columns `[T, ...]`.

    Padding, and the place where a segment was cut, do not change its id.
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

    Two pairs have the same id if their clips have the same observations and actions, since a reward
    sees nothing else. Ids are the same in every process and on every machine. Pairs of several
    files can therefore be compared: `np.isin(pair_ids(these), pair_ids(those))`.

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
    """Return content ids `[P]` of 64 bits, short enough for a reward to remember many pairs.

    Two pairs have the same number if they have the same id, see `pair_ids`. Among a million
    different pairs, two have the same number with a probability of 3 in 100 million.
    """
    used, place = np.unique(comparisons.pairs, return_inverse=True)
    numbers = _clip_numbers(_windows(comparisons.segments, used))[place]
    clips = np.sort(numbers.reshape(comparisons.pairs.shape), axis=1)
    return (clips[:, 0] * np.uint64(FACTOR) + clips[:, 1]).view(np.int64)


def _clip_numbers(segments: Segments) -> NDArray[np.uint64]:
    """Return a content id `[N]` of 64 bits of each segment, from observations and actions.

    Fits compute the ids of all their clips. Processors have instructions for SHA-256, which are
    twice as fast as the BLAKE2b of `content_id`.
    """
    columns = _compared_columns(segments)
    layout = sha256(str([(column.dtype.str, column.shape[1:]) for column in columns]).encode())
    ends = segments.start + segments.real
    digests = []
    for start, end in zip(segments.start.tolist(), ends.tolist(), strict=True):
        digest = layout.copy()
        for column in columns:
            digest.update(np.ascontiguousarray(column[start:end]).data)
        digests.append(digest.digest()[:8])
    return np.frombuffer(b"".join(digests), np.dtype("<u8"))


def compared_ids(comparisons: Comparisons) -> NDArray[np.str_]:
    """Return the content ids `[P, 2]` of the clips of each pair, from observations and actions."""
    used, place = np.unique(comparisons.pairs, return_inverse=True)
    segments = _windows(comparisons.segments, used)
    ids = segment_ids(segments, _compared_columns(segments))
    return ids[place].reshape(comparisons.pairs.shape)


def _compared_columns(segments: Segments) -> list[Array]:
    """Return the columns `[T, ...]` of observations and actions."""
    observations = segments.observations
    if isinstance(observations, Mapping):  # another file may list the keys in another order
        return [*(observations[key] for key in sorted(observations)), segments.actions]
    return [observations, segments.actions]


def _windows(segments: Segments, rows: IntArray) -> Segments:
    """Select segments over the same block of steps, without copying any step."""
    return replace(segments, start=segments.start[rows], real=segments.real[rows], origin=None)
