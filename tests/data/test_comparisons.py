"""Comparisons: one convention, each clip once, nothing silently wrong."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.clips import at
from preferl.data import Comparisons, concatenate
from preferl.errors import DataError


def _segments(count=6, length=3, *, offset=0):
    """Disjoint windows over a block of numbered steps."""
    return at(*(np.arange(count * length) + offset), length=length)


def _comparisons(**changes):
    values = {
        "pairs": np.array([[0, 1], [2, 3], [4, 1], [0, 1]]),
        "preference": np.array([1.0, 0.5, np.nan, 0.2]),
        "weight": np.ones(4),
        **changes,
    }
    return Comparisons(_segments(), **values)


def _shown(comparisons):
    return comparisons.segments[comparisons.pairs].observations


def test_decided_and_answered():
    comparisons = _comparisons()
    assert comparisons.decided.tolist() == [True, False, False, True]
    assert comparisons.answered.tolist() == [True, True, False, True]


@pytest.mark.parametrize("wrong", [-0.01, 1.01, np.inf, -1.0])
def test_preference_is_a_probability(wrong):
    with pytest.raises(DataError, match=r"in \[0, 1\] that the first.*for pair 2"):
        _comparisons(preference=np.array([0.0, 1.0, wrong, np.nan]))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"pairs": np.zeros((4, 3), int)}, r"shape \(\d+, 2\)"),
        ({"pairs": np.zeros(4, int)}, r"shape \(\d+, 2\)"),
        ({"pairs": np.array([[0, 6]] * 4)}, "rows of 6 segments"),
        ({"pairs": np.array([[0, -1]] * 4)}, "rows of 6 segments"),
        ({"preference": np.zeros(3)}, "one number per pair"),
        ({"weight": np.zeros(3)}, r"shape \(3,\)"),
        ({"weight": np.array([1, 1, 1, -0.5])}, "-0.5"),
        ({"weight": np.array([1, 1, 1, np.nan])}, "at least 0"),
        ({"annotator": np.zeros(3, int)}, "annotator"),
    ],
)
def test_shapes_must_agree(changes, match):
    with pytest.raises(DataError, match=match):
        _comparisons(**changes)


def test_of_keeps_what_the_pairs_need():
    segments = _segments(100)
    pairs = np.array([[70, 3], [3, 99]])
    comparisons = Comparisons.of(segments, pairs, np.array([1, 0]))
    assert (len(comparisons.segments), comparisons.segments.steps) == (3, 9)
    np.testing.assert_array_equal(_shown(comparisons), segments[pairs].observations)
    assert comparisons.weight.tolist() == [1, 1]
    assert comparisons.segments.observations.nbytes == 9 * 8
    assert not np.shares_memory(comparisons.segments.observations, segments.observations)


@pytest.mark.parametrize(
    "rows", [np.array([3, 0]), np.array([True, False, False, True]), slice(2), -1, np.int64(1)]
)
def test_rows_share_the_segments(rows):
    comparisons = _comparisons(annotator=np.arange(4))
    some = comparisons[rows]
    assert some.segments is comparisons.segments
    chosen = np.arange(4)[rows].reshape(-1)  # a number is a table of one
    np.testing.assert_array_equal(some.annotator, chosen)
    np.testing.assert_array_equal(some.pairs, comparisons.pairs[chosen])
    np.testing.assert_array_equal(some.preference, comparisons.preference[chosen])


def test_compact_keeps_content_and_frees_the_source():
    comparisons = _comparisons(annotator=np.arange(4))[np.array([1, 2])]
    small = comparisons.compact()
    np.testing.assert_array_equal(_shown(small), _shown(comparisons))
    np.testing.assert_array_equal(small.annotator, [1, 2])
    assert small.segments.steps == 12
    assert not np.shares_memory(small.segments.rewards, comparisons.segments.rewards)


def test_swapped_says_the_same():
    comparisons = _comparisons()
    swapped = comparisons.swapped()
    np.testing.assert_array_equal(_shown(swapped), _shown(comparisons)[:, ::-1])
    np.testing.assert_allclose(swapped.preference, [0, 0.5, np.nan, 0.8])
    np.testing.assert_allclose(swapped.swapped().preference, comparisons.preference)


def test_concatenate_keeps_the_order():
    first = _comparisons()
    second = replace(_comparisons(), segments=_segments(offset=100))
    both = concatenate([first, second, first[:1]])
    np.testing.assert_array_equal(_shown(both)[:4], _shown(first))
    np.testing.assert_array_equal(_shown(both)[4:8], _shown(second))
    np.testing.assert_array_equal(both.preference[8:], [1.0])


def test_concatenate_keeps_annotators_and_fills_in_nobody_in_particular():
    known = _comparisons(annotator=np.arange(4))
    unknown = _comparisons()
    assert concatenate([known, known]).annotator.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert concatenate([unknown, known]).annotator.tolist() == [-1] * 4 + [0, 1, 2, 3]
    assert concatenate([unknown, unknown]).annotator is None
