"""Ratings: what fits together, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.numbered_videos import random_segments
from preferl.data import Ratings
from preferl.errors import DataError


@pytest.fixture
def ratings():
    return Ratings(
        segments=random_segments(3, 4, seed=0),
        clip=np.array([0, 0, 2]),
        annotator=np.array([0, 1, 0]),
        rating=np.array([5.0, np.nan, 1.0]),
        outcome=np.array([1.0, 0.0, np.nan]),
        rated_at=np.zeros(3),
    )


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("clip", [0, 0, 3]),
        ("clip", [0, 0, -1]),
        ("annotator", [0, 0, 0]),
        ("annotator", [0, -1, 0]),
        ("rating", [6.0, 1.0, 1.0]),
        ("rating", [2.5, 1.0, 1.0]),
        ("outcome", [0.5, 1.0, 1.0]),
        ("outcome", [1.0, np.nan, 1.0]),
        ("rated_at", [0.0]),
    ],
)
def test_columns_that_mean_nothing_are_refused(ratings, column, values):
    assert len(ratings) == 3
    with pytest.raises(DataError, match=r"Ratings|expected"):
        replace(ratings, **{column: np.array(values)})
