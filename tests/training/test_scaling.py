"""Rewards scaled by the range of returns: numbers by hand."""

import numpy as np
import pytest

from preferl.data import Episodes, Task
from preferl.errors import ConfigError
from preferl.training import scale_by_return_range


def _episodes(rewards=(1.0, 1.0, 4.0), lengths=(2, 1), dtype=np.float64):
    rewards = np.array(rewards, dtype)
    column = np.zeros((len(rewards), 1))
    return Episodes(
        column, column, rewards, np.zeros(len(rewards), bool), column[: len(lengths)],
        np.array(lengths),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("task", "learned", "expected"),
    [  # returns 2 and 4, so that the range is 2
        (None, True, [1, 1, 4]),  # the longest episode has 2 steps
        (10, True, [5, 5, 20]),
        ("hopper-medium-v2", True, [500.5, 500.5, 2000.5]),
        # 1 - 2/2 = 0 and 4 - 2/1 = 2, times 1000/2, less 1
        ("antmaze-medium-play-v2", True, [-1, -1, 999]),
        ("antmaze-medium-play-v2", False, [0, 0, 3]),
        ("door-human-v1", True, [100, 100, 400]),
        ("door-human-v1", False, [1, 1, 4]),
        ("Can_mh", True, [250, 250, 1000]),
        (Task("own", 0, 1, 4, shift_after=-3), True, [-1, -1, 5]),
    ],
)
def test_by_hand(task, learned, expected):
    episodes = _episodes()
    scaled = scale_by_return_range(episodes, task, learned=learned)
    np.testing.assert_allclose(scaled.rewards, expected, rtol=1e-12)
    np.testing.assert_array_equal(episodes.rewards, [1, 1, 4])
    assert scaled.observations is episodes.observations


@pytest.mark.parametrize("rewards", [(0.0, 0.0, 0.0), (0.1, 0.2, 0.3)])
def test_equal_returns_keep_their_scale_and_warn(rewards):
    with pytest.warns(UserWarning, match=r"for all 2 episodes.*keep their scale"):
        scaled = scale_by_return_range(_episodes(rewards), "hopper-medium-v2")
    np.testing.assert_allclose(scaled.rewards, np.array(rewards) + 0.5)


def test_precision_stays():
    assert scale_by_return_range(_episodes(dtype=np.float32)).rewards.dtype == np.float32
    assert scale_by_return_range(_episodes(dtype=np.float64)).rewards.dtype == np.float64


@pytest.mark.parametrize("task", [0, -5, float("nan"), "hopper"])
def test_other_horizons_are_refused(task):
    with pytest.raises(ConfigError, match="task"):
        scale_by_return_range(_episodes(), task)
