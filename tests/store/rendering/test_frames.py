import numpy as np
import pytest

from preferl.data.segments import Segments
from preferl.errors import ConfigError, DataError
from preferl.store.rendering.frames import (
    EnvFrames,
    PixelFrames,
    frame_source,
    function_frames,
    spec_for,
)

BLOCK = np.zeros((3, 1))
SEGMENTS = Segments(BLOCK, BLOCK, np.zeros(3), np.array([0]), np.array([3]), 3)


def grey(segments, row):
    return np.full((segments.real[row], 16, 16), 7, np.uint8)


def test_a_function_draws():
    source = function_frames(f"{__name__}:grey")
    assert [int(picture.mean()) for picture in source(SEGMENTS, 0)] == [7, 7, 7]


def test_paths_that_lead_to_no_function():
    names = ("nowhere:draw", "math:draw", "math", ":", "", "math:pi", f"{__name__}:BLOCK")
    for path in names:
        with pytest.raises(ConfigError, match="frames"):
            function_frames(path)


def test_sources_by_what_a_project_names():
    assert isinstance(frame_source({"kind": "pixels", "newest": "first"}), PixelFrames)
    assert isinstance(frame_source({"kind": "env", "env_id": "CartPole-v1"}), EnvFrames)
    for wrong in ({}, {"kind": "function", "path": "os:getcwd"}, {"kind": "pixels", "size": 3}):
        with pytest.raises(ConfigError, match="frames"):
            frame_source(wrong)


def test_pixels_are_shown_and_other_clips_drawn():
    pixels = np.zeros((2, 16, 16, 3), np.uint8)
    assert spec_for(pixels, "CartPole-v1") == {"kind": "pixels"}
    spec = spec_for(BLOCK, "CartPole-v1")
    assert spec == {"kind": "env", "env_id": "CartPole-v1"}
    assert spec_for(BLOCK, "CartPole-v1", recorded=True) == spec
    assert spec_for(BLOCK, recorded=True) == {"kind": "recorded"}
    assert isinstance(frame_source(spec), EnvFrames)
    with pytest.raises(ConfigError, match="pictures"):
        spec_for(BLOCK)


def _drawn(pictures, **options):
    steps = len(pictures)
    nothing = np.zeros((steps, 1))
    clip = Segments(pictures, nothing, nothing[:, 0], np.array([0]), np.array([steps]), steps)
    return list(PixelFrames(**options)(clip, 0))


@pytest.mark.parametrize("opacity", [0, 255])
@pytest.mark.parametrize("end", ["first", "last"])
def test_opacity_that_never_changes_is_not_shown(rng, opacity, end):
    pictures = rng.integers(0, 256, (3, 16, 16, 4), dtype=np.uint8)
    pictures[..., 3] = opacity
    seen = pictures if end == "last" else np.moveaxis(pictures, -1, 1)
    np.testing.assert_array_equal(_drawn(seen), pictures[..., :3])


def test_pictures_of_shares_are_scaled_and_others_refused():
    pictures = np.full((2, 16, 16, 3), 0.5)
    assert all((frame == 128).all() for frame in _drawn(pictures))
    for value in (-0.1, 1.5, np.nan):
        pictures[1, 0, 0, 0] = value
        with pytest.raises(DataError, match=r"floats in \[0, 1\]"):
            _drawn(pictures)


def test_stacks_of_pictures_with_opacity_show_the_newest(rng):
    pictures = rng.integers(0, 256, (3, 16, 16, 8), dtype=np.uint8)
    pictures[..., [3, 7]] = 255
    np.testing.assert_array_equal(_drawn(pictures), pictures[..., 4:7])
    np.testing.assert_array_equal(_drawn(pictures, newest="first"), pictures[..., :3])


def test_four_channels_that_all_change_are_four_grey_frames_unless_it_is_said(rng):
    pictures = rng.integers(0, 256, (3, 16, 16, 4), dtype=np.uint8)
    np.testing.assert_array_equal(_drawn(pictures), pictures[..., 3:])
    np.testing.assert_array_equal(_drawn(pictures, colours=4), pictures[..., :3])


def test_pictures_whose_shown_channel_never_changes_are_refused(rng):
    pictures = rng.integers(0, 256, (3, 16, 16, 2), dtype=np.uint8)
    pictures[..., 1] = 255
    with pytest.raises(DataError, match="channel 1, the one that would be shown, never changes"):
        _drawn(pictures)
    assert int(_drawn(np.zeros_like(pictures))[0].max()) == 0
