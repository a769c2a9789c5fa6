"""Frames of recorded videos by their numbers, decoded where they are needed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, final

import av
import numpy as np

from preferl.errors import DataError, in_words
from preferl.reading import DAMAGED
from preferl.shapes import Array, IntArray

BACK: Final = 16
"""Frames further back from which a video is decoded if a seek came out behind the frame."""

LEAD: Final = 8
"""Frames that are decoded to get to a later one before a seek is tried instead."""


@final
class VideoReader:
    """Frames of an MP4 file by their numbers: frame `n` is the one shown at `n / fps` seconds.

    Frames are found by their timestamps. Neighbouring frames are decoded in one pass. Several
    threads may share a reader.

    Args:
        path: the file.
        fps: frames per second.
        size: height and width of the frames. Larger frames are never decoded.

    Raises:
        DataError: no MP4 file, or without a video of this size.
    """

    def __init__(self, path: Path, *, fps: float, size: tuple[int, int]) -> None:
        self.path = path
        self._fps = fps
        self._size = size
        self._lock = threading.Lock()
        # Most frames that a seek came out before the one asked for: what a new seek may cost.
        self._lead = LEAD
        height, width = size
        # Decoders need room for whole blocks of pixels.
        limits = {"max_pixels": str((height + 128) * (width + 128)), "err_detect": "explode"}
        with self._reading("a whole MP4 file with a video"):
            # Of other formats, some name further files or addresses to read.
            self._container = av.open(str(path), format="mp4", options=limits)
            self._stream: Any = self._container.streams.video[0]
            context = self._stream.codec_context
            context.thread_count = 1
            context.options = limits
            self.frames = int(self._stream.frames)
        if (context.height, context.width) != size:
            raise DataError(
                f"{path}: expected pictures of {height} x {width} pixels, as the data set says, "
                f"got {context.height} x {context.width}"
            )

    def __getitem__(self, numbers: IntArray) -> Array:
        """Decode frames `[N]` in any order: `[N, height, width, 3]` bytes.

        Raises:
            DataError: the file is damaged, or has no such frame.
        """
        wanted, place = np.unique(numbers, return_inverse=True)
        pictures = np.empty((len(wanted), *self._size, 3), np.uint8)
        decoded = -1
        frames: Iterator[Any] = iter(())
        with self._lock, self._reading("a whole video"):
            for row, number in enumerate(wanted.tolist()):
                if decoded < 0 or number - decoded > self._lead:
                    frames = self._decoded_from(number)
                for frame in frames:
                    decoded = self._number(frame)
                    if decoded >= number:
                        break
                if decoded != number:
                    raise DataError(f"{self.path}: expected a frame {number}, got none")
                if frame.is_corrupt or (frame.height, frame.width) != self._size:
                    raise DataError(
                        f"{self.path}, frame {number}: expected a whole picture of {self._size} "
                        f"pixels, got a damaged one or one of {frame.height, frame.width}"
                    )
                pictures[row] = frame.to_ndarray(format="rgb24")
        return pictures[place]

    def _decoded_from(self, number: int) -> Iterator[Any]:
        """Decode from a frame at or before a number; a seek may come out behind the frame."""
        back = 0
        while True:
            start = max(0, number - back)
            self._container.seek(self._timestamp(start), stream=self._stream)
            frames = self._container.decode(self._stream)
            first = next(frames, None)
            if first is not None and self._number(first) <= number:
                self._lead = max(self._lead, number - self._number(first))
                return chain([first], frames)
            if start == 0:
                raise DataError(f"{self.path}: expected a frame {number}, got none")
            back = 2 * back + BACK

    def _timestamp(self, number: int) -> int:
        return round(number / self._fps / float(self._stream.time_base))

    def _number(self, frame: Any) -> int:
        return round(int(frame.pts) * float(self._stream.time_base) * self._fps)

    @contextmanager
    def _reading(self, expected: str) -> Iterator[None]:
        """Turn errors of the decoder in the block into a `DataError` about the file."""
        try:
            yield
        except DataError:
            raise
        except (av.FFmpegError, *DAMAGED) as error:
            raise DataError(
                f"{self.path}: expected {expected}, got {in_words(error)}. Copy the file again."
            ) from error
