"""Transforms that fix the axes of what they are given are refused in words."""

import numpy as np
import pytest
from gymnasium import spaces

from preferl.errors import SpaceError
from preferl.online.wrappers.reward_computer import space_after

PICTURES = spaces.Box(0, 255, (8, 6, 3), np.uint8)
FLAT = spaces.Box(0, 255, (144,), np.uint8)
TURNED = spaces.Box(0, 255, (3, 8, 6), np.uint8)


@pytest.mark.parametrize(
    ("transform", "space"),
    [
        (lambda o: o.reshape(len(o), 144), FLAT),
        (lambda o: np.transpose(o, (0, 3, 1, 2)), TURNED),
        (lambda o: o[:, :, :, ::1].reshape(-1, 144), FLAT),
        (lambda o: o["picture"], PICTURES),
        (lambda o: None, PICTURES),
        (lambda o: o[..., 0], PICTURES),
    ],
    ids=["reshape", "transpose", "rows", "key", "nothing", "shape"],
)
def test_what_fixes_axes_is_refused(transform, space):
    with pytest.raises(SpaceError, match=r"behind any leading axes.*Let it work on the last"):
        space_after(PICTURES, transform, space)


@pytest.mark.parametrize(
    ("transform", "space"),
    [
        (lambda o: o.reshape(*o.shape[:-3], 144), FLAT),
        (lambda o: np.moveaxis(o, -1, -3), TURNED),
    ],
)
def test_what_works_on_the_last_axes_is_taken(transform, space):
    assert space_after(PICTURES, transform, space) is space
