"""Ratings and outcomes that people give to single clips, beside their comparisons."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np

from preferl.data.arrays import comparisons_folder, load_arrays, load_comparisons
from preferl.data.columns import require_shape
from preferl.data.segments import Segments
from preferl.errors import DataError
from preferl.shapes import Array, BoolArray, IntArray

PREFIX: Final = "ratings/"
"""Beginning of the names of these arrays in a folder of comparisons."""

COLUMNS: Final = {"clip": "iu", "annotator": "iu", "value": "iuf", "is_outcome": "b"}
"""Names of the columns, and the kinds of numbers that each may hold, in numpy's letters."""

RATINGS: Final = range(1, 6)
"""Values of ratings, from the worst to the best."""

OUTCOMES: Final = range(2)
"""Values of outcomes: failure and success."""


@final
@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings and outcomes of single clips: `R` rows, each with a rating or an outcome.

    Attributes:
        segments: the clips.
        clip: `[R]` row of `segments`.
        annotator: `[R]` number of the person who gave it, at least 0.
        value: `[R]` rating from 1, the worst, to 5, the best; or outcome, 1 for success and 0 for
            failure.
        is_outcome: `[R]` true for outcomes, false for ratings.

    Raises:
        DataError: columns do not agree, values are out of range, or an annotator has two ratings or
            two outcomes for one clip.

    >>> block = np.zeros((4, 1))
    >>> clips = Segments(block, block, np.zeros(4), np.array([0, 2]), np.array([2, 2]), 2)
    >>> numbers = np.array([0, 1])
    >>> len(Ratings(clips, numbers, numbers, np.array([5, 1]), np.array([False, True])))
    2
    """

    segments: Segments
    clip: IntArray
    annotator: IntArray
    value: IntArray
    is_outcome: BoolArray

    def __post_init__(self) -> None:
        for name, kinds in COLUMNS.items():
            column = getattr(self, name)
            require_shape(f"Ratings.{name}", column, (len(self),))
            if column.dtype.kind not in kinds:
                expected = "true and false" if kinds == "b" else "numbers"
                raise DataError(f"Ratings.{name}: expected {expected}, got {column.dtype}")
        last = len(self.segments) - 1
        if ((self.clip < 0) | (self.clip > last)).any() or (self.annotator < 0).any():
            raise DataError(
                f"Ratings: expected clips from 0 to {last} and annotators from 0 on, got clips "
                f"{np.unique(self.clip)} and annotators {np.unique(self.annotator)}"
            )
        is_known = np.where(
            self.is_outcome, np.isin(self.value, OUTCOMES), np.isin(self.value, RATINGS)
        )
        if not is_known.all():
            row = int(is_known.argmin())
            raise DataError(
                f"Ratings.value: expected ratings of 1 to 5 and outcomes of 0 or 1, got "
                f"{self.value[row]} in row {row}"
            )
        answers = np.stack([self.clip, self.annotator, self.is_outcome])
        if len(np.unique(answers, axis=1).T) < len(self):
            raise DataError(
                "Ratings: expected at most one rating and one outcome of an annotator for a clip, "
                "got two. Keep the latest."
            )

    def __len__(self) -> int:
        return len(self.clip)

    def compact(self) -> Self:
        """Select the rated clips, with only their steps."""
        rated, clip = np.unique(self.clip, return_inverse=True)
        return replace(self, segments=self.segments.select(rated), clip=clip)

    def arrays(self) -> Mapping[str, Array]:
        """Return the columns, by their names in a folder of comparisons."""
        return {f"{PREFIX}{name}": getattr(self, name) for name in COLUMNS}


def load_ratings(path: Path) -> Ratings | None:
    """Read the ratings beside the comparisons of a folder or a run; None if there are none.

    Raises:
        DataError: the folder holds something else, or is damaged.
    """
    arrays: Any = load_arrays(comparisons_folder(path))[0]
    columns = {name: arrays.get(f"{PREFIX}{name}") for name in COLUMNS}
    missing = [name for name, column in columns.items() if column is None]
    if len(missing) == len(columns):
        return None
    if missing:
        raise DataError(f"{path}: expected ratings with all columns, got none of {missing}")
    return Ratings(segments=load_comparisons(path).segments, **columns).compact()
