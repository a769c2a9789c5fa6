"""Observations are one array or a dictionary of arrays, and are treated alike."""

import numpy as np
import pytest
import torch

from preferl.shapes import leaves, map_observations, take


def test_alike_observations_meet_key_by_key():
    first = {"arm": np.array([1.0]), "hand": np.array([2.0])}
    second = {"hand": np.array([20.0]), "arm": np.array([10.0])}
    both = map_observations(lambda *arrays: np.concatenate(arrays), first, second)
    assert {key: array.tolist() for key, array in both.items()} == {
        "arm": [1, 10],
        "hand": [2, 20],
    }
    assert list(both) == ["arm", "hand"], "in the order of the first"


def test_observations_that_are_not_alike_are_an_error():
    with pytest.raises(KeyError, match="hand"):
        map_observations(np.add, {"hand": np.zeros(1)}, {"arm": np.zeros(1)})


def test_leaves_stand_in_the_order_of_their_keys():
    array = np.zeros(3)
    (leaf,) = leaves(array)
    assert leaf is array
    assert leaves({"b": np.int64(1), "a": np.int64(2)}) == [1, 2]


def test_rows_are_taken_along_the_first_axis():
    observations = {"arm": np.array([[1, 2], [3, 4], [5, 6]]), "hand": np.array([7, 8, 9])}
    found = take(observations, np.array([[2, 0]]))
    assert found["arm"].tolist() == [[[5, 6], [1, 2]]]
    assert found["hand"].tolist() == [[9, 7]]
    assert take(observations, slice(1, 2))["hand"].tolist() == [8]
    assert take(torch.arange(3), torch.tensor([True, False, True])).tolist() == [0, 2]
    with pytest.raises(IndexError):
        take(observations, np.array([3]))
