"""Clips whose observations are pictures already."""

from collections.abc import Iterator, Mapping
from typing import Literal, final, get_args

import numpy as np

from preferl.data.segments import Segments
from preferl.errors import ConfigError, DataError
from preferl.shapes import Array, Observations

End = Literal["last", "first"]
Colours = Literal[1, 3, 4]

FEWEST_PIXELS = 8
"""Sides of less are channels or stacked frames, not height or width."""


@final
class PixelFrames:
    """The pictures that an agent sees.

    Args:
        key: which observation is the picture, where there are several; None finds the only one.
        channels: where the axis of colours and stacked frames is; None takes the shorter end.
        colours: 3 for RGB, 1 for grey, 4 for RGB with opacity, which is left out. None: 3 where
            it divides the channels, otherwise grey, so that 4 channels are four grey frames.
        newest: where the newest of stacked frames is; wrappers put it last. The others are left
            out, since they were shown before.

    Raises:
        ConfigError: another `channels`, `colours` or `newest`.

    >>> stack = np.zeros((2, 84, 84, 4), np.uint8)
    >>> stack[1, ..., 3] = 7
    >>> block = np.zeros((2, 1))
    >>> segments = Segments(stack, block, np.zeros(2), np.array([0]), np.array([2]), 2)
    >>> [(picture.shape, int(picture.max())) for picture in PixelFrames()(segments, 0)]
    [((84, 84, 1), 0), ((84, 84, 1), 7)]
    """

    def __init__(
        self,
        key: str | None = None,
        channels: End | None = None,
        colours: Colours | None = None,
        newest: End = "last",
    ) -> None:
        for name, value, known in (
            ("channels", channels, (None, *get_args(End))),
            ("colours", colours, (None, *get_args(Colours))),
            ("newest", newest, get_args(End)),
        ):
            if value not in known:
                raise ConfigError.mismatch(name, expected=f"one of {known}", got=repr(value))
        self._key, self._channels, self._colours, self._newest = key, channels, colours, newest

    def __call__(self, segments: Segments, row: int) -> Iterator[Array]:
        """One picture `[height, width, 1 or 3]` per real step.

        Raises:
            DataError: no pictures, several, or numbers that are not those of pixels.
        """
        pixels = _picture_of(segments.observations, self._key)
        start = int(segments.start[row])
        for step in range(start, start + int(segments.real[row])):
            yield _bytes(self._newest_of(self._channels_last(np.asarray(pixels[step]))))

    def close(self) -> None:
        """There is nothing to let go of."""

    def _channels_last(self, picture: Array) -> Array:
        """One step `[height, width]`, with channels on either end, or stacked, to `[h, w, C]`."""
        if picture.ndim == 2:
            return picture[..., None]
        if picture.ndim == 4:
            picture = picture[-1 if self._newest == "last" else 0]
        first = self._channels == "first" or (
            self._channels is None and picture.shape[0] < picture.shape[2]
        )
        return np.moveaxis(picture, 0, -1) if first else picture

    def _newest_of(self, picture: Array) -> Array:
        """`[h, w, C]` to the 1 or 3 channels of the newest frame."""
        channels = picture.shape[-1]
        colours = self._colours or (3 if channels % 3 == 0 else 1)
        if channels % colours:
            raise DataError.mismatch(
                "channels of a picture", expected=f"a multiple of {colours}", got=channels
            )
        newest = picture[..., -colours:] if self._newest == "last" else picture[..., :colours]
        return newest[..., :3]


def holds_pixels(observations: Observations) -> bool:
    """Whether exactly one array of observations `[T, *obs]` holds pictures of bytes."""
    return len(_pictures(observations)) == 1


def _pictures(observations: Observations) -> dict[str, Array]:
    named = observations if isinstance(observations, Mapping) else {"": observations}
    return {key: leaf for key, leaf in named.items() if leaf.dtype == np.uint8 and _wide(leaf)}


def _wide(leaf: Array) -> bool:
    return leaf.ndim in (3, 4, 5) and sorted(leaf.shape[1:])[-2] >= FEWEST_PIXELS


def _picture_of(observations: Observations, key: str | None) -> Array:
    if isinstance(observations, Mapping):
        found = _pictures(observations) if key is None else {key: observations.get(key)}
        names = f"one of {[*observations]}"
    else:
        found, names = {"": observations}, "an array"
    if len(found) != 1:
        raise DataError.mismatch(
            "pictures",
            expected="one observation that holds them",
            got=f"{[*found] or 'none'} among {[*observations]}",
            fix="Name one as `key`, or let the environment draw.",
        )
    (pixels,) = found.values()
    if pixels is None or not _wide(pixels):
        raise DataError.mismatch(
            "pictures",
            expected=f"{names} with pictures [T, height, width, channels]",
            got=f"{key!r} of shape {None if pixels is None else pixels.shape}",
            fix="Name another `key`, or let the environment draw.",
        )
    return pixels


def _bytes(picture: Array) -> Array:
    """A picture of bytes, or of numbers in [0, 1], as bytes."""
    if picture.dtype == np.uint8:
        return picture
    if not (picture.dtype.kind == "f" and picture.min() >= 0 and picture.max() <= 1):
        raise DataError.mismatch(
            "pixels",
            expected="uint8, or floats in [0, 1]",
            got=f"{picture.dtype} in [{picture.min():g}, {picture.max():g}]",
            fix="Draw with a function of yours that scales them.",
        )
    return np.asarray(np.rint(picture * 255), np.uint8)
