"""Frames to a video that every browser plays."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import av
import numpy as np

from preferl.errors import ConfigError, DataError, mismatch
from preferl.shapes import Array


def encode(frames: Array, fps: int) -> bytes:
    """Frames as an H.264 MP4 that begins to play before it is loaded.

    Args:
        frames: `[frames, height, width, 3]` bytes. Odd sizes, which the colour format cannot
            hold, repeat their last row or column.
        fps: frames per second.

    Raises:
        DataError: not such frames, or none.
        ConfigError: less than one frame per second.

    >>> encode(np.zeros((2, 16, 16, 3), np.uint8), 10)[4:8]
    b'ftyp'
    """
    if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8 or not frames.size:
        raise DataError(
            mismatch(
                "frames",
                expected="[frames, height, width, 3] of uint8",
                got=f"{frames.shape} of {frames.dtype}",
            )
        )
    if fps < 1:
        raise ConfigError(mismatch("fps", expected="at least 1", got=fps))
    height, width = frames.shape[1:3]
    even = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    # The index can only move to the front of a file that has a name.
    with TemporaryDirectory() as folder:
        file = Path(folder) / "clip.mp4"
        _write(file, even, fps)
        return file.read_bytes()


def _write(file: Path, frames: Array, fps: int) -> None:
    with av.open(str(file), "w", options={"movflags": "+faststart"}) as container:
        stream: Any = container.add_stream("libx264", rate=fps)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"preset": "veryfast", "crf": "23"}
        stream.thread_count = 1  # with more, the bytes differ from machine to machine
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
