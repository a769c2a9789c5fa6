"""Checks that tables and readers share: what they accept, and what their errors name."""

import numpy as np
import pytest

from preferl.data.columns import (
    as_floats,
    reading_foreign,
    require_finite,
)
from preferl.errors import ConfigError, DataError


def test_a_librarys_error_becomes_ours_with_its_kind():
    expected = r"^a.npz: expected arrays, got BufferError: half. Check the path"
    with pytest.raises(DataError, match=expected), reading_foreign("a.npz", "arrays"):
        raise BufferError("half")
    with pytest.raises(ConfigError, match=r"^own$"), reading_foreign("a.npz", "arrays"):
        raise ConfigError("own")


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
