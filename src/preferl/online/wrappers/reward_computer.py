"""Rewards of steps while agents act, for `V` environments at once, of any library."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, final, runtime_checkable

import numpy as np
from gymnasium import spaces

from preferl.errors import ConfigError, DataError, ModelError, SpaceError
from preferl.feedback.step_rewards import AnyReward, as_reward
from preferl.models.base import RewardModel
from preferl.models.spaces import can_read
from preferl.online.wrappers.feedback_config import BeforeFirstReward, FeedbackConfig
from preferl.online.wrappers.recording import zeros_of
from preferl.online.wrappers.state_entropy import StateEntropyBonus
from preferl.shapes import (
    Array,
    BoolArray,
    FloatArray,
    Observations,
    map_observations,
)
from preferl.training.publish import PublishedReward, write_spaces
from preferl.training.reward_function import RewardFunction


@runtime_checkable
class WindowReward(Protocol):
    """A reward of the last step of each window; `RewardFunction` is one."""

    @property
    def context(self) -> int:
        """`H`, the number of steps in a window; 1 for a reward of single steps."""

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """The space of the observations that the reward reads."""

    @property
    def action_space(self) -> spaces.Space[Any]:
        """The space of the actions that the reward reads."""

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Compute rewards `[B]` of windows `[B, H, ...]`; `mask [B, H]` is false where padded."""
        ...


Transform = Callable[[Any], Any]
"""Maps observations `[..., *obs]` to those that are recorded and that the reward reads."""

Rewards = Path | str | PublishedReward | WindowReward | AnyReward | None
"""Where steps get their rewards: from the newest reward in a folder of published ones (or a
`PublishedReward` of it); from one reward, which is learned, a control, or a plain function of
observations and actions; or None."""


@final
@dataclass(frozen=True, eq=False)
class RewardInSpaces:
    """A reward of an environment's observations, which `transform` changes first."""

    reward: Any
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    transform: Transform | None = None

    @property
    def context(self) -> int:
        """`H`, the number of steps in a window."""
        return int(self.reward.context)

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Compute rewards `[B]` of windows `[B, H, ...]` with mask `[B, H]`."""
        if self.transform is not None:
            observations = self.transform(observations)
        rewards: FloatArray = self.reward(observations, actions, mask)
        return rewards


def for_spaces(
    reward: WindowReward | AnyReward, observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> WindowReward:
    """Return a reward for these spaces: one that reads them, a control, or a function of steps.

    Raises:
        ModelError: the reward is a reward model, or a function with other arguments than
            observations and actions.
        SpaceError: the reward was made for other spaces.
    """
    if isinstance(reward, RewardModel):
        raise ModelError(
            "reward: expected a RewardFunction, a control, or a function of observations and "
            f"actions, got a reward model, {type(reward).__name__}. Pass `RewardFunction(model)`, "
            "which later training does not change."
        )
    if not isinstance(reward, WindowReward):
        return RewardInSpaces(as_reward(reward), observations, actions)
    fix = "Build the reward for this environment's spaces, or wrap the environment."
    for name, expected, space in (
        ("observations", reward.observation_space, observations),
        ("actions", reward.action_space, actions),
    ):
        if not can_read(expected, space):
            raise SpaceError(
                f"{name} of the environment: expected {expected}, which the reward was made for, "
                f"got {space}. {fix}"
            )
    return reward


def space_after(
    space: spaces.Space[Any],
    transform: Transform | None,
    transformed_space: spaces.Space[Any] | None,
) -> spaces.Space[Any]:
    """Return the space after a transform, as its author states it; check the transform on zeros."""
    if transform is None and transformed_space is None:
        return space
    if transform is None or transformed_space is None:
        present = "a space" if transform is None else "a function"
        raise ConfigError(
            f"transform and transformed_space: expected both or neither, got only {present}."
        )
    for axes in ((1,), (1, 2)):
        expected = _shapes(zeros_of(transformed_space, axes))
        cause = None
        try:
            transformed = _shapes(transform(zeros_of(space, axes)))
        except Exception as error:  # a user's function may raise anything
            transformed = f"{type(error).__name__}: {error}"
            cause = error
        if transformed != expected:
            raise SpaceError(
                f"result of the transform: expected shape {expected}, which is that of "
                f"transformed_space behind any leading axes, here {axes}, got {transformed}. Let "
                "it work on the last axes, as in `lambda o: o[..., :3]`, "
                "`o.reshape(*o.shape[:-2], -1)` or `np.swapaxes(o, -1, -2)`."
            ) from cause
    return transformed_space


def _shapes(observations: Any) -> Any:
    return map_observations(lambda array: tuple(array.shape), observations)


RewardSource = Literal["learned", "before_first_reward", "environment"]
"""Where the rewards of steps come from; "before_first_reward" stands for zero or a bonus, until
there is a learned reward."""

Windows = Callable[[int], tuple[Observations, Array, BoolArray]]
"""The last `H` steps up to the current one, `[V, H, ...]`, and a mask `[V, H]` of real steps."""


@final
class RewardComputer:
    """Decides which reward the steps of `V` environments get, and computes it.

    Spaces are those of one environment. Published rewards are read in the background until `close`.

    Attributes:
        space: space of observations after the transform.
        reward: the learned reward in use; None before the first.
        version: version of that reward; 0 before the first.
        published: folder of published rewards, whose newest one is followed; None if the reward is
            fixed.
        true_reward_forced: whether steps get the environment's own reward, whatever is learned.
    """

    def __init__(
        self,
        config: FeedbackConfig,
        environments: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        transform: Transform | None = None,
        transformed_space: spaces.Space[Any] | None = None,
    ) -> None:
        self.space = space_after(observation_space, transform, transformed_space)
        self.reward: WindowReward | None = None
        self.version = 0
        self.published: PublishedReward | None = None
        self.true_reward_forced = False
        self._environments = environments
        self._spaces = observation_space, action_space
        self._transform = transform
        self._before = config.before
        self._bonus = StateEntropyBonus(seed=config.seed)
        self._watch_to_close: PublishedReward | None = None

    @property
    def source(self) -> RewardSource:
        """Which reward steps get: the learned one, zero or a bonus before it, or the true one."""
        if not self.true_reward_forced and self.reward is not None:
            return "learned"
        if self.true_reward_forced or self._before == BeforeFirstReward.ENVIRONMENT:
            return "environment"
        return "before_first_reward"

    @property
    def active_version(self) -> int:
        """The version of the reward that steps get now; 0 if that is not a learned one."""
        return self.version if self.source == "learned" else 0

    @property
    def for_raw_observations(self) -> WindowReward | None:
        """The learned reward in use; it reads the environment's own observations."""
        if self.reward is None or self._transform is None:
            return self.reward
        return RewardInSpaces(self.reward, *self._spaces, self._transform)

    @property
    def deferrable(self) -> RewardFunction | None:
        """The reward that steps get now, if it can compute whole rollouts; otherwise None."""
        reward = self.reward if self.source == "learned" else None
        return reward if isinstance(reward, RewardFunction) else None

    def compute(self, windows: Windows) -> FloatArray | None:
        """Compute the rewards `[V]` of the next step; None means the environments' own rewards.

        A learned reward sees the observation before the action, the action, and the history of the
        episode. Before the first learned reward, steps get zero or a bonus for new states.
        """
        if self.source == "environment":
            return None
        reward = self.reward
        if self.source == "before_first_reward" or reward is None:
            if self._before == BeforeFirstReward.ENTROPY:
                observations, _, _ = windows(1)
                return self._bonus(observations)
            return np.zeros(self._environments, np.float32)
        rewards = reward(*windows(reward.context))
        computed = np.array(rewards, np.float32)
        if computed.shape != (self._environments,) or not np.isfinite(computed).all():
            raise DataError(
                f"learned reward: expected {self._environments} finite numbers, one per "
                f"environment, got {rewards}."
            )
        return computed

    def set_reward(self, reward: WindowReward | AnyReward, *, version: int | None = None) -> None:
        """Use one fixed reward from the next step on, see `FeedbackVecEnv.set_reward`."""
        self._use(reward, self.version + 1 if version is None else version)
        self.published = None

    def follow(self, rewards: Path | str | PublishedReward, *, announce: bool) -> None:
        """Use the newest of published rewards, here and at each `switch_to_newest`.

        With `announce`, the environment's spaces are written into the folder, for the program that
        fits rewards.
        """
        if not isinstance(rewards, PublishedReward):
            rewards = PublishedReward(rewards)
            rewards.refresh()
        self.published = rewards
        self.switch_to_newest()
        if announce:
            write_spaces(rewards.synced, self.space, self._spaces[1])
        if not rewards.watched:
            self._watch_to_close = rewards.watch()  # last, so that no thread is left after an error

    def switch_to_newest(self, *, wait: bool = False) -> bool:
        """Switch to the newest reward, see `FeedbackControls`; one of other spaces is refused."""
        published = self.published
        if published is None:
            return False
        _ = published.refresh() if wait else published.switch()
        if published.reward is None:
            return False
        if self.reward is not None and self.version == published.version:
            return False
        self._use(published.reward, published.version)
        return True

    def snapshot(self) -> dict[str, Any]:
        """Return which reward is in use, and the state of the bonus, for `restore`."""
        return {
            "source": None if self.published is None else self.published.snapshot(),
            "bonus": self._bonus.snapshot(),
            "true_reward_forced": self.true_reward_forced,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Use the published reward that was in use, even if newer ones were published."""
        self._bonus.restore(snapshot["bonus"])
        self.true_reward_forced = bool(snapshot["true_reward_forced"])
        if self.published is not None:
            self.published.restore(snapshot["source"])
            self.reward = None
            self.version = 0
            if self.published.reward is not None:
                self._use(self.published.reward, self.published.version)

    def close(self, seconds: float) -> None:
        """Stop the thread that `follow` started, and wait for it at most `seconds`."""
        if self._watch_to_close is not None:
            self._watch_to_close.close(seconds)

    def _use(self, reward: WindowReward | AnyReward, version: int) -> None:
        self.reward = for_spaces(reward, self.space, self._spaces[1])
        self.version = version
