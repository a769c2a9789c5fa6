"""Which reward is in use, and for which observations: published, fixed, or seen through a function.

`Rewards` is what wrappers take: a folder of versions that change, or one reward that stays.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from gymnasium import spaces

from preferl.errors import ConfigError, SpaceError
from preferl.feedback.step_rewards import AnyReward, as_reward
from preferl.online.recording import blank
from preferl.online.reward_computer import Reward
from preferl.shapes import Array, BoolArray, FloatArray, Observations, leaves, map_observations
from preferl.training.publish import PublishedReward

Transform = Callable[[Any], Any]
"""Observations `[..., *obs]` of the environment to those that are recorded and rewarded."""


Rewards = Path | str | PublishedReward | Reward | AnyReward | None
"""A folder of published rewards or its reader, one reward that stays (learned, a control, or a
plain function of observations and actions), or none at all."""


def published_reward(rewards: Path | str | PublishedReward) -> PublishedReward:
    """The reader of a folder of published rewards; a folder is read now."""
    if isinstance(rewards, PublishedReward):
        return rewards
    reader = PublishedReward(rewards)
    reader.refresh()
    return reader


@final
class RewardInSpaces:
    """A reward of other observations, or one that knows no spaces, for those of an environment.

    Args:
        reward: of observations as `transform` gives them.
        observations: of the environment.
        actions: of the environment.
        transform: what the reward sees in place of an observation; None changes nothing.
    """

    def __init__(
        self,
        reward: Any,
        observations: spaces.Space[Any],
        actions: spaces.Space[Any],
        transform: Transform | None = None,
    ) -> None:
        self._reward, self._transform = reward, transform
        self.context: int = reward.context
        self.observation_space, self.action_space = observations, actions

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Windows `[B, H, ...]` and mask `[B, H]` to rewards `[B]`."""
        if self._transform is not None:
            observations = self._transform(observations)
        rewards: FloatArray = self._reward(observations, actions, mask)
        return rewards


def for_spaces(
    reward: Reward | AnyReward, observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> Reward:
    """A reward for these observations and actions.

    Args:
        reward: made for them, or one that knows no spaces: a control, or a plain function of
            observations and actions.
        observations: of the environment.
        actions: of the environment.

    Raises:
        ModelError: something that cannot be called.
        SpaceError: a reward that was made for others.
    """
    if not isinstance(reward, Reward):
        return RewardInSpaces(as_reward(reward), observations, actions)
    for what, expected, got in (
        ("observations", reward.observation_space, observations),
        ("actions", reward.action_space, actions),
    ):
        if expected != got:
            raise SpaceError.mismatch(
                f"{what} of the environment",
                expected=f"{expected}, which the reward was made for",
                got=got,
                fix="Build the reward for this environment's spaces, or wrap the environment.",
            )
    return reward


def transformed_space(
    space: spaces.Space[Any], transform: Transform | None, told: spaces.Space[Any] | None
) -> spaces.Space[Any]:
    """The space after a transform, as whoever wrote it says, checked on an example.

    Raises:
        ConfigError: one of the two without the other.
        SpaceError: the transform gives something else than the space that was named.
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


def _shapes(observations: Observations) -> Any:
    if not leaves(observations):
        return observations
    return map_observations(lambda array: tuple(array.shape), observations)
