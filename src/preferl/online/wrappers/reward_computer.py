"""Rewards of steps while agents act, for `V` environments at once, whoever steps them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from gymnasium import spaces

from preferl.data.episodes import Episodes
from preferl.errors import ConfigError, DataError, SpaceError, require_in
from preferl.feedback.step_rewards import AnyReward, as_reward
from preferl.online.wrappers.recording import Recording, zeros_of
from preferl.shapes import (
    Array,
    BoolArray,
    FloatArray,
    Observations,
    leaves,
    map_observations,
    take,
)
from preferl.training.publish import PublishedReward
from preferl.training.reward_function import RewardFunction, relabel

WIDEST = 64
"""Numbers per state that are compared; longer states, such as pictures, are projected to so many,
which keeps distances about as they were (Johnson and Lindenstrauss 1984)."""


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
    """A reward for these spaces: one made for them, a control, or a plain function of steps."""
    if not isinstance(reward, WindowReward):
        return RewardInSpaces(as_reward(reward), observations, actions)
    fix = "Build the reward for this environment's spaces, or wrap the environment."
    for what, expected, got in (
        ("observations of the environment", reward.observation_space, observations),
        ("actions of the environment", reward.action_space, actions),
    ):
        made_for = f"{expected}, which the reward was made for"
        SpaceError.check(expected == got, what, made_for, got, fix)
    return reward


def space_after(
    space: spaces.Space[Any], transform: Transform | None, given: spaces.Space[Any] | None
) -> spaces.Space[Any]:
    """The space after a transform, as `given` by whoever wrote it and checked on examples."""
    if transform is None and given is None:
        return space
    if transform is None or given is None:
        what, got = (
            "transform and transformed_space",
            "a space" if transform is None else "a function",
        )
        raise ConfigError.mismatch(what, expected="both or neither", got=f"{got} alone")
    for axes in ((1,), (1, 2)):
        expected, cause = _shapes(zeros_of(given, axes)), None
        try:
            got = _shapes(transform(zeros_of(space, axes)))
        except Exception as error:  # a function of somebody else fails in whichever way it likes
            got, cause = f"{type(error).__name__}: {error}", error
        if got != expected:
            raise SpaceError.mismatch(
                "what the transform gives",
                expected=f"shape {expected}: that of transformed_space behind any number of axes, "
                f"here {axes}",
                got=got,
                fix="Let it work on the last axes, as in `lambda o: o[..., :3]`, "
                "`o.reshape(*o.shape[:-2], -1)` or `np.swapaxes(o, -1, -2)`.",
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
        expected = f"{self._environments} finite numbers, one per environment"
        DataError.check(fits, "learned reward", expected, rewards)
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
        self._recording.pinned, self._deferred = None, []
        return rewards

    def deferred(self) -> FloatArray:
        """The rewards that `settle` would give now; deferring goes on."""
        self._catch_up()
        return np.concatenate([np.zeros((0, self._environments), np.float32), *self._deferred])

    @property
    def steps_deferred(self) -> int:
        """Vector steps since `defer`; 0 where steps get their rewards at once."""
        time, pinned = self._recording.time, self._recording.pinned
        return 0 if pinned is None else time - pinned + sum(map(len, self._deferred))

    def _append(self, rewards: FloatArray) -> None:
        """Add the deferred rewards `[t, V]` of the next steps."""
        self._deferred.append(rewards)
        self._recording.pinned = (self._recording.pinned or 0) + len(rewards)

    def _catch_up(self) -> None:
        """Compute the deferred rewards of all steps so far, as relabelling computes them."""
        recording, reward, start = self._recording, self.reward, self._recording.pinned
        if start is None or start >= recording.time or not isinstance(reward, RewardFunction):
            return
        steps, actions, real, starts, before = recording.since(start)
        cut = np.flatnonzero(real.any(axis=1))  # an episode that began before what is kept
        starts[cut, real[cut].argmax(axis=1)] = True
        rewards = np.zeros(real.shape, np.float32)
        if len(cut):  # as pieces of episodes, end to end, that begin where `starts` is true
            observations, count = take(steps, real), int(np.count_nonzero(real))
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


@final
class StateEntropyBonus:
    """`log(1 + d / mean d)` for the distance `d` to the k-th nearest recent state.

    A reward for exploring before the first learned one: Lee et al., "PEBBLE: Feedback-Efficient
    Interactive RL" (2021), section 4.1, after Liu and Abbeel, "Behavior From the Void" (2021).
    Unlike PEBBLE, which takes log d and divides by a running deviation, it divides by the mean
    distance so far, to be independent of the units of the states, and adds 1, to be finite where
    a state was seen before.

    Args:
        nearest: `k`. 5 as in PEBBLE: one alone follows noise.
        remembered: states kept, the latest; PEBBLE keeps all. 2,000 take 0.1 ms per step.
        seed: of the projection of long states.

    >>> bonus = StateEntropyBonus(nearest=1)
    >>> bonus(np.array([[0.0], [1.0]])).tolist()
    [0.0, 0.0]
    >>> near, far = bonus(np.array([[0.1], [9.0]]))
    >>> bool(near < far)
    True
    """

    def __init__(self, nearest: int = 5, remembered: int = 2_000, *, seed: int = 0) -> None:
        require_in("nearest", nearest, 1, float("inf"))
        require_in("remembered", remembered, nearest, float("inf"))
        self._nearest, self._remembered, self._seed = nearest, remembered, seed
        self._ring: FloatArray | None = None  # [remembered, F], the next one overwrites the oldest
        self._projection: FloatArray | None = None
        self._next = 0
        self._total, self._count = 0.0, 0  # of all distances so far

    def __call__(self, observations: Any) -> FloatArray:
        """`[V, *obs]` to bonuses `[V]` as float32; the states are remembered afterwards."""
        states = self._flat(observations)
        if self._ring is None:
            self._ring = np.zeros((self._remembered, states.shape[1]))
        known = self._ring[: min(self._next, self._remembered)]
        bonus = np.zeros(len(states), np.float32)
        if len(known) >= self._nearest:
            squares = (states**2).sum(1)[:, None] + (known**2).sum(1) - 2 * states @ known.T
            kth = np.partition(squares, self._nearest - 1, axis=1)[:, self._nearest - 1]
            distance = np.sqrt(np.maximum(kth, 0.0))  # [V]
            self._total += float(distance.sum())
            self._count += len(distance)
            bonus[:] = np.log1p(distance / max(self._total / self._count, 1e-12))
        self._ring[(self._next + np.arange(len(states))) % self._remembered] = states
        self._next += len(states)
        return bonus

    def snapshot(self) -> dict[str, Any]:
        """The remembered states and the mean distance, for `restore`."""
        ring = None if self._ring is None else self._ring[: min(self._next, self._remembered)]
        return {"ring": ring, "next": self._next, "total": self._total, "paid": self._count}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Remember what another bonus of the same settings did."""
        self._next, self._count = int(snapshot["next"]), int(snapshot["paid"])
        self._total, ring = float(snapshot["total"]), snapshot["ring"]
        self._ring = None
        if ring is not None:
            self._ring = np.zeros((self._remembered, ring.shape[1]))
            self._ring[: len(ring)] = ring

    def _flat(self, observations: Any) -> FloatArray:
        parts = [np.asarray(leaf, np.float64) for leaf in leaves(observations)]
        flat = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)  # [V, F]
        if flat.shape[1] <= WIDEST:
            return flat
        if self._projection is None:
            rng = np.random.default_rng(self._seed)
            self._projection = rng.normal(size=(flat.shape[1], WIDEST)) / np.sqrt(WIDEST)
        return np.asarray(flat @ self._projection)
