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
        value=np.array([5, 0, 1]),
        is_outcome=np.array([False, True, False]),
    )


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("clip", [0, 0, 3]),
        ("clip", [0, 0, -1]),
        ("clip", [0.0, 0.0, 2.0]),
        ("annotator", [0, -1, 0]),
        ("value", [6, 0, 1]),
        ("value", [2.5, 0.0, 1.0]),
        ("value", [5, 2, 1]),
        ("value", [np.nan, 0.0, 1.0]),
        ("is_outcome", [0, 1, 0]),
        ("is_outcome", [True]),
    ],
)
def test_columns_that_mean_nothing_are_refused(ratings, column, values):
    assert len(ratings) == 3
    with pytest.raises(DataError, match=r"Ratings|expected"):
        replace(ratings, **{column: np.array(values)})


def test_one_rating_and_one_outcome_of_an_annotator_for_a_clip(ratings):
    alone = np.zeros(3, int)
    with pytest.raises(DataError, match="got two"):
        replace(ratings, annotator=alone, value=alone + 1, is_outcome=alone > 0)
    assert len(replace(ratings, annotator=alone)) == 3


def test_unrated_clips_are_left_out(ratings):
    compact = ratings.compact()
    assert (len(compact.segments), compact.clip.tolist()) == (2, [0, 0, 1])
    expected = ratings.segments[ratings.clip].actions
    np.testing.assert_array_equal(compact.segments[compact.clip].actions, expected)
