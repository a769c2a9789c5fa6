"""Rewards of steps while agents act, for `V` environments at once, whoever steps them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from gymnasium import spaces

from preferl.data.episodes import Episodes
from preferl.errors import ConfigError, DataError, ModelError, SpaceError
from preferl.feedback.step_rewards import AnyReward, as_reward
from preferl.models.base import RewardModel
from preferl.models.spaces import can_read
from preferl.online.wrappers.recording import Recording, zeros_of
from preferl.shapes import (
    Array,
    BoolArray,
    FloatArray,
    Observations,
    map_observations,
    take,
)
from preferl.training.publish import PublishedReward
from preferl.training.reward_function import RewardFunction, relabel


@runtime_checkable
class WindowReward(Protocol):
    """A reward of the last step of each window; `RewardFunction` is one."""

    @property
    def context(self) -> int:
        """`H`, the steps a window holds; 1 looks at single steps."""

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Of the observations it understands."""

    @property
    def action_space(self) -> spaces.Space[Any]:
        """Of the actions it understands."""

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Windows `[B, H, ...]`, false in `mask [B, H]` where padded, to rewards `[B]`."""
        ...


Transform = Callable[[Any], Any]
"""Observations `[..., *obs]` of the environment to those that are recorded and rewarded."""

Rewards = Path | str | PublishedReward | WindowReward | AnyReward | None
"""A folder of published rewards or its reader, one reward that stays (learned, a control, or a
plain function of observations and actions), or none at all."""


@final
@dataclass(frozen=True, eq=False)
class RewardInSpaces:
    """A reward for an environment's spaces, of what `transform` makes of observations."""

    reward: Any
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    transform: Transform | None = None

    @property
    def context(self) -> int:
        """`H`, the steps a window holds."""
        return int(self.reward.context)

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Windows `[B, H, ...]` and mask `[B, H]` to rewards `[B]`."""
        if self.transform is not None:
            observations = self.transform(observations)
        rewards: FloatArray = self.reward(observations, actions, mask)
        return rewards


def for_spaces(
    reward: WindowReward | AnyReward, observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> WindowReward:
    """A reward for these spaces: one that reads them, a control, or a plain function of steps.

    Raises:
        ModelError: a reward model, or a function of something else than observations and actions.
        SpaceError: a reward that was made for other spaces.
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
    for what, expected, got in (
        ("observations of the environment", reward.observation_space, observations),
        ("actions of the environment", reward.action_space, actions),
    ):
        if not can_read(expected, got):
            raise SpaceError(
                f"{what}: expected {expected}, which the reward was made for, got {got}. {fix}"
            )
    return reward


def space_after(
    space: spaces.Space[Any], transform: Transform | None, given: spaces.Space[Any] | None
) -> spaces.Space[Any]:
    """The space after a transform, as `given` by whoever wrote it and checked on examples."""
    if transform is None and given is None:
        return space
    if transform is None or given is None:
        got = "a space" if transform is None else "a function"
        raise ConfigError(
            f"transform and transformed_space: expected both or neither, got {got} alone."
        )
    for axes in ((1,), (1, 2)):
        expected = _shapes(zeros_of(given, axes))
        cause = None
        try:
            got = _shapes(transform(zeros_of(space, axes)))
        except Exception as error:  # a function of somebody else fails in whichever way it likes
            got = f"{type(error).__name__}: {error}"
            cause = error
        if got != expected:
            raise SpaceError(
                f"what the transform gives: expected shape {expected}: that of transformed_space "
                f"behind any number of axes, here {axes}, got {got}. Let it work on the last "
                "axes, as in `lambda o: o[..., :3]`, `o.reshape(*o.shape[:-2], -1)` or "
                "`np.swapaxes(o, -1, -2)`."
            ) from cause
    return given


def _shapes(observations: Any) -> Any:
    return map_observations(lambda array: tuple(array.shape), observations)


@final
class RewardComputer:
    """Computes the reward of each recorded step with the history that the step had.

    It does so at once or, after `defer`, for all steps in one batch at `settle`: a reward computes
    a whole rollout in a few large products, and one that looks back encodes each step once, not
    once for every window.

    Attributes:
        reward: the one in use; None before the first.
    """

    def __init__(self, recording: Recording) -> None:
        self.reward: WindowReward | None = None
        self._recording = recording
        self._environments = len(recording.idle)
        self._single = np.ones((self._environments, 1), bool)  # the mask of windows of one step
        # `[t, V]` of all steps from `defer` to the pinned one, which is None without deferring
        self._deferred: list[FloatArray] = []
        self._appended = 0  # steps among these

    def set_reward(self, reward: WindowReward) -> None:
        """Use `reward` from now on; it looks back on the steps that are kept."""
        self._catch_up()
        self.reward = reward
        self._recording.lookback = reward.context if reward.context > 1 else 0

    def compute(self, actions: Array) -> FloatArray:
        """`[V]` finite rewards of taking `actions`, as recorded; zeros where they are deferred.

        Only a `RewardFunction` can be deferred; others are computed at once.
        """
        reward = self.reward
        deferring = self._recording.pinned is not None
        if reward is None or (deferring and isinstance(reward, RewardFunction)):
            return np.zeros(self._environments, np.float32)
        self.skip()
        if reward.context == 1:
            windows = map_observations(lambda o: o[:, None], self._recording.present)
            rewards = reward(windows, actions[:, None], self._single)  # [V, 1, ...]
        else:
            rewards = reward(*self._recording.windows(reward.context))
        computed = np.array(rewards, np.float32)
        fits = computed.shape == (self._environments,) and np.isfinite(computed).all()
        if not fits:
            raise DataError(
                f"learned reward: expected {self._environments} finite numbers, one per "
                f"environment, got {rewards}."
            )
        return computed

    def skip(self) -> None:
        """Leave the step that begins out of what is deferred."""
        if self._recording.pinned is not None:
            self._catch_up()
            self._append(np.zeros((1, self._environments), np.float32))

    def defer(self) -> None:
        """Compute nothing from now on, until `settle`."""
        self.settle()
        self._recording.pinned = self._recording.time

    def settle(self) -> FloatArray:
        """`[T, V]` rewards of the steps since `defer`, zeros where they were computed at once."""
        rewards = self.deferred()
        self._recording.pinned = None
        self._deferred = []
        self._appended = 0
        return rewards

    def deferred(self) -> FloatArray:
        """The rewards that `settle` would give now; deferring goes on."""
        self._catch_up()
        return np.concatenate([np.zeros((0, self._environments), np.float32), *self._deferred])

    @property
    def steps_deferred(self) -> int:
        """Vector steps since `defer`; 0 where steps get their rewards at once."""
        time = self._recording.time
        pinned = self._recording.pinned
        return 0 if pinned is None else time - pinned + self._appended

    def _append(self, rewards: FloatArray) -> None:
        """Add the deferred rewards `[t, V]` of the next steps."""
        self._deferred.append(rewards)
        self._appended += len(rewards)
        self._recording.pinned = (self._recording.pinned or 0) + len(rewards)

    def _catch_up(self) -> None:
        """Compute the deferred rewards of all steps so far, as relabelling computes them."""
        recording = self._recording
        reward = self.reward
        start = self._recording.pinned
        if start is None or start >= recording.time or not isinstance(reward, RewardFunction):
            return
        steps, actions, real, starts, before = recording.since(start)
        cut = np.flatnonzero(real.any(axis=1))  # an episode that began before what is kept
        starts[cut, real[cut].argmax(axis=1)] = True
        rewards = np.zeros(real.shape, np.float32)
        if len(cut):  # as pieces of episodes, end to end, that begin where `starts` is true
            observations = take(steps, real)
            count = int(np.count_nonzero(real))
            lengths = np.diff(np.append(np.flatnonzero(starts[real]), count))
            pieces = Episodes(
                observations=observations,
                actions=actions[real],
                rewards=rewards[real],
                terminated=np.zeros(count, bool),
                final_observations=take(observations, np.cumsum(lengths) - 1),
                lengths=lengths,
            )
            rewards[real] = relabel(pieces, reward).rewards
        self._append(rewards[:, before:].T)
