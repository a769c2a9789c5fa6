"""Votes: who answered what about which query, as arrays; all that the quality of labels needs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, final

import numpy as np

from preferl.errors import DataError
from preferl.shapes import Array, BoolArray, FloatArray, IntArray

FIRST, EQUAL, SECOND, CANNOT_TELL = 0, 1, 2, -1
"""Answers as categories: the preferred clip of the pair, a tie, or none."""


@final
@dataclass(frozen=True, eq=False)
class Votes:
    """The answers that count, at most one of an annotator to a query; `R` in all.

    A planned repeat is a query of its own about the same two clips in the same order, so that
    `repeat_of` links two answers of one person.

    Attributes:
        query: `[R]` number of the query, at least 0.
        annotator: `[R]` row of `names`.
        preference: `[R]` 1 where the query's first clip is preferred, 0 where the second is, 0.5
            for a tie, NaN where the annotator could not tell.
        swapped: `[R]` true where the first clip was shown on the right.
        response_ms: `[R]` milliseconds from showing the clips to the answer, NaN if unknown.
        least_ms: `[R]` milliseconds that it takes to see both clips to their ends at the page's
            greatest speed; NaN if unknown, or if the annotator had seen the pair before.
        answered_at: `[R]` seconds since the epoch; orders the answers of an annotator.
        known: `[R]` the preference that the query is known to deserve, NaN for most queries.
        repeat_of: `[R]` the query that this one repeats, -1 for all but planned repeats.
        names: of the `A` annotators, all different.

    Raises:
        DataError: columns that do not agree, values out of range, two answers of one annotator to
            one query, or queries whose answers disagree on what is known or repeated.
    """

    query: IntArray
    annotator: IntArray
    preference: FloatArray
    swapped: BoolArray
    response_ms: FloatArray
    least_ms: FloatArray
    answered_at: FloatArray
    known: FloatArray
    repeat_of: IntArray
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, column in self._columns().items():
            if column.shape != (len(self),):
                raise _wrong(name, f"[{len(self)}]", column.shape)
        if self.swapped.dtype != np.bool_:
            raise _wrong("swapped", "bool", self.swapped.dtype)
        if len(set(self.names)) != len(self.names):
            raise _wrong("names", "different names", self.names)
        _require_range("annotator", self.annotator, 0, len(self.names) - 1)
        _require_range("query", self.query, 0)
        _require_range("repeat_of", self.repeat_of, -1)
        _require_answers("preference", self.preference)
        _require_answers("known", self.known)
        self._require_one_answer_each()
        self._require_alike("known", np.nan_to_num(self.known, nan=-1))
        self._require_alike("repeat_of", self.repeat_of)

    @classmethod
    def of(
        cls,
        query: Array | Sequence[int],
        annotator: Array | Sequence[int],
        preference: Array | Sequence[float],
        *,
        swapped: Array | None = None,
        response_ms: Array | None = None,
        least_ms: Array | None = None,
        answered_at: Array | None = None,
        known: Array | None = None,
        repeat_of: Array | None = None,
        names: Sequence[str] | None = None,
    ) -> Self:
        """Votes from the columns there are.

        Args:
            query: `[R]`
            annotator: `[R]`
            preference: `[R]`
            swapped: `[R]`; never, by default.
            response_ms: `[R]`; unknown by default.
            least_ms: `[R]`; unknown by default.
            answered_at: `[R]`; in the order of the rows by default.
            known: `[R]`; nothing is known by default.
            repeat_of: `[R]`; no repeats by default.
            names: of the annotators; `"0"`, `"1"` and so on by default.

        >>> votes = Votes.of([0, 0, 1], [0, 1, 0], [1.0, 0.5, np.nan])
        >>> len(votes), votes.names, votes.category.tolist()
        (3, ('0', '1'), [0, 1, -1])
        """
        count = len(query)
        people = np.asarray(annotator, np.int64)
        if names is None:
            names = [str(row) for row in range(int(people.max(initial=-1)) + 1)]
        unknown = np.full(count, np.nan)
        return cls(
            query=np.asarray(query, np.int64),
            annotator=people,
            preference=np.asarray(preference, np.float64),
            swapped=np.zeros(count, bool) if swapped is None else np.asarray(swapped, bool),
            response_ms=unknown if response_ms is None else np.asarray(response_ms, np.float64),
            least_ms=unknown if least_ms is None else np.asarray(least_ms, np.float64),
            answered_at=np.arange(count, dtype=np.float64)
            if answered_at is None
            else np.asarray(answered_at, np.float64),
            known=unknown if known is None else np.asarray(known, np.float64),
            repeat_of=np.full(count, -1) if repeat_of is None else np.asarray(repeat_of, np.int64),
            names=tuple(names),
        )

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, rows: IntArray | BoolArray | slice) -> Self:
        """Some of the answers; the annotators stay."""
        return replace(self, **{name: column[rows] for name, column in self._columns().items()})

    @property
    def annotators(self) -> int:
        """`A`, how many annotators there are, whether or not they answered."""
        return len(self.names)

    @property
    def category(self) -> IntArray:
        """`[R]` the answers as `FIRST`, `EQUAL`, `SECOND` or `CANNOT_TELL`."""
        return categories(self.preference)

    @property
    def counts(self) -> BoolArray:
        """`[R]` true where there is a preference, ties included."""
        return ~np.isnan(self.preference)

    @property
    def left(self) -> FloatArray:
        """`[R]` 1 where the clip on the left was preferred, 0 the right, 0.5 a tie, else NaN."""
        return np.where(self.swapped, 1 - self.preference, self.preference)

    @property
    def timed(self) -> BoolArray:
        """`[R]` true where it is known whether there was time to see both clips."""
        return ~np.isnan(self.response_ms) & ~np.isnan(self.least_ms)

    @property
    def too_fast(self) -> BoolArray:
        """`[R]` true where there was not."""
        return np.asarray(self.response_ms < self.least_ms)

    @property
    def is_repeat(self) -> BoolArray:
        """`[R]` true for planned repeats."""
        return np.asarray(self.repeat_of >= 0)

    @property
    def first_answers(self) -> Self:
        """Those that count, without repeats: a person who is asked again is not another person."""
        return self[self.counts & ~self.is_repeat]

    def tally(self, rows: BoolArray) -> IntArray:
        """`[A]` how many of these answers each annotator gave."""
        return np.bincount(self.annotator[rows], minlength=self.annotators)

    def counts_by_query(self) -> tuple[IntArray, IntArray]:
        """`[R]` the place of each answer's query by rising number, and `[Q, 3]` its categories.

        All of them have to count.
        """
        _, unit = np.unique(self.query, return_inverse=True)
        return unit, value_counts(unit, self.category, 3)

    def repeated(self) -> tuple[IntArray, IntArray]:
        """Rows of repeats, and of the same annotator's answers to the queries that they repeat.

        Repeats whose first answer is not among the votes are left out.

        >>> votes = Votes.of([4, 7, 8], [0, 0, 0], [1, 0, 1], repeat_of=np.array([-1, 4, 5]))
        >>> [rows.tolist() for rows in votes.repeated()]
        [[1], [0]]
        """
        keys = self._keys(self.query)
        order = np.argsort(keys)
        repeats = np.flatnonzero(self.is_repeat)
        wanted = self._keys(self.repeat_of)[repeats]
        place = np.searchsorted(keys[order], wanted)
        originals = order[np.minimum(place, len(self) - 1)] if len(self) else repeats
        found = keys[originals] == wanted
        return repeats[found], originals[found]

    def _columns(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "names"}

    def _keys(self, query: IntArray) -> IntArray:
        """`[R]` one number for each annotator and query."""
        return np.asarray(query, np.int64) * len(self.names) + self.annotator

    def _require_one_answer_each(self) -> None:
        keys, counts = np.unique(self._keys(self.query), return_counts=True)
        if (counts > 1).any():
            query, annotator = divmod(int(keys[counts.argmax()]), len(self.names))
            raise DataError.mismatch(
                "Votes",
                expected="one answer of each annotator to a query",
                got=f"{counts.max()} of {self.names[annotator]!r} to query {query}",
                fix="Keep the latest answer.",
            )

    def _require_alike(self, name: str, values: Array) -> None:
        """All answers to a query have to say the same about it."""
        _, first, group = np.unique(self.query, return_index=True, return_inverse=True)
        different = values != values[first][group]
        if different.any():
            got = f"two for query {self.query[different][0]}"
            raise _wrong(name, "one value for each query", got)


def value_counts(unit: IntArray, value: IntArray, values: int) -> IntArray:
    """`[U, values]` how often each value was given to each of the units `0` to `U - 1`.

    >>> value_counts(np.array([0, 0, 1]), np.array([2, 2, 0]), 3).tolist()
    [[0, 0, 2], [1, 0, 0]]
    """
    units = int(unit.max(initial=-1)) + 1
    return np.bincount(unit * values + value, minlength=units * values).reshape(units, values)


def categories(preference: FloatArray) -> IntArray:
    """Preferences of 1, 0.5, 0 and NaN as `FIRST`, `EQUAL`, `SECOND` and `CANNOT_TELL`.

    >>> categories(np.array([1, 0.5, 0, np.nan])).tolist()
    [0, 1, 2, -1]
    """
    known = np.nan_to_num(preference, nan=1.5)
    return np.asarray(np.rint(2 - 2 * known), np.int64)


def _require_range(name: str, values: IntArray, low: int, high: int | None = None) -> None:
    if not np.issubdtype(values.dtype, np.integer):
        raise _wrong(name, "whole numbers", values.dtype)
    wrong = values < low if high is None else (values < low) | (values > high)
    if wrong.any():
        expected = f"at least {low}" if high is None else f"{low} to {high}"
        raise _wrong(name, expected, values[wrong][0])


def _require_answers(name: str, values: FloatArray) -> None:
    wrong = ~(np.isnan(values) | np.isin(values, (0.0, 0.5, 1.0)))
    if wrong.any():
        raise _wrong(name, "1, 0.5, 0 or NaN", values[wrong][0])


def _wrong(name: str, expected: str, got: object) -> DataError:
    return DataError.mismatch(f"Votes.{name}", expected=expected, got=got)
