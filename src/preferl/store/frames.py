"""Where the pictures of a clip come from: pixels it holds, its environment, or a function."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol, Self, final, get_args

import numpy as np

from preferl.data.segments import Segments
from preferl.errors import ConfigError, DataError
from preferl.shapes import Array, Observations
from preferl.store.simulation import EnvFrames
from preferl.trust import admitted, resolve

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
    fix = f"Name {'one' if key is None else 'another'} as `key`, or let the environment draw."
    if isinstance(observations, Mapping):
        found = _pictures(observations) if key is None else {key: observations.get(key)}
        names = f"one of {[*observations]}"
    else:
        found, names = {"": observations}, "an array"
    if len(found) != 1:
        expected, got = "one observation that holds them", f"{[*found] or 'none'}"
        got = f"{got} among {[*observations]}"
        raise DataError.mismatch("pictures", expected=expected, got=got, fix=fix)
    (pixels,) = found.values()
    if pixels is None or not _wide(pixels):
        expected = f"{names} with pictures [T, height, width, channels]"
        got = f"{key!r} of shape {None if pixels is None else pixels.shape}"
        raise DataError.mismatch("pictures", expected=expected, got=got, fix=fix)
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


class FrameSource(Protocol):
    """Draws segments, one at a time and one picture at a time, so that memory stays small."""

    def __call__(self, segments: Segments, row: int) -> Iterator[Array]:
        """One picture `[height, width, 3]` or grey `[height, width]` of bytes per real step."""

    def close(self) -> None:
        """Let go of simulators and graphics contexts; called once, at the end."""


@final
class FunctionFrames:
    """Pictures from a function of yours.

    Args:
        function: segments and the row of one of them to its pictures, one per real step:
            `[real, height, width, 3]` bytes, or pictures one after another.

    >>> import numpy as np
    >>> def black(segments, row):
    ...     return np.zeros((segments.real[row], 64, 64), np.uint8)
    >>> block = np.zeros((3, 1))
    >>> one = Segments(block, block, np.zeros(3), np.array([0]), np.array([3]), 3)
    >>> [picture.shape for picture in FunctionFrames(black)(one, 0)]
    [(64, 64), (64, 64), (64, 64)]
    """

    def __init__(self, function: Callable[[Segments, int], Iterable[Array]]) -> None:
        self._function = function

    @classmethod
    def at(cls, path: str) -> Self:
        """The function named `module:function`. It runs here, so let only an operator name it.

        Raises:
            ConfigError: there is no such function.
        """
        module = path.partition(":")[0]
        function = resolve(path, what="frames", source="the operator", trust=[module])
        if not callable(function):
            raise ConfigError.mismatch(
                "frames", expected="a function", got=f"{path!r}, a {type(function)}"
            )
        return cls(function)

    def __call__(self, segments: Segments, row: int) -> Iterator[Array]:
        """The function's pictures."""
        return iter(self._function(segments, row))

    def close(self) -> None:
        """There is nothing to let go of."""


KINDS: Mapping[str, Callable[..., FrameSource]] = {"pixels": PixelFrames, "env": EnvFrames}


def frame_source(
    spec: Mapping[str, Any], *, trust: Collection[str] = (), source: str = "the project"
) -> FrameSource:
    """What a project says of its pictures, as a source; simulators start with the first clip.

    Only these two kinds, so that no text in a database makes a program run: `{"kind": "pixels"}`
    with the arguments of `PixelFrames`, and `{"kind": "env", "env_id": ...}` with those of
    `EnvFrames`. An id such as `module:Id` is refused unless its module is of `trust` or belongs to
    `preferl.trust.ALLOWED`.

    Args:
        spec: as a project has it.
        trust: modules that whoever runs this trusts.
        source: who says so, for messages.

    Raises:
        ConfigError: another kind, an argument that it does not have, or a module that nobody
            trusts.

    >>> type(frame_source({"kind": "env", "env_id": "Pendulum-v1"})).__name__
    'EnvFrames'
    """
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind not in KINDS:
        raise ConfigError.mismatch("kind of frames", expected=f"one of {[*KINDS]}", got=kind)
    if "env_id" in options:
        admitted(options["env_id"], source=f"the `frames` of {source}", trust=trust)
    try:
        return KINDS[kind](**options)
    except TypeError as error:
        raise ConfigError.mismatch(
            f"frames of kind {kind!r}", expected="its arguments", got=error
        ) from error


def spec_for(observations: Observations, env_id: str | None = None) -> dict[str, Any]:
    """How clips of these observations become pictures, as `frame_source` reads it.

    Args:
        observations: `[T, *obs]`; pixels among them are shown as they are.
        env_id: otherwise, who draws them.

    Raises:
        ConfigError: neither pixels nor an environment.

    >>> import numpy as np
    >>> spec_for(np.zeros((5, 3)), "Pendulum-v1")
    {'kind': 'env', 'env_id': 'Pendulum-v1'}
    """
    if holds_pixels(observations):
        return {"kind": "pixels"}
    if env_id is not None:
        return {"kind": "env", "env_id": env_id}
    raise ConfigError.mismatch(
        "pictures",
        expected="observations that hold pixels, or the id of an environment that draws",
        got="neither",
        fix="Name the environment, or draw with a function of yours.",
    )
