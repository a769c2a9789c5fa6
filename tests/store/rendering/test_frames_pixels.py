import numpy as np
import pytest

from preferl.data.segments import Segments
from preferl.errors import ConfigError, DataError
from preferl.store.rendering.frames import PixelFrames, holds_pixels


def segments_of(observations, steps=4):
    """Two segments: steps 1 and 2, and padded step 3."""
    block = np.zeros((steps, 1))
    return Segments(observations, block, np.zeros(steps), np.array([1, 3]), np.array([2, 1]), 2)


def numbered(*shape):
    """`[4, *shape]` whose values encode step, row and column."""
    return np.arange(4 * int(np.prod(shape))).reshape(4, *shape).astype(np.uint8)


@pytest.mark.parametrize(
    ("shape", "options", "shown"),
    [
        ((12, 10), {}, lambda one: one[..., None]),
        ((12, 10, 1), {}, lambda one: one),
        ((12, 10, 3), {}, lambda one: one),
        ((12, 10, 4), {}, lambda one: one[..., 3:]),
        ((12, 10, 4), {"newest": "first"}, lambda one: one[..., :1]),
        ((12, 10, 4), {"colours": 4}, lambda one: one[..., :3]),
        ((12, 10, 3), {"colours": 1}, lambda one: one[..., 2:]),
        ((12, 10, 6), {}, lambda one: one[..., 3:]),
        ((1, 12, 10), {}, lambda one: one.transpose(1, 2, 0)),
        ((4, 12, 10), {}, lambda one: one[3][..., None]),
        ((9, 12, 10), {}, lambda one: one[6:].transpose(1, 2, 0)),
        (
            (12, 10, 12),
            {"channels": "first", "colours": 4},
            lambda one: one[8:11].transpose(1, 2, 0),
        ),
        ((2, 12, 10, 3), {}, lambda one: one[1]),
        ((2, 12, 10, 3), {"newest": "first"}, lambda one: one[0]),
        ((2, 3, 12, 10), {}, lambda one: one[1].transpose(1, 2, 0)),
    ],
)
def test_the_newest_frame_is_shown(shape, options, shown):
    pixels = numbered(*shape)
    source = PixelFrames(**options)
    pictures = list(source(segments_of(pixels), 0))
    assert len(pictures) == 2
    for picture, step in zip(pictures, (1, 2), strict=True):
        np.testing.assert_array_equal(picture, shown(pixels[step]))
    assert len(list(source(segments_of(pixels), 1))) == 1
    source.close()


def test_floats_become_bytes():
    ramp = np.broadcast_to(np.linspace(0, 1, 256).reshape(16, 16, 1), (4, 16, 16, 1))
    picture = next(PixelFrames()(segments_of(ramp), 0))
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(picture.ravel(), np.arange(256))
    for wrong in (ramp * 255, ramp - 0.1, (ramp * 255).astype(np.int64)):
        with pytest.raises(DataError, match="pixels"):
            next(PixelFrames()(segments_of(wrong), 0))


def test_one_of_several_observations():
    pixels = numbered(12, 10, 3)
    speeds = np.zeros((4, 2))
    eyes = {"camera": pixels, "speed": speeds}
    np.testing.assert_array_equal(next(PixelFrames()(segments_of(eyes), 0)), pixels[1])
    both = {"left": pixels, "right": pixels[::-1]}
    with pytest.raises(DataError, match=r"left.*right.*key"):
        next(PixelFrames()(segments_of(both), 0))
    picture = next(PixelFrames(key="right")(segments_of(both), 0))
    np.testing.assert_array_equal(picture, pixels[2])
    for key in ("speed", "ear"):
        with pytest.raises(DataError, match=key):
            next(PixelFrames(key=key)(segments_of(eyes), 0))
    assert holds_pixels(pixels)
    assert holds_pixels(eyes)
    assert not holds_pixels(both)
    assert not holds_pixels({"speed": speeds})


def test_numbers_are_no_pictures():
    for wrong in (np.zeros((4, 3)), np.zeros((4, 3, 3), np.uint8), np.zeros((4, 99), np.uint8)):
        assert not holds_pixels(wrong)
        with pytest.raises(DataError, match="pictures"):
            next(PixelFrames()(segments_of(wrong), 0))


def test_channels_that_are_not_whole_pictures():
    with pytest.raises(DataError, match="multiple of 3"):
        next(PixelFrames(colours=3)(segments_of(numbered(12, 10, 4)), 0))


@pytest.mark.parametrize("wrong", [{"channels": "middle"}, {"colours": 2}, {"newest": "mid"}])
def test_unknown_settings(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        PixelFrames(**wrong)
