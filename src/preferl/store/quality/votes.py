"""Votes: who gave which answer to which query, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, final

import numpy as np

from preferl.errors import DataError
from preferl.shapes import Array, BoolArray, FloatArray, IntArray

FIRST = 0
EQUAL = 1
SECOND = 2
CANNOT_TELL = -1
"""Answers as categories: the preferred clip of the pair, a tie, or none."""


@final
@dataclass(frozen=True, eq=False)
class Votes:
    """The answers that count; an annotator has at most one per query. `R` is their number.

    A planned repeat is a separate query about the same two clips in the same order. `repeat_of`
    names the query that it repeats.
    names the repeated one.

    Raises:
        DataError: columns do not agree, values are out of range, an annotator has two answers to a
            query, or answers to one query have different `known` or `repeat_of`.
    """

    query: IntArray  # [R] number of the query, at least 0
    annotator: IntArray  # [R] row of `names`
    preference: FloatArray  # [R] 1: first clip, 0: second, 0.5: a tie, NaN: could not tell
    swapped: BoolArray  # [R] true where the first clip was shown on the right
    response_ms: FloatArray  # [R] milliseconds from showing the clips to the answer, NaN if unknown
    # [R] milliseconds that both clips last at the page's greatest speed; NaN if that is unknown, or
    # if the annotator had seen the pair before.
    least_ms: FloatArray
    # [R] seconds since the epoch; they give the order of an annotator's answers
    answered_at: FloatArray
    known: FloatArray  # [R] the query's known right preference, NaN for most queries
    repeat_of: IntArray  # [R] the query that this one repeats; -1 if it is not a planned repeat
    names: tuple[str, ...]  # names of the `A` annotators, all different
    is_model: BoolArray  # [A] true for models, false for people

    def __post_init__(self) -> None:
        for name, column in self._columns().items():
            if column.shape != (len(self),):
                _refuse(name, f"[{len(self)}]", [column.shape])
        if self.swapped.dtype != np.bool_:
            _refuse("swapped", "bool", [self.swapped.dtype])
        if len(set(self.names)) != len(self.names):
            _refuse("names", "different names", [self.names])
        last_annotator = self.annotators - 1
        ranges = {"annotator": (0, last_annotator), "query": (0, None), "repeat_of": (-1, None)}
        for name, (low, high) in ranges.items():
            values = getattr(self, name)
            if not np.issubdtype(values.dtype, np.integer):
                _refuse(name, "whole numbers", [values.dtype])
            expected = f"at least {low}" if high is None else f"{low} to {high}"
            _refuse(name, expected, values[np.clip(values, low, high) != values])
        for name in ("preference", "known"):
            values = getattr(self, name)
            allowed = np.isnan(values) | np.isin(values, (0.0, 0.5, 1.0))
            _refuse(name, "1, 0.5, 0 or NaN", values[~allowed])
        keys, answer_counts = np.unique(self._keys(self.query), return_counts=True)
        if (answer_counts > 1).any():
            query, annotator = divmod(int(keys[answer_counts.argmax()]), self.annotators)
            raise DataError(
                "Votes: expected one answer of each annotator to a query, got "
                f"{answer_counts.max()} of {self.names[annotator]!r} to query {query}. Keep the "
                "latest answer."
            )
        _, first, group = np.unique(self.query, return_index=True, return_inverse=True)
        for name in ("known", "repeat_of"):
            values = np.nan_to_num(getattr(self, name), nan=-1)
            different = self.query[values != values[first][group]]
            _refuse(name, "one value for each query", [f"two for query {n}" for n in different])

    @classmethod
    def of(
        cls,
        query: Array | Sequence[int],
        annotator: Array | Sequence[int],
        preference: Array | Sequence[float],
        *,
        names: Sequence[str] | None = None,
        is_model: Sequence[bool] | None = None,
        **columns: Array,
    ) -> Self:
        """Make votes from some columns, converted to the types of `Votes`.

        By default, annotators are people called `"0"`, `"1"` and so on, no clips are `swapped`,
        times and known answers are NaN, `answered_at` is the order of the rows, and there are no
        repeats.

        >>> votes = Votes.of([0, 0, 1], [0, 1, 0], [1.0, 0.5, np.nan])
        >>> len(votes), votes.names, votes.category.tolist()
        (3, ('0', '1'), [0, 1, -1])
        """
        count = len(query)
        people = np.asarray(annotator, np.int64)
        if names is None:
            names = [str(row) for row in range(int(people.max(initial=-1)) + 1)]
        values = {
            **dict.fromkeys(("response_ms", "least_ms", "known"), np.full(count, np.nan)),
            "swapped": np.zeros(count),
            "answered_at": np.arange(count),
            "repeat_of": np.full(count, -1),
            "query": query,
            "annotator": people,
            "preference": preference,
            **columns,
        }
        types = {"query": np.int64, "repeat_of": np.int64, "annotator": np.int64, "swapped": bool}
        arrays: dict[str, Any] = {
            name: np.asarray(column, types.get(name, np.float64)) for name, column in values.items()
        }
        models = np.zeros(len(names), bool) if is_model is None else np.array(is_model, bool)
        return cls(**arrays, names=tuple(names), is_model=models)

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, rows: IntArray | BoolArray | slice) -> Self:
        """Return some of the answers, with all annotators."""
        return replace(self, **{name: column[rows] for name, column in self._columns().items()})

    @property
    def annotators(self) -> int:
        """`A`, the number of annotators, including those who gave no answer."""
        return len(self.names)

    @property
    def category(self) -> IntArray:
        """`[R]` answers as `FIRST`, `EQUAL`, `SECOND` or `CANNOT_TELL`."""
        return categories(self.preference)

    @property
    def counts(self) -> BoolArray:
        """`[R]` true for a preference or a tie."""
        return ~np.isnan(self.preference)

    @property
    def left(self) -> FloatArray:
        """`[R]` 1 if the left clip was preferred, 0 if the right, 0.5 for a tie, else NaN."""
        return np.where(self.swapped, 1 - self.preference, self.preference)

    @property
    def too_fast(self) -> BoolArray:
        """`[R]` true if there was no time to see both clips; false if that is not known."""
        return np.asarray(self.response_ms < self.least_ms)

    @property
    def is_repeat(self) -> BoolArray:
        """`[R]` true for planned repeats."""
        return np.asarray(self.repeat_of >= 0)

    @property
    def by_model(self) -> BoolArray:
        """`[R]` true for answers of models."""
        return self.is_model[self.annotator]

    @property
    def first_answers(self) -> Self:
        """The answers with a preference, without repeats, which come from the same person."""
        return self[self.counts & ~self.is_repeat]

    def tally(self, rows: BoolArray | IntArray) -> IntArray:
        """Return how many of these answers each annotator gave, `[A]`."""
        return np.bincount(self.annotator[rows], minlength=self.annotators)

    def counts_by_query(self) -> tuple[IntArray, IntArray]:
        """Return `[R]` the index of each answer's query, and `[Q, 3]` counts of each answer.

        Queries are indexed in rising order of their numbers. All answers must have a preference.
        """
        _, unit = np.unique(self.query, return_inverse=True)
        return unit, value_counts(unit, self.category, 3)

    def repeated(self) -> tuple[IntArray, IntArray]:
        """Return rows of repeats, and of the answers they repeat, if both have a preference."""
        keys = self._keys(self.query)
        order = np.argsort(keys)
        repeats = np.flatnonzero(self.is_repeat)
        original_keys = self._keys(self.repeat_of)[repeats]
        index = np.searchsorted(keys[order], original_keys)
        originals = order[np.minimum(index, len(self) - 1)] if len(self) else repeats
        both_decided = self.counts[repeats] & self.counts[originals]
        is_found = both_decided & (keys[originals] == original_keys)
        return repeats[is_found], originals[is_found]

    def _columns(self) -> dict[str, Any]:
        about_annotators = ("names", "is_model")
        return {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in about_annotators
        }

    def _keys(self, query: IntArray) -> IntArray:
        """Return a number `[R]` for each annotator and query."""
        return np.asarray(query, np.int64) * self.annotators + self.annotator


def _refuse(name: str, expected: str, wrong: Sequence[Any] | Array) -> None:
    """Raise `DataError` about the first of these values, if there is one."""
    if len(wrong):
        raise DataError(f"Votes.{name}: expected {expected}, got {wrong[0]}.")


def value_counts(unit: IntArray, value: IntArray, values: int) -> IntArray:
    """Count how often each value was given to each unit from 0 to `U - 1`: `[U, values]`."""
    units = int(unit.max(initial=-1)) + 1
    return np.bincount(unit * values + value, minlength=units * values).reshape(units, values)


def categories(preference: FloatArray) -> IntArray:
    """Return preferences of 1, 0.5, 0 and NaN as `FIRST`, `EQUAL`, `SECOND` and `CANNOT_TELL`."""
    return np.asarray(np.rint(2 - 2 * np.nan_to_num(preference, nan=1.5)), np.int64)
