"""Rewards of steps while agents act, for `V` environments at once, whoever steps them."""

from collections.abc import Mapping
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from gymnasium import spaces

from preferl.data.episodes import Episodes
from preferl.errors import DataError, require_in
from preferl.online.recording import Recording
from preferl.shapes import (
    Array,
    BoolArray,
    FloatArray,
    Observations,
    leaves,
    map_observations,
    take,
)
from preferl.training.reward_function import RewardFunction, relabel

WIDEST = 64
"""Numbers per state that are compared; longer states, such as pictures, are projected to so many,
which keeps distances about as they were (Johnson and Lindenstrauss 1984)."""


@runtime_checkable
class Reward(Protocol):
    """A reward of the last step of each window; `RewardFunction` is one."""

    @property
    def context(self) -> int:
        """`H`, the steps a window holds; 1 looks at single steps."""
        ...

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Of the observations it understands."""
        ...

    @property
    def action_space(self) -> spaces.Space[Any]:
        """Of the actions it understands."""
        ...

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Windows `[B, H, ...]`, false in `mask [B, H]` where padded, to rewards `[B]`."""
        ...


@final
class RewardComputer:
    """Computes the reward of each step with the history that the step had.

    It does so at once, or after `defer` for all steps together at `settle`: a reward computes a
    whole rollout in a few large products, where it would take as many small ones as there are
    steps, and one that looks back encodes each step once, not once for every window.

    Attributes:
        reward: the one in use; None before the first.

    Args:
        recording: of the steps; looked back on.
    """

    def __init__(self, recording: Recording) -> None:
        self.reward: Reward | None = None
        self._recording = recording
        self._environments = len(recording.waiting)
        self._single = np.ones((self._environments, 1), bool)  # the mask of windows of one step
        self._later: DeferredRewards | None = None

    def set_reward(self, reward: Reward) -> None:
        """Use `reward` from now on; it looks back on the steps that are kept."""
        self._catch_up()
        self.reward = reward
        self._recording.lookback = reward.context if reward.context > 1 else 0

    def compute(self, actions: Array) -> FloatArray:
        """`[V]` rewards of taking `actions`, as were noted; zeros before the first reward.

        They are zeros where they are deferred, too. Only rewards of whole episodes are.

        Raises:
            DataError: the reward gave something else than one finite number per environment.
        """
        if self.reward is None:
            return np.zeros(self._environments, np.float32)
        if self._later is not None:
            if isinstance(self.reward, RewardFunction):
                return np.zeros(self._environments, np.float32)
            self._later.skip()
        if self.reward.context == 1:
            present = self._recording.present
            windows = map_observations(lambda o: o[:, None], present)  # [V, 1, *obs]
            rewards = self.reward(windows, actions[:, None], self._single)
        else:
            rewards = self.reward(*self._recording.windows(self.reward.context))
        computed = np.array(rewards, np.float32)
        if computed.shape != (self._environments,) or not np.isfinite(computed).all():
            raise DataError.mismatch(
                "learned reward",
                expected=f"{self._environments} finite numbers, one per environment",
                got=rewards,
            )
        return computed

    def skip(self) -> None:
        """The step whose actions were noted gets its reward from somewhere else."""
        if self._later is not None:
            self._catch_up()
            self._later.skip()

    def defer(self) -> None:
        """Compute nothing from now on, until `settle`."""
        self.settle()
        self._later = DeferredRewards(self._recording)

    def settle(self) -> FloatArray:
        """`[T, V]` rewards of the steps since `defer`, zeros where they were computed at once.

        Raises:
            DataError: the reward gave NaN or infinite numbers.
        """
        rewards = self.deferred()
        self._later = self._recording.pinned = None
        return rewards

    def deferred(self) -> FloatArray:
        """As `settle`, and go on as before."""
        if self._later is None:
            return np.zeros((0, self._environments), np.float32)
        self._catch_up()
        return self._later.rewards()

    @property
    def steps_deferred(self) -> int:
        """Vector steps since `defer`."""
        return 0 if self._later is None else self._recording.time - self._later.began

    def _catch_up(self) -> None:
        if self._later is not None and isinstance(self.reward, RewardFunction):
            self._later.compute(self.reward)


@final
class DeferredRewards:
    """Recorded steps whose rewards are computed later, as relabelling computes them.

    Args:
        recording: of the steps, which it keeps from now on.

    Attributes:
        began: vector step since which rewards are deferred.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.began = self._next = recording.pinned = recording.time
        self._rewards: list[FloatArray] = []  # `[t, V]` in order, of all steps before `_next`

    def skip(self) -> None:
        """The step under way needs no reward. All before it have theirs."""
        environments = len(self._recording.waiting)
        self._rewards.append(np.zeros((1, environments), np.float32))
        self._next = self._recording.pinned = self._next + 1

    def compute(self, reward: RewardFunction) -> None:
        """Compute the rewards of all steps that have none."""
        if self._next >= self._recording.time:
            return
        steps, actions, real, starts, before = self._recording.since(self._next)
        cut = np.flatnonzero(real.any(axis=1))  # an episode that began before what is kept
        starts[cut, real[cut].argmax(axis=1)] = True
        rewards = np.zeros(real.shape, np.float32)
        if len(cut):
            rewards[real] = _of_pieces(take(steps, real), actions[real], starts[real], reward)
        self._rewards.append(rewards[:, before:].T)
        self._next = self._recording.pinned = self._recording.time

    def rewards(self) -> FloatArray:
        """`[T, V]` what was computed for each vector step so far."""
        nothing = np.zeros((0, len(self._recording.waiting)), np.float32)
        return np.concatenate([nothing, *self._rewards])


def _of_pieces(
    observations: Observations, actions: Array, starts: BoolArray, reward: RewardFunction
) -> FloatArray:
    """`[T]` for steps of pieces of episodes, end to end, that begin where `starts` is true."""
    count = len(actions)
    lengths = np.diff(np.append(np.flatnonzero(starts), count))
    pieces = Episodes(
        observations=observations,
        actions=actions,
        rewards=np.zeros(count, np.float32),
        terminated=np.zeros(count, bool),
        final_observations=take(observations, np.cumsum(lengths) - 1),
        lengths=lengths,
    )
    return np.asarray(relabel(pieces, reward).rewards)


@final
class StateEntropyBonus:
    """`log(1 + d / mean d)` for the distance `d` to the k-th nearest state of late.

    What steps get until there is a reward: Lee et al., "PEBBLE: Feedback-Efficient Interactive RL"
    (2021), section 4.1, after Liu and Abbeel, "Behavior From the Void" (2021).

    Dividing by the mean distance so far makes it independent of the units of the states, and the
    1 keeps it finite where a state was seen before (both unlike PEBBLE, which takes log d and
    divides by a running deviation).

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
        self._nearest, self._seed = nearest, seed
        self._remembered = remembered
        self._ring: FloatArray | None = None  # [remembered, F], the next one overwrites the oldest
        self._projection: FloatArray | None = None
        self._next = 0
        self._total, self._paid = 0.0, 0

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
            self._paid += len(distance)
            bonus[:] = np.log1p(distance / max(self._total / self._paid, 1e-12))
        self._ring[(self._next + np.arange(len(states))) % self._remembered] = states
        self._next += len(states)
        return bonus

    def snapshot(self) -> dict[str, Any]:
        """The states that are remembered, for `restore`."""
        known = min(self._next, self._remembered)
        return {
            "ring": None if self._ring is None else self._ring[:known],
            "next": self._next,
            "total": self._total,
            "paid": self._paid,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Remember what another bonus of the same settings did."""
        self._next, self._paid = int(snapshot["next"]), int(snapshot["paid"])
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
