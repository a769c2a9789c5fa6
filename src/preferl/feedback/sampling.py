"""Which pairs to ask about: any two, or those on which the members of an ensemble disagree.

Christiano et al., "Deep RL from human preferences" (2017), section 2.2.4.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, final

import numpy as np

from preferl.data.segments import Segments
from preferl.errors import FeedbackError, require_in
from preferl.feedback.acquisition import Acquisition, probability_variance
from preferl.feedback.likelihood import Likelihood
from preferl.feedback.protocols import PairSampler, WantsSegments
from preferl.shapes import FloatArray, IntArray

MaybeScorer = Callable[[Segments], FloatArray | None]
"""A scorer that may answer None as long as there is no reward model to score with."""

MOST_OVERSAMPLING = 1e6
"""More candidates per question than anyone scores; larger settings are mistakes."""


@final
@dataclass(frozen=True)
class UniformPairs:
    """Pairs of two different windows, every pair equally likely.

    Windows are matched as in a tournament: all of them are shown equally often, give or take
    one, and no two meet twice until each has met all others. `2 count` windows are thus shown
    exactly once each. Which of the two comes first is tossed.

    >>> block = np.zeros((9, 1))
    >>> segments = Segments(block, block, np.zeros(9), np.arange(4), np.full(4, 3), 3)
    >>> pairs = UniformPairs()(segments, 6, np.random.default_rng(0))
    >>> sorted(np.sort(pairs).tolist())
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    """

    def __call__(self, segments: Segments, count: int, rng: np.random.Generator) -> IntArray:
        """`[count, 2]` rows of `segments`.

        Raises:
            ConfigError: a negative count.
            FeedbackError: fewer than two different windows.
        """
        require_in("count", count, 0, inf)
        if count == 0:
            return np.empty((0, 2), np.int64)
        windows = rng.permutation(distinct_windows(segments))
        if len(windows) < 2:
            raise FeedbackError.mismatch(
                "segments to pair",
                expected="at least 2 different windows",
                got=len(windows),
                fix="Record more steps or shorten the segments.",
            )
        return rng.permuted(windows[_tournament(len(windows), count, rng)], axis=1)

    def segments_for(self, questions: int) -> int:
        """Two for each question, so that each is shown once."""
        return 2 * questions


@final
@dataclass(frozen=True)
class InformativePairs:
    """The pairs, out of many drawn uniformly, whose answers would tell the most.

    Attributes:
        scorer: `[E, N]` scores of segments, such as `RewardFunction.scores`. None, or a scorer
            that gives None, draws uniformly: there is no reward model before the first answers.
        acquisition: what makes a pair worth asking; the disagreement of predicted preferences by
            default, as in DRLHP.
        oversampling: pairs drawn for each one asked, at least 1; 10 as in B-Pref.
        likelihood: how differences of scores become probabilities, such as
            `RewardFunction.likelihood`, or a function that gives the current one. The acquisition
            sees the log-odds of those probabilities.

    Raises:
        ConfigError: oversampling below 1.
    """

    scorer: MaybeScorer | None = None
    acquisition: Acquisition = probability_variance
    oversampling: float = 10
    likelihood: Likelihood | Callable[[], Likelihood] = field(default_factory=Likelihood)

    def __post_init__(self) -> None:
        require_in("oversampling", self.oversampling, 1, MOST_OVERSAMPLING)

    def __call__(self, segments: Segments, count: int, rng: np.random.Generator) -> IntArray:
        """`[count, 2]` rows of `segments`, the most informative first, ties as drawn.

        Raises:
            FeedbackError: scores of a wrong shape or that are not numbers, one member where the
                acquisition needs several, or fewer than two different windows.
        """
        scores = None if self.scorer is None or count == 0 else self.scorer(segments)
        if scores is None:
            return UniformPairs()(segments, count, rng)
        drawn = oversampled(segments, count, self.oversampling)
        candidates = UniformPairs()(segments, drawn, rng)
        scores = finite_table("scores of segments", scores, None, len(segments))
        logits = scores[:, candidates[:, 0]] - scores[:, candidates[:, 1]]  # [E, candidates]
        known = self.likelihood
        likelihood = known if isinstance(known, Likelihood) else known()
        value = np.asarray(self.acquisition(likelihood.log_odds(logits)), np.float64)
        if value.shape != (len(candidates),) or np.isnan(value).any():
            raise FeedbackError.mismatch(
                "acquisition",
                expected=f"one number per pair, shape ({len(candidates)},)",
                got="NaN" if value.shape == (len(candidates),) else f"shape {value.shape}",
            )
        return candidates[np.argsort(-value, kind="stable")[:count]]

    def segments_for(self, questions: int) -> int:
        """Two for each pair that is drawn."""
        return ceil(2 * questions * self.oversampling)


def segments_wanted(
    sampler: PairSampler | None, questions: int, *, oversampling: float = 1.0
) -> int:
    """How many segments to draw for a sampler to choose from.

    Args:
        sampler: is asked, where it says so (`WantsSegments`); a plain function and None do not.
        questions: to be asked about them, at least 0.
        oversampling: pairs to draw for each question where the sampler does not say, at least 1.

    Raises:
        FeedbackError: a sampler that wants less than two segments for a question, or no number.

    >>> segments_wanted(InformativePairs(oversampling=10), 5)
    100
    """
    asked: object = sampler  # two protocols are no contradiction, though mypy takes them for one
    if not isinstance(asked, WantsSegments):
        return ceil(2 * questions * oversampling)
    wanted: Any = asked.segments_for(questions)
    if not isinstance(wanted, int | np.integer) or wanted < (2 if questions else 0):
        raise FeedbackError.mismatch(
            f"segments_for({questions}) of {type(sampler).__name__}",
            expected="a whole number of at least 2, since a question shows two",
            got=wanted,
        )
    return int(wanted)


def distinct_windows(segments: Segments) -> IntArray:
    """Rows of `segments` that hold different windows, since windows may have been drawn twice."""
    window = segments.start.astype(np.int64) * (segments.length + 1) + segments.real
    return np.asarray(np.unique(window, return_index=True)[1])


def oversampled(segments: Segments, count: int, oversampling: float) -> int:
    """How many candidate pairs to draw: no more than there are, unless that many are asked."""
    require_in("count", count, 0, inf)
    windows = len(distinct_windows(segments))
    return max(count, min(ceil(oversampling * count), windows * (windows - 1) // 2))


def _tournament(players: int, count: int, rng: np.random.Generator) -> IntArray:
    """`[count, 2]` meetings of a round-robin tournament, whole rounds in random order.

    All but the last player sit in a circle; in round `r` seats at equal distance either side of
    seat `r` meet, and seat `r` meets the last player, who is nobody if the number is odd.
    """
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
    """`[rows, columns]` numbers as floats; None for a side that may have any length.

    Raises:
        FeedbackError: another shape, NaN or infinity.
    """
    values = np.asarray(values, np.float64)
    wanted = (rows, columns)
    fits = values.ndim == 2 and all(
        n in (None, size) for n, size in zip(wanted, values.shape, strict=True)
    )
    finite = bool(np.isfinite(values).all())
    if not fits or not finite:
        raise FeedbackError.mismatch(
            what,
            expected=f"finite numbers of shape [{rows or 'members'}, {columns or 'F'}]",
            got=f"shape {values.shape}" + ("" if finite else " with NaN or infinity"),
        )
    return values
