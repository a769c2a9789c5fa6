"""Pairs that lie far apart, so that few answers cover much of what was seen.

Greedy k-center: Sener and Savarese, "Active learning for convolutional neural networks: a core-set
approach" (2018); for preferences, Lee et al., "B-Pref" (2021), section 4.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.segments import Segments
from preferl.errors import FeedbackError, require_in
from preferl.feedback.protocols import PairSampler
from preferl.feedback.sampling import (
    MOST_OVERSAMPLING,
    UniformPairs,
    finite_table,
    oversampled,
    segments_wanted,
)
from preferl.shapes import FloatArray, IntArray, leaves


def mean_observation(segments: Segments) -> FloatArray:
    """`[N, F]` observations of each window, flattened and averaged over its real steps.

    >>> block = np.arange(4.0)[:, None]
    >>> segments = Segments(block, block, np.zeros(4), np.array([0, 2]), np.array([3, 1]), 3)
    >>> mean_observation(segments).tolist()
    [[1.0], [2.0]]
    """
    rows, mask = segments.rows(), segments.mask()
    features = []
    for leaf in leaves(segments.observations):
        flat = leaf.reshape(len(leaf), -1)  # [T, *obs] to [T, F]
        total = np.zeros((len(segments), flat.shape[1]))
        for step in range(segments.length):  # never [N, L, F] at once: it may be pixels
            total += flat[rows[:, step]] * mask[:, step, None]
        features.append(total / segments.real[:, None])
    return np.concatenate(features, axis=1)


@final
@dataclass(frozen=True)
class CoveringPairs:
    """Candidate pairs, thinned so that each one taken is as far as can be from those before it.

    The distance of two pairs is Euclidean over the features of both clips, whichever way round
    they are nearer, since a pair asked the other way round is the same query. Each feature is
    divided by its deviation over the segments, so that units do not matter.

    Attributes:
        candidates: where pairs come from; uniform by default. With `InformativePairs(scorer,
            oversampling=2)` and `oversampling=5` these are B-Pref's hybrids: ten pairs are drawn
            for each one asked, the more informative half is kept, and that is thinned.
        oversampling: candidate pairs for each one asked, at least 1; 10 as in B-Pref.
        features: `[N, F]` numbers per segment; the mean observation by default. Choose
            others for pixels, whose mean says little.
        asked: comparisons to keep away from, too, such as `feedback.comparisons`; until that has
            any, and by default, the first candidate is the first pair.

    Raises:
        ConfigError: oversampling below 1.
    """

    candidates: PairSampler = field(default_factory=UniformPairs)
    oversampling: float = 10
    features: Callable[[Segments], FloatArray] = mean_observation
    asked: Callable[[], Comparisons] | None = None

    def __post_init__(self) -> None:
        require_in("oversampling", self.oversampling, 1, MOST_OVERSAMPLING)

    def __call__(self, segments: Segments, count: int, rng: np.random.Generator) -> IntArray:
        """`[count, 2]` rows of `segments`, in the order taken.

        Raises:
            FeedbackError: features of a wrong shape, too few candidates, or fewer than two
                different windows.
        """
        pairs = self.candidates(segments, oversampled(segments, count, self.oversampling), rng)
        enough, there = len(pairs) >= count, len(pairs)
        FeedbackError.check(enough, "candidate pairs", f"at least {count}", there)
        if count == 0:
            return pairs[:0]
        features = self._features(segments)
        middle, deviation = features.mean(axis=0), features.std(axis=0)
        scale = np.where(deviation > 0, deviation, 1.0)
        points = ((features - middle) / scale)[pairs]  # [C, 2, F]
        nearest = np.full(len(points), np.inf)  # [C] squared distance to the pairs asked before
        asked = None
        with suppress(FeedbackError):  # raised where nothing has been answered yet
            asked = self.asked() if self.asked else None
        if asked is not None and len(asked):
            centres = ((self._features(asked.segments) - middle) / scale)[asked.pairs]
            nearest = squared_distances(points, centres).min(axis=1)
        return pairs[farthest_first(points, count, nearest)]

    def segments_for(self, queries: int) -> int:
        """As many as `candidates` wants for all the pairs that are drawn."""
        return segments_wanted(self.candidates, ceil(self.oversampling * queries))

    def _features(self, segments: Segments) -> FloatArray:
        found = self.features(segments)
        return finite_table("features of segments", found, len(segments), None)


def farthest_first(points: FloatArray, count: int, nearest: FloatArray) -> IntArray:
    """Rows of `count` of the `[C, 2, F]` points, each the farthest from those taken before it.

    `nearest` is the `[C]` squared distance to what is covered already; infinite where nothing is.
    """
    nearest = nearest.copy()
    taken = np.empty(count, np.int64)
    for place in range(count):
        row = taken[place] = np.argmax(nearest)
        distance = squared_distances(points, points[row : row + 1])[:, 0]
        np.minimum(nearest, distance, out=nearest)
        nearest[row] = -1.0  # even where all points coincide, none is taken twice
    return taken


def squared_distances(points: FloatArray, centres: FloatArray) -> FloatArray:
    """`[C, 2, F]` and `[A, 2, F]` to `[C, A]`, each pair turned the way that is nearer.

    Products stand in for differences, so that no `[C, A, F]` is ever laid out.
    """
    left = points.reshape(len(points), -1)  # [C, 2, F] to [C, 2F]
    right = centres.reshape(len(centres), -1)  # [A, 2, F] to [A, 2F]
    turned = centres[:, ::-1].reshape(len(centres), -1)
    nearer = np.maximum(left @ right.T, left @ turned.T)
    square = np.einsum("ij,ij->i", left, left)[:, None] + np.einsum("ij,ij->i", right, right)
    return np.asarray(np.maximum(square - 2 * nearer, 0.0))  # rounding may fall below zero
