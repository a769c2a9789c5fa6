"""Where the pictures of a clip come from: pixels it holds, its environment, or a function."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol, Self, final

from preferl.data.segments import Segments
from preferl.errors import ConfigError
from preferl.shapes import Array, Observations
from preferl.store.pixels import PixelFrames, holds_pixels
from preferl.store.simulation import EnvFrames
from preferl.trust import admitted, resolve


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
