"""Content ids: equal for equal clips wherever they are stored, different for all others."""

from dataclasses import replace

import numpy as np
import pytest

from preferl.data import Comparisons, Segments
from preferl.data.content import pair_ids, pair_numbers

BOTH = pytest.mark.parametrize("ids_of", [pair_ids, pair_numbers])


def _segments(observations, length=3):
    """Windows end to end over steps whose actions and rewards are 0."""
    steps = len(observations)
    start = np.arange(0, steps, length)
    whole = np.full(len(start), length)
    nothing = np.zeros(steps, np.float32)
    return Segments(np.asarray(observations), nothing[:, None], nothing, start, whole, length)


def _comparisons(segments, pairs):
    count = len(pairs)
    return Comparisons(segments, np.asarray(pairs), np.ones(count), np.ones(count))


@BOTH
def test_pairs_that_differ_in_a_middle_step_have_other_ids(ids_of):
    segments = _segments([0, 1, 2, 0, 9, 2, 5, 5, 5])
    ids = ids_of(_comparisons(segments, [[0, 2], [1, 2]]))
    assert ids[0] != ids[1]


@BOTH
def test_ids_do_not_depend_on_order_place_padding_rewards_or_rows(ids_of):
    first = _segments([0, 1, 2, 3, 4, 5])
    steps = np.array([7, 0, 1, 2, 8, 3, 4, 5])
    second = Segments(
        steps,
        np.zeros((8, 1), np.float32),
        np.ones(8, np.float32),
        np.array([0, 1, 5]),
        np.array([1, 3, 3]),
        length=6,
    )
    assert ids_of(_comparisons(first, [[0, 1]])) == ids_of(_comparisons(second, [[2, 1]]))


@BOTH
def test_windows_that_are_only_as_long_as_part_of_others_have_other_ids(ids_of):
    segments = replace(_segments([0, 1, 2, 0, 1, 2]), real=np.array([3, 2]))
    ids = ids_of(_comparisons(segments, [[0, 0], [0, 1], [1, 1]]))
    assert len(set(ids)) == 3


@BOTH
def test_ids_do_not_depend_on_the_order_of_keys(ids_of):
    hand = np.array([0, 1, 2, 3, 4, 5])
    arm = np.array([7, 7, 8, 8, 9, 9])
    one = replace(_segments(hand), observations={"hand": hand, "arm": arm})
    other = replace(_segments(hand), observations={"arm": arm, "hand": hand})
    swapped = replace(_segments(hand), observations={"arm": hand, "hand": arm})
    ids = [ids_of(_comparisons(segments, [[0, 1]])) for segments in (one, other, swapped)]
    assert ids[0] == ids[1]
    assert ids[0] != ids[2]
