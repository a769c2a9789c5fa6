"""Comparisons: pairs of segments, and how likely the first of each is preferred."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, final

import numpy as np

from preferl.data.columns import require_shape
from preferl.data.episodes import join_columns, take_columns
from preferl.data.segments import Segments, join_segments
from preferl.errors import DataError
from preferl.shapes import BoolArray, FloatArray, IntArray

_ANSWERS: Final = ("preference", "weight", "annotator")


@final
@dataclass(frozen=True, eq=False)
class Comparisons:
    """Answered queries. Each clip is stored once, however often it was compared.

    Attributes:
        segments: the clips.
        pairs: `[P, 2]` rows of `segments`, in the order in which they were shown.
        preference: `[P]` in [0, 1], the probability that the first is preferred; 0.5 is a tie, and
            NaN a declined answer.
        weight: `[P]` how much each answer counts, at least 0; `of` sets ones by default.
        annotator: `[P]` row of a table of people; -1 if the person is unknown. None if one teacher
            gave all answers.

    Raises:
        DataError: shapes do not agree, preferences are outside [0, 1], weights are negative, or
            pairs name no segment.
    """

    segments: Segments
    pairs: IntArray
    preference: FloatArray
    weight: FloatArray
    annotator: IntArray | None = None

    def __post_init__(self) -> None:
        count = len(self.pairs)
        require_shape("Comparisons.pairs", self.pairs, (count, 2))
        check_preference(self.preference, count)
        for name in ("weight", "annotator"):
            if (column := getattr(self, name)) is not None:
                require_shape(f"Comparisons.{name}", column, (count,))
        least = self.weight.min(initial=0)
        if not least >= 0:  # this also refuses NaN
            raise DataError(f"Comparisons.weight: expected numbers of at least 0, got {least}.")
        _require_rows(self.pairs, len(self.segments))

    @classmethod
    def of(
        cls,
        segments: Segments,
        pairs: IntArray,
        preference: FloatArray,
        weight: FloatArray | None = None,
        annotator: IntArray | None = None,
    ) -> Self:
        """Build comparisons with only the segments and steps of their pairs; weights default to 1.

        Raises:
            DataError: pairs name no segment, or `Comparisons` refuses the arrays.
        """
        pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
        _require_rows(pairs, len(segments))
        used, renumbered = np.unique(pairs, return_inverse=True)
        return cls(
            segments.select(used),
            renumbered.reshape(pairs.shape),
            np.asarray(preference, np.float64),
            np.ones(len(pairs)) if weight is None else np.asarray(weight, np.float64),
            annotator,
        )

    @classmethod
    def none(cls, segments: Segments) -> Self:
        """Return an empty table about these clips, for fits to ratings only."""
        return cls(segments, np.zeros((0, 2), np.int64), np.zeros(0), np.zeros(0))

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def decided(self) -> BoolArray:
        """`[P]` true where one of the two was preferred; false for ties and declined answers."""
        return np.asarray((self.preference != 0.5) & ~np.isnan(self.preference))

    @property
    def answered(self) -> BoolArray:
        """`[P]` true where there is an answer or a tie."""
        return ~np.isnan(self.preference)

    @property
    def soft(self) -> BoolArray:
        """`[P]` true for soft labels: preferences that are probabilities of the answer.

        Preferences of 0, 0.5 and 1 are not soft. The average of several such answers is not soft
        either, if its weight is the number of answers.

        >>> from preferl.data import Segments
        >>> steps = np.zeros((2, 1))
        >>> segments = Segments(steps, steps, np.zeros(2), np.arange(2), np.ones(2, int), 1)
        >>> pairs, weight = np.array([[0, 1]] * 4), np.array([1.0, 3.0, 3.0, 1.0])
        >>> Comparisons.of(segments, pairs, np.array([1.0, 2 / 3, 0.7, 0.7]), weight).soft.tolist()
        [False, False, True, True]
        """
        sure = np.isin(self.preference, (0, 0.5, 1))
        halves = 2 * self.weight * self.preference  # a whole number for a mean of `weight` answers
        counted = (self.weight > 1) & (self.weight % 1 == 0)
        average = counted & (np.abs(halves - np.rint(halves)) < 1e-5)  # float32 has seven digits
        return np.asarray(self.answered & ~sure & ~average)

    def __iter__(self) -> Iterator[Self]:
        """Iterate over the comparisons, each as a table of one row."""
        return (self[row : row + 1] for row in range(len(self)))

    def __getitem__(self, rows: int | IntArray | BoolArray | slice) -> Self:
        """Select comparisons over the same segments; nothing large is copied.

        A number selects a table of one row; a negative number counts from the end.

        Raises:
            IndexError: a number beyond the last comparison.
        """
        if not isinstance(rows, slice):
            rows = np.atleast_1d(np.arange(len(self))[rows])
        return replace(self, **take_columns(self, rows, ("pairs", *_ANSWERS)))

    def compact(self) -> Self:
        """Return these comparisons with only the segments and steps that they still use."""
        return self.of(self.segments, self.pairs, self.preference, self.weight, self.annotator)

    def swapped(self) -> Self:
        """Return these answers with the first and second clip of every pair exchanged."""
        return replace(self, pairs=self.pairs[:, ::-1], preference=1 - self.preference)


def concatenate(parts: Sequence[Comparisons]) -> Comparisons:
    """Concatenate the comparisons of all parts, in the order of the parts.

    If only some parts know their annotators, the answers of the other parts get annotator -1.

    Raises:
        DataError: there are no parts, or parts have different shapes or keys.
    """
    if not parts:
        raise DataError("There are no comparisons to concatenate. Send at least one query.")
    if len(parts) == 1:
        return parts[0]
    if any(part.annotator is not None for part in parts):
        parts = [_with_annotator(part) for part in parts]
    offsets = np.cumsum([0] + [len(part.segments) for part in parts[:-1]])
    return Comparisons(
        join_segments([part.segments for part in parts]),
        np.concatenate([part.pairs + o for part, o in zip(parts, offsets, strict=True)]),
        **join_columns(parts, "{} to concatenate", _ANSWERS),
    )


def _with_annotator(part: Comparisons) -> Comparisons:
    nobody = np.full(len(part), -1)
    return part if part.annotator is not None else replace(part, annotator=nobody)


def _require_rows(pairs: IntArray, segments: int) -> None:
    least = pairs.min(initial=0)
    most = pairs.max(initial=-1)
    if least < 0 or most >= segments:
        raise DataError(
            f"Comparisons.pairs: expected rows of {segments} segments, got rows {least} to {most}."
        )


def check_preference(preference: FloatArray, count: int) -> None:
    """Raise `DataError` unless there are `count` preferences in [0, 1] or NaN."""
    require_shape("preference, one number per pair", preference, (count,))
    for pair in np.flatnonzero((preference < 0) | (preference > 1)):
        raise DataError(
            "preference: expected the probability in [0, 1] that the first is preferred, NaN if "
            f"declined, got {preference[pair]:g} for pair {pair}. Labels of other projects are "
            "converted by preferl.data.sources.labels."
        )
