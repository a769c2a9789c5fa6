"""Which pairs to ask about: any pairs, the most informative ones, or pairs that are far apart.

Acquisition functions map the members' preference logits `[E, P]` to values `[P]`, which say how
informative an answer would be. The logits are log-odds of the probabilities under the fitted
likelihood. Functions that compute a variance raise `FeedbackError` if there are fewer than two
members. Christiano et al., "Deep RL from human preferences" (2017), section 2.2.4, ask where
predicted preferences disagree. Lee et al., "B-Pref" (2021), section 4, add the entropy, and the
greedy k-center of Sener and Savarese, "Active learning for convolutional neural networks: a
core-set approach" (2018).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.segments import Segments
from preferl.errors import FeedbackError, require_in
from preferl.feedback.likelihood import Likelihood
from preferl.feedback.protocols import PairSampler, WantsSegments
from preferl.shapes import FloatArray, IntArray, leaves

Acquisition = Callable[[FloatArray], FloatArray]
"""Maps preference logits `[E, P]` to values `[P]`.

Pairs with the largest values are asked first.
"""

Scorer = Callable[[Segments], FloatArray | None]
"""Scores `[E, N]` of segments, whose differences are each member's preference logits.

None while there is no reward model.
"""

MOST_OVERSAMPLING = 1e6
"""Most candidates per query; a larger setting is a mistake."""


def logit_variance(logits: FloatArray) -> FloatArray:
    """Compute the unbiased variance of the logits over members.

    If the likelihood has no noise, the variance keeps growing with the size of the scores. It then
    favours pairs about which every member is sure, but not equally sure.

    >>> logit_variance(np.array([[1.0, 2.0], [3.0, 2.0]])).tolist()
    [2.0, 0.0]
    """
    return np.asarray(_members(logits).var(axis=0, ddof=1))


def probability_variance(logits: FloatArray) -> FloatArray:
    """Compute the population variance of the predicted preferences over members, at most 0.25.

    >>> probability_variance(np.array([[-1000.0, 0.0], [1000.0, 0.0]])).tolist()
    [0.25, 0.0]
    """
    return np.asarray(sigmoid(_members(logits)).var(axis=0))


def label_variance(logits: FloatArray) -> FloatArray:
    """Compute `p (1 - p)` for the share `p` of members that prefer the first.

    Undecided members count half.

    >>> label_variance(np.array([[0.1, 5.0], [-9.0, 5.0]])).tolist()
    [0.25, 0.0]
    """
    share = np.heaviside(_members(logits), 0.5).mean(axis=0)
    return np.asarray(share * (1 - share))


def entropy(logits: FloatArray) -> FloatArray:
    """Compute the mean entropy of the members' preferences, in nats, at most log 2.

    This asks where members are unsure, not where they disagree, so one member is enough.

    >>> entropy(np.array([[0.0, 1000.0]])).round(4).tolist()
    [0.6931, 0.0]
    """
    size = np.minimum(np.abs(np.asarray(logits, np.float64)), 700.0)  # exp(-700) is still above 0
    against = np.exp(-size)
    return np.asarray((np.log1p(against) + size * against / (1 + against)).mean(axis=0))


def sigmoid(logits: FloatArray) -> FloatArray:
    """Compute the probability of a logit, without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(logits, np.float64))))


def _members(logits: FloatArray) -> FloatArray:
    logits = np.asarray(logits, np.float64)
    if logits.ndim != 2 or len(logits) < 2:
        raise FeedbackError(
            "members of the reward model: expected at least 2, since one has no variance, got "
            f"logits of shape {logits.shape}. Train an ensemble, choose `entropy`, or ask with "
            "UniformPairs."
        )
    return logits


@final
@dataclass(frozen=True)
class UniformPairs:
    """Pairs of two different windows; every pair has the same probability.

    Windows are matched as in a tournament. Each is shown equally often, or once more or less. No
    two windows meet again until each of them has met all others. `2 count` windows are therefore
    shown exactly once each. A coin decides which window of a pair comes first.

    >>> block = np.zeros((9, 1))
    >>> segments = Segments(block, block, np.zeros(9), np.arange(4), np.full(4, 3), 3)
    >>> pairs = UniformPairs()(segments, 6, np.random.default_rng(0))
    >>> sorted(np.sort(pairs).tolist())
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    """

    def __call__(self, segments: Segments, count: int, rng: np.random.Generator) -> IntArray:
        """Draw pairs `[count, 2]` of rows of `segments`.

        Raises:
            ConfigError: `count` is negative.
            FeedbackError: there are fewer than two different windows.
        """
        require_in("count", count, 0, inf)
        if count == 0:
            return np.empty((0, 2), np.int64)
        windows = rng.permutation(distinct_windows(segments))
        if len(windows) < 2:
            raise FeedbackError(
                f"segments to pair: expected at least 2 different windows, got {len(windows)}. "
                "Record more steps or shorten the segments."
            )
        return rng.permuted(windows[_tournament(len(windows), count, rng)], axis=1)

    def segments_for(self, queries: int) -> int:
        """Return two segments for each query, so that each is shown once."""
        return 2 * queries


@final
@dataclass(frozen=True)
class InformativePairs:
    """Of many pairs that are drawn uniformly, those whose answers would be most informative.

    Attributes:
        scorer: `[E, N]` scores of segments, such as `RewardFunction.scores`. If it is None or
            returns None, pairs are drawn uniformly, since there is no reward model before the first
            answers.
        acquisition: what makes a pair informative; by default the disagreement of predicted
            preferences, as in DRLHP.
        oversampling: how many pairs are drawn for each one that is asked, at least 1; 10 as in
            B-Pref.
        likelihood: how differences of scores become probabilities, such as
            `RewardFunction.likelihood`, or a function that returns the current one.

    Raises:
        ConfigError: `oversampling` is below 1.
    """

    scorer: Scorer | None = None
    acquisition: Acquisition = probability_variance
    oversampling: float = 10
    likelihood: Likelihood | Callable[[], Likelihood] = field(default_factory=Likelihood)

    def __post_init__(self) -> None:
        require_in("oversampling", self.oversampling, 1, MOST_OVERSAMPLING)

    def __call__(self, segments: Segments, count: int, rng: np.random.Generator) -> IntArray:
        """Choose pairs `[count, 2]` of rows of `segments`, the most informative first.

        Raises:
            FeedbackError: scores have a wrong shape or are not numbers, there is only one member
                and the acquisition needs several, or there are fewer than two different windows.
        """
        scores = None if self.scorer is None or count == 0 else self.scorer(segments)
        if scores is None:
            return UniformPairs()(segments, count, rng)
        pairs = UniformPairs()(segments, oversampled(segments, count, self.oversampling), rng)
        scores = finite_table("scores of segments", scores, None, len(segments))
        logits = scores[:, pairs[:, 0]] - scores[:, pairs[:, 1]]  # [E, candidates]
        likelihood = self.likelihood() if callable(self.likelihood) else self.likelihood
        value = np.asarray(self.acquisition(likelihood.log_odds(logits)), np.float64)
        if value.shape != (len(pairs),) or np.isnan(value).any():
            raise FeedbackError(
                f"acquisition: expected one number per pair, shape ({len(pairs)},), got shape "
                f"{value.shape} with {np.isnan(value).sum()} NaN."
            )
        return pairs[np.argsort(-value, kind="stable")[:count]]

    def segments_for(self, queries: int) -> int:
        """Return two segments for each pair that is drawn."""
        return ceil(2 * queries * self.oversampling)


def mean_observation(segments: Segments) -> FloatArray:
    """Average the observations of each window over its real steps, `[N, F]`."""
    rows = segments.rows()
    mask = segments.mask()
    features = []
    for leaf in leaves(segments.observations):
        total = np.zeros((len(segments), int(np.prod(leaf.shape[1:]))))
        for step in range(segments.length):  # never [N, L, F] at once, since pixels may be on disk
            total += leaf[rows[:, step]].reshape(len(segments), -1) * mask[:, step, None]
        features.append(total / segments.real[:, None])
    return np.concatenate(features, axis=1)


@final
@dataclass(frozen=True)
class CoveringPairs:
    """Candidate pairs, of which each one taken is as far as possible from those before it.

    The distance of two pairs is Euclidean over the features of both clips. Of the two orders of a
    pair, the closer one counts, since both are the same query. Each feature is divided by its
    deviation over the segments, so that units do not matter.

    Attributes:
        candidates: where pairs come from; uniform by default. With
            `InformativePairs(scorer, oversampling=2)` and `oversampling=5`, this is a hybrid of
            B-Pref: ten pairs are drawn for each one that is asked, the more informative half is
            kept, and the farthest of these are taken.
        oversampling: candidate pairs for each one that is asked, at least 1; 10 as in B-Pref.
        features: `[N, F]` numbers of segments; the mean observation by default. Choose others for
            pixels, whose mean says little.
        asked: returns earlier comparisons, such as `feedback.comparisons`. New pairs are far from
            these, too. If there are none, the first candidate is the first pair.

    Raises:
        ConfigError: `oversampling` is below 1.
    """

    candidates: PairSampler = field(default_factory=UniformPairs)
    oversampling: float = 10
    features: Callable[[Segments], FloatArray] = mean_observation
    asked: Callable[[], Comparisons | None] | None = None

    def __post_init__(self) -> None:
        require_in("oversampling", self.oversampling, 1, MOST_OVERSAMPLING)

    def __call__(self, segments: Segments, count: int, rng: np.random.Generator) -> IntArray:
        """Choose pairs `[count, 2]` of rows of `segments`, in the order in which they are taken.

        Raises:
            FeedbackError: features have a wrong shape, or there are too few candidates or fewer
                than two different windows.
        """
        pairs = self.candidates(segments, oversampled(segments, count, self.oversampling), rng)
        if len(pairs) < count:
            raise FeedbackError(f"candidate pairs: expected at least {count}, got {len(pairs)}.")
        if count == 0:
            return pairs[:0]
        features = self._features(segments)
        middle = features.mean(axis=0)
        deviation = features.std(axis=0)
        scale = np.where(deviation > 0, deviation, 1.0)
        points = ((features - middle) / scale)[pairs]  # [C, 2, F]
        nearest = np.full(len(points), np.inf)  # [C] squared distance to the pairs asked before
        asked = None
        with suppress(FeedbackError):  # raised if nothing has been answered yet
            asked = self.asked() if self.asked else None
        if asked is not None and len(asked):
            centres = ((self._features(asked.segments) - middle) / scale)[asked.pairs]
            nearest = squared_distances(points, centres).min(axis=1)
        return pairs[farthest_first(points, count, nearest)]

    def segments_for(self, queries: int) -> int:
        """Return how many segments `candidates` wants for all pairs that are drawn."""
        return segments_wanted(self.candidates, ceil(self.oversampling * queries))

    def _features(self, segments: Segments) -> FloatArray:
        return finite_table("features of segments", self.features(segments), len(segments), None)


def farthest_first(points: FloatArray, count: int, nearest: FloatArray) -> IntArray:
    """Take `count` rows of points `[C, 2, F]`, each the farthest from those taken before it.

    `nearest` is the squared distance `[C]` to the nearest pair that was asked before; infinite if
    there is none.
    """
    nearest = nearest.copy()
    taken = np.empty(count, np.int64)
    for place in range(count):
        row = taken[place] = np.argmax(nearest)
        distance = squared_distances(points, points[row : row + 1])[:, 0]
        np.minimum(nearest, distance, out=nearest)
        nearest[row] = -1.0  # no point is taken twice, even if all are equal
    return taken


def squared_distances(points: FloatArray, centres: FloatArray) -> FloatArray:
    """Compute distances `[C, A]` of points `[C, 2, F]` and `[A, 2, F]`, in their closer order.

    They are computed with products instead of differences, so that no `[C, A, F]` is needed.
    """
    left = points.reshape(len(points), -1)  # [C, 2, F] to [C, 2F]
    right = centres.reshape(len(centres), -1)  # [A, 2, F] to [A, 2F]
    turned = centres[:, ::-1].reshape(len(centres), -1)
    nearer = np.maximum(left @ right.T, left @ turned.T)
    square = np.einsum("ij,ij->i", left, left)[:, None] + np.einsum("ij,ij->i", right, right)
    return np.asarray(np.maximum(square - 2 * nearer, 0.0))  # rounding may fall below zero


def segments_wanted(sampler: PairSampler | None, queries: int, *, oversampling: float = 1.0) -> int:
    """Return how many segments to draw so that a sampler can choose `queries` pairs.

    A sampler with `WantsSegments` decides itself. For any other, this is enough for `oversampling`
    pairs per query.
    """
    asked: object = sampler  # mypy does not believe that it can have both protocols
    if not isinstance(asked, WantsSegments):
        return ceil(2 * queries * oversampling)
    wanted: Any = asked.segments_for(queries)
    if not isinstance(wanted, int | np.integer) or wanted < (2 if queries else 0):
        raise FeedbackError(
            f"segments_for({queries}) of {type(sampler).__name__}: expected a whole number of at "
            f"least 2, since a query shows two, got {wanted}."
        )
    return int(wanted)


def distinct_windows(segments: Segments) -> IntArray:
    """Return rows of segments that are different windows, since some may have been drawn twice."""
    window = segments.start.astype(np.int64) * (segments.length + 1) + segments.real
    return np.asarray(np.unique(window, return_index=True)[1])


def oversampled(segments: Segments, count: int, oversampling: float) -> int:
    """Return how many candidate pairs to draw: at least `count`, but not more than there are."""
    require_in("count", count, 0, inf)
    windows = len(distinct_windows(segments))
    return max(count, min(ceil(oversampling * count), windows * (windows - 1) // 2))


def _tournament(players: int, count: int, rng: np.random.Generator) -> IntArray:
    """Draw meetings `[count, 2]` of a round-robin tournament, in whole rounds of random order."""
    # All but the last player sit in a circle. In round `r`, players at equal distance on both sides
    # of seat `r` meet. Seat `r` meets the last player, who is nobody if the number of players is
    # odd.
    seats = players - 1 + players % 2
    rounds = ceil(count / (players // 2))
    order = np.concatenate([rng.permutation(seats) for _ in range(ceil(rounds / seats))])
    middle = order[:rounds, None]
    distance = np.arange(1, seats // 2 + 1)
    pairs = np.stack([(middle + distance) % seats, (middle - distance) % seats], axis=-1)
    if players % 2 == 0:
        last = np.stack([middle, np.full_like(middle, seats)], axis=-1)
        pairs = np.concatenate([last, pairs], axis=1)
    return np.asarray(pairs.reshape(-1, 2)[:count])  # [rounds, players // 2, 2] to [count, 2]


def finite_table(
    what: str, values: FloatArray, rows: int | None, columns: int | None
) -> FloatArray:
    """Return finite numbers `[rows, columns]` as floats, or raise `FeedbackError`.

    None allows any size.
    """
    values = np.asarray(values, np.float64)
    fits = values.ndim == 2 and rows in (None, len(values)) and columns in (None, values.shape[1])
    wrong = np.count_nonzero(~np.isfinite(values))
    if wrong or not fits:
        raise FeedbackError(
            f"{what}: expected finite numbers of shape [{rows or 'members'}, {columns or 'F'}], "
            f"got shape {values.shape} with {wrong} NaN or infinite ones."
        )
    return values
