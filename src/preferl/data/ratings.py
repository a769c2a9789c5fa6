"""Ratings and outcomes that people give single clips, beside their comparisons."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from preferl.data.arrays import comparisons_folder, load_arrays, load_comparisons
from preferl.data.columns import require_shape
from preferl.data.segments import Segments
from preferl.errors import DataError
from preferl.shapes import Array, FloatArray, IntArray

PREFIX: Final = "ratings/"
"""What the names of these arrays begin with in a folder of comparisons."""


@final
@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings and outcomes of single clips: `R` rows, at most one of an annotator about a clip.

    A row has a rating, an outcome, or both.

    Attributes:
        segments: the clips.
        clip: `[R]` row of `segments`.
        annotator: `[R]` number of who gave it, at least 0.
        rating: `[R]` 1, the worst, to 5, the best; NaN where none was given.
        outcome: `[R]` 1 for success, 0 for failure; NaN where none was given.
        rated_at: `[R]` seconds since the epoch.

    Raises:
        DataError: columns that do not agree, values out of range, or two rows of an annotator about
            one clip.

    >>> block = np.zeros((4, 1))
    >>> clips = Segments(block, block, np.zeros(4), np.array([0, 2]), np.array([2, 2]), 2)
    >>> numbers = np.array([0, 1])
    >>> nothing = np.full(2, np.nan)
    >>> len(Ratings(clips, numbers, numbers, np.array([5.0, 2.0]), nothing, np.zeros(2)))
    2
    """

    segments: Segments
    clip: IntArray
    annotator: IntArray
    rating: FloatArray
    outcome: FloatArray
    rated_at: FloatArray

    def __post_init__(self) -> None:
        for name in COLUMNS:
            require_shape(f"Ratings.{name}", getattr(self, name), (len(self),))
        last = len(self.segments) - 1
        if ((self.clip < 0) | (self.clip > last)).any() or (self.annotator < 0).any():
            raise DataError(
                f"Ratings: expected clips from 0 to {last} and annotators from 0 on, got clips "
                f"{np.unique(self.clip)} and annotators {np.unique(self.annotator)}"
            )
        for name, allowed in (("rating", (1, 2, 3, 4, 5)), ("outcome", (0, 1))):
            values = getattr(self, name)
            wrong = values[~(np.isin(values, allowed) | np.isnan(values))]
            if len(wrong):
                raise DataError(f"Ratings.{name}: expected {allowed} or NaN, got {wrong[0]}")
        empty = np.isnan(self.rating) & np.isnan(self.outcome)
        if empty.any():
            raise DataError(
                f"Ratings: expected a rating or an outcome in each row, got neither in row "
                f"{int(empty.argmax())}"
            )
        if len(np.unique(np.stack([self.clip, self.annotator]), axis=1).T) < len(self):
            raise DataError(
                "Ratings: expected one row of an annotator about a clip, got two. Keep the latest."
            )

    def __len__(self) -> int:
        return len(self.clip)

    def arrays(self) -> Mapping[str, Array]:
        """Return the columns under the names that they have in a folder of comparisons."""
        return {f"{PREFIX}{name}": getattr(self, name) for name in COLUMNS}


COLUMNS: Final = ("clip", "annotator", "rating", "outcome", "rated_at")


def load_ratings(path: Path) -> Ratings | None:
    """Read the ratings beside the comparisons of a folder or a run; None where there are none.

    Raises:
        DataError: the folder holds something else, or is damaged.
    """
    arrays: Any = load_arrays(comparisons_folder(path))[0]
    columns = {name: arrays.get(f"{PREFIX}{name}") for name in COLUMNS}
    if all(column is None for column in columns.values()):
        return None
    missing = [name for name, column in columns.items() if column is None]
    if missing:
        raise DataError(f"{path}: expected ratings with all columns, got none of {missing}")
    return Ratings(segments=load_comparisons(path).segments, **columns)
