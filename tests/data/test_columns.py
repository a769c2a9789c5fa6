"""Checks that tables and readers share: what they accept, and what their errors name."""

import h5py
import numpy as np
import pytest

from preferl.data.columns import (
    as_floats,
    naming,
    reading_foreign,
    require_finite,
    require_names,
    require_numbers,
    require_rows,
    require_shape,
)
from preferl.errors import ConfigError, DataError, UnsafePickleError


def test_a_librarys_error_becomes_ours_with_its_kind():
    expected = r"^a.npz: expected arrays, got BufferError: half. Check the path"
    with pytest.raises(DataError, match=expected), reading_foreign("a.npz", "arrays"):
        raise BufferError("half")
    with pytest.raises(ConfigError, match=r"^own$"), reading_foreign("a.npz", "arrays"):
        raise ConfigError("own")


def test_a_name_is_put_before_errors_of_data_and_keeps_their_kind():
    with pytest.raises(UnsafePickleError, match=r"^file 3: no arrays$"), naming("file 3"):
        raise UnsafePickleError("no arrays")
    with pytest.raises(ConfigError, match=r"^own$"), naming("file 3"):
        raise ConfigError("own")


def test_missing_names_are_listed_beside_those_that_are_there():
    require_names("a.csv", ["x", "y"], ["y", "z", "x"], "columns")
    expected = r"^a.csv: expected the columns x, y, w, got no x, w among \['y', '3'\]\.$"
    with pytest.raises(DataError, match=expected):
        require_names("a.csv", ["x", "y", "w"], ["y", 3], "columns")


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float16])
def test_numbers_may_be_of_any_kind(kind):
    require_numbers("rewards", np.zeros((2, 3), kind), axes=2)


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.zeros(1, complex), np.array(3.0)]
)
def test_what_is_no_numbers_along_an_axis(array):
    with pytest.raises(DataError, match=r"rewards: expected numbers with an axis of steps, got "):
        require_numbers("rewards", array)


def test_arrays_in_files_are_checked_without_being_read(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        require_numbers("rewards", file.create_dataset("rewards", (10**9,), "f4", chunks=(10,)))
        with pytest.raises(DataError, match=r"float32 of shape \(\)"):
            require_numbers("rewards", file.create_dataset("one", (), "f4"))


def test_shapes_are_those_that_are_wanted():
    require_shape("actions", np.zeros((2, 1)), (2, 1))
    with pytest.raises(DataError, match=r"actions: expected shape \(2,\), got shape \(2, 1\)"):
        require_shape("actions", np.zeros((2, 1)), (2,))


def test_all_arrays_have_one_number_of_rows():
    assert require_rows({"a": np.zeros(3), "b": np.zeros((3, 9))}, "table") == 3
    with pytest.raises(DataError, match=r"table: expected arrays of one length, got .*'b': 2"):
        require_rows({"a": np.zeros(3), "b": np.zeros(2)}, "table")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_row_that_is_not_finite_is_named(value):
    array = np.zeros((5, 2, 2), np.float32)
    require_finite("states", array)
    array[3, 1, 0] = array[4, 0, 0] = value
    with pytest.raises(DataError, match=r"states: expected finite numbers.*first in row 3\."):
        require_finite("states", array)
    require_finite("labels", np.arange(3))
    require_finite("nothing", np.zeros((0, 4)))


def test_rewards_become_floats_of_enough_digits():
    wanted = {bool: "float32", np.int8: "float32", np.float16: "float32", np.int64: "float64"}
    for kind, expected in (wanted | {np.float64: "float64"}).items():
        assert as_floats(np.ones(2, kind)).dtype == expected
    rewards = np.ones(2, np.float32)
    assert as_floats(rewards) is rewards
