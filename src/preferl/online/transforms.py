"""Observations that people and rewards see in place of those that the agent sees."""

from collections.abc import Callable
from typing import Any, final

from gymnasium import spaces

from preferl.errors import ConfigError, SpaceError
from preferl.online.paying import Reward
from preferl.online.recording import blank
from preferl.shapes import Array, BoolArray, FloatArray, Observations, leaves, map_observations

Transform = Callable[[Any], Any]
"""Observations `[..., *obs]` of the environment to those that are recorded and rewarded."""


def transformed_space(
    space: spaces.Space[Any], transform: Transform | None, told: spaces.Space[Any] | None
) -> spaces.Space[Any]:
    """The space after a transform, as told by whoever wrote it and checked on an example.

    Raises:
        ConfigError: one of the two without the other.
        SpaceError: the transform gives something else than the space that was told.
    """
    if transform is None and told is None:
        return space
    if transform is None or told is None:
        raise ConfigError.mismatch(
            "transform and transformed_space",
            expected="both or neither",
            got="a space alone" if transform is None else "a function alone",
        )
    for axes in ((1,), (1, 2)):
        expected = _shapes(blank(told, axes))
        try:
            got: Any = _shapes(transform(blank(space, axes)))
        except Exception as error:  # a function of somebody else fails in whichever way it likes
            raise _fixed_axes(expected, axes, f"{type(error).__name__}: {error}") from error
        if got != expected:
            raise _fixed_axes(expected, axes, got)
    return told


def _fixed_axes(expected: Any, axes: tuple[int, ...], got: object) -> SpaceError:
    return SpaceError.mismatch(
        "what the transform gives",
        expected=f"shape {expected}: that of transformed_space behind any number of axes, "
        f"here {axes}",
        got=got,
        fix="Let it work on the last axes, as in `lambda o: o[..., :3]`, "
        "`o.reshape(*o.shape[:-2], -1)` or `np.swapaxes(o, -1, -2)`.",
    )


@final
class TransformedReward:
    """A reward of transformed observations as one of the environment's own.

    Args:
        reward: of transformed observations.
        transform: what it sees instead of an observation.
        space: of the environment's observations.
    """

    def __init__(self, reward: Reward, transform: Transform, space: spaces.Space[Any]) -> None:
        self._reward, self._transform = reward, transform
        self.context = reward.context
        self.observation_space = space
        self.action_space = reward.action_space

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Windows `[B, H, ...]` and mask `[B, H]` to rewards `[B]`."""
        return self._reward(self._transform(observations), actions, mask)


def _shapes(observations: Observations) -> Any:
    if not leaves(observations):
        return observations
    return map_observations(lambda array: tuple(array.shape), observations)
