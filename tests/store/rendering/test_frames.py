import numpy as np
import pytest

from preferl.data.segments import Segments
from preferl.errors import ConfigError
from preferl.store.rendering.frames import (
    EnvFrames,
    PixelFrames,
    frame_source,
    function_frames,
    spec_for,
)

BLOCK = np.zeros((3, 1))
SEGMENTS = Segments(BLOCK, BLOCK, np.zeros(3), np.array([0]), np.array([3]), 3)


def grey(segments: Segments, row: int) -> np.ndarray:
    return np.full((segments.real[row], 16, 16), 7, np.uint8)


def test_a_function_draws() -> None:
    source = function_frames(f"{__name__}:grey")
    assert [int(picture.mean()) for picture in source(SEGMENTS, 0)] == [7, 7, 7]


@pytest.mark.parametrize(
    "path", ["nowhere:draw", "math:draw", "math", ":", "", "math:pi", f"{__name__}:BLOCK"]
)
def test_paths_that_lead_to_no_function(path: str) -> None:
    with pytest.raises(ConfigError, match="frames"):
        function_frames(path)


def test_sources_by_what_a_project_names() -> None:
    assert isinstance(frame_source({"kind": "pixels", "newest": "first"}), PixelFrames)
    assert isinstance(frame_source({"kind": "env", "env_id": "CartPole-v1"}), EnvFrames)
    for wrong in ({}, {"kind": "function", "path": "os:getcwd"}, {"kind": "pixels", "size": 3}):
        with pytest.raises(ConfigError, match="frames"):
            frame_source(wrong)


def test_pixels_are_shown_and_other_clips_drawn() -> None:
    pixels = np.zeros((2, 16, 16, 3), np.uint8)
    assert spec_for(pixels, "CartPole-v1") == {"kind": "pixels"}
    spec = spec_for(BLOCK, "CartPole-v1")
    assert spec == {"kind": "env", "env_id": "CartPole-v1"}
    assert isinstance(frame_source(spec), EnvFrames)
    with pytest.raises(ConfigError, match="pictures"):
        spec_for(BLOCK)
