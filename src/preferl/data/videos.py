"""Frames of recorded videos by number, decoded when they are needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from preferl.errors import DataError, in_words
from preferl.reading import DAMAGED
from preferl.shapes import Array, IntArray

BACK: Final = 64
"""How many frames the next seek goes back if a seek lands after the frame.

The seek after that goes to the beginning.
"""

LEAD: Final = 8
"""Frames up to this far ahead are reached by decoding, and frames further ahead by a seek."""


@final
@dataclass(frozen=True)
class VideoFrames:
    """Frames of an MP4 file by number: frame `n` is the one shown at `n / fps` seconds.

    Frames are found by their timestamps. Neighbouring frames are decoded in one pass. The file is
    open only while frames are read.

    Attributes:
        path: the file.
        fps: frames per second.
        size: height and width of the frames. Larger frames are never decoded.
    """

    path: Path
    fps: float
    size: tuple[int, int]

    def require(self, frames: int) -> None:
        """Raise `DataError` unless the file is a whole MP4 with `frames` frames of this size."""
        with self._opened() as (_, stream):
            if stream.frames < frames:
                raise DataError(
                    f"{self.path}: expected {frames} frames, as the data set says, got "
                    f"{stream.frames}. Copy the file again."
                )

    def __getitem__(self, numbers: IntArray) -> Array:
        """Decode frames `[N]` in any order: `[N, height, width, 3]` bytes.

        Raises:
            DataError: the file is damaged, or has no such frame.
        """
        distinct, index = np.unique(numbers, return_inverse=True)
        pictures = np.empty((len(distinct), *self.size, 3), np.uint8)
        decoded = -1
        lead = LEAD
        frames: Iterator[Any] = iter(())
        with self._opened() as (container, stream):
            for row, number in enumerate(distinct.tolist()):
                if decoded < 0 or number - decoded > lead:
                    first_number, frames = self._decoded_from(number, container, stream)
                    # frames to decode instead of another seek
                    lead = max(lead, number - first_number)
                for frame in frames:
                    decoded = self._number(frame, stream)
                    if decoded >= number:
                        break
                if decoded != number:
                    raise DataError(f"{self.path}: expected a frame {number}, got none")
                if frame.is_corrupt or (frame.height, frame.width) != self.size:
                    raise DataError(
                        f"{self.path}, frame {number}: expected a whole picture of {self.size} "
                        f"pixels, got a damaged one or one of {frame.height, frame.width}"
                    )
                pictures[row] = frame.to_ndarray(format="rgb24")
        return pictures[index]

    def _decoded_from(self, number: int, container: Any, stream: Any) -> tuple[int, Iterator[Any]]:
        """Return the number of a frame at or before `number`, and the frames from that one on."""
        for start in (number, max(0, number - BACK), 0):
            container.seek(round(start / self.fps / float(stream.time_base)), stream=stream)
            frames = container.decode(stream)
            first_frame = next(frames, None)
            if first_frame is not None and self._number(first_frame, stream) <= number:
                return self._number(first_frame, stream), chain([first_frame], frames)
        raise DataError(f"{self.path}: expected a frame {number}, got none")

    def _number(self, frame: Any, stream: Any) -> int:
        return round(int(frame.pts) * float(stream.time_base) * self.fps)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """Open the file and its video; raise the decoder's errors in the block as `DataError`."""
        import av

        height, width = self.size
        # Decoders need room for whole blocks of pixels.
        limits = {"max_pixels": str((height + 128) * (width + 128)), "err_detect": "explode"}
        try:
            # Some other formats name further files or addresses, and av would read these.
            with av.open(str(self.path), format="mp4", options=limits) as container:
                stream = container.streams.video[0]
                context = stream.codec_context
                if (context.height, context.width) != self.size:
                    raise DataError(
                        f"{self.path}: expected pictures of {height} x {width} pixels, as the data "
                        f"set says, got {context.height} x {context.width}"
                    )
                context.thread_count = 1
                context.options = limits
                yield container, stream
        except DataError:
            raise
        except (av.FFmpegError, *DAMAGED) as error:
            raise DataError(
                f"{self.path}: expected a whole MP4 file with a video, got {in_words(error)}. Copy "
                "the file again."
            ) from error
