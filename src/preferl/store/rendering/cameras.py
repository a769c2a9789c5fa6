"""Clips of cameras: pictures of a LeRobot data set, of one camera or several side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, final

import av
import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.segments import Segments
from preferl.data.sources.lerobot import LeRobotFolder, open_lerobot
from preferl.errors import DataError
from preferl.shapes import Array

FRAMES_AT_ONCE: Final = 32  # frames of each camera that are in memory at a time

MOST_HEIGHT: Final = 720  # pixels; beside another picture, larger ones would hardly be shown larger

PREFIX: Final = "observation.images."
"""Usual beginning of cameras' names, which may be left out."""


@final
class CameraFrames:
    """Pictures of a LeRobot data set's cameras, decoded from its files when a clip is drawn.

    The `states` of a clip are the episode and frame of each step, see `camera_episodes`.

    Args:
        folder: the data set, see `open_lerobot`.
        content: content id of the data set when the clips were cut; another data set is refused.
        cameras: names of the cameras, from left to right.
    """

    def __init__(self, folder: str, content: str, cameras: Sequence[str]) -> None:
        self._folder = str(folder)
        self._content = content
        self._cameras = tuple(cameras)
        self._recording: LeRobotFolder | None = None

    def __call__(self, segments: Segments, row: int) -> Iterator[Array]:
        """Yield one picture `[height, width, 3]` per real step.

        Raises:
            DataError: the data set is missing, damaged or another one, or the clip is not from it.
        """
        recording = self._open()
        start = int(segments.start[row])
        steps = int(segments.real[row])
        states = None if segments.states is None else segments.states[start : start + steps]
        one_run = np.arange(steps)[:, None] * [0, 1]  # frames of one episode, one after another
        if states is None or states.shape != (steps, 2) or (states - states[0] != one_run).any():
            raise DataError(
                f"states of a clip of cameras: expected {steps} frames of one episode, one after "
                f"another, got {'none' if states is None else states.tolist()[:3]}. Cut clips with "
                "preferl.store.rendering.cameras.camera_episodes."
            )
        episode = int(states[0, 0])
        begin = int(states[0, 1])
        for first in range(begin, begin + steps, FRAMES_AT_ONCE):
            last = min(first + FRAMES_AT_ONCE, begin + steps)
            pictures = (recording.frames(name, episode, first, last) for name in self._cameras)
            for together in zip(*pictures, strict=True):
                yield side_by_side(together)

    def close(self) -> None:
        """Forget the data set."""
        self._recording = None

    def _open(self) -> LeRobotFolder:
        if self._recording is None:
            recording = open_lerobot(self._folder)
            if recording.content_id != self._content:
                raise DataError(
                    f"{self._folder}: expected the data set with the content id {self._content}, "
                    f"from which the clips were cut, got {recording.content_id}. Put it back, or "
                    "make a project about the new one."
                )
            self._recording = recording
        return self._recording


def side_by_side(pictures: Sequence[Array]) -> Array:
    """Join pictures `[height, width, 3]` in a row, scaled to the height of the tallest.

    >>> small, large = np.zeros((10, 20, 3), np.uint8), np.zeros((20, 30, 3), np.uint8)
    >>> side_by_side([small, large]).shape
    (20, 70, 3)
    """
    height = min(MOST_HEIGHT, max(len(picture) for picture in pictures))
    scaled = []
    for picture in pictures:
        width = max(1, round(picture.shape[1] * height / len(picture)))
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        scaled.append(frame.to_ndarray(width=width, height=height))
    return np.concatenate(scaled, axis=1)


def camera_names(recording: LeRobotFolder, names: Sequence[str] = ()) -> list[str]:
    """Return the cameras of these names, which may leave out `PREFIX`; by default all cameras.

    Raises:
        DataError: there is no camera of a name, or no camera at all.
    """
    cameras = recording.cameras
    chosen = [name if name in cameras else f"{PREFIX}{name}" for name in names] or list(cameras)
    unknown = [name for name in chosen if name not in cameras]
    if unknown or not chosen:
        raise DataError(
            f"{recording.path}, cameras: expected some of {', '.join(cameras) or 'none'}, got "
            f"{', '.join(names) or 'none'}"
        )
    return chosen


def camera_episodes(recording: LeRobotFolder) -> Episodes:
    """Read all episodes; the state of each step is its episode and frame."""
    counted = recording.counted
    states = np.stack([counted["episode_index"], counted["frame_index"]], axis=1)
    return replace(recording.episodes(), states=states)
