"""Rewards that are plain functions of a step, with the interface of a learned one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.segments import Segments
from preferl.data.windows import windows_at
from preferl.errors import ModelError
from preferl.shapes import Array, BoolArray, FloatArray, Observations, take

StepReward = Callable[[Observations, Array], FloatArray]
"""`[B, *obs]` observations and `[B, *act]` actions to `[B]` rewards."""

CHUNK = 4096
"""Rows per call, so that a block of pixel steps never has to fit in memory as floats."""


@runtime_checkable
class Reward(Protocol):
    """A learned reward or a control in its place; `RewardFunction` is one."""

    @property
    def context(self) -> int:
        """`H`, how many steps a reward may see; 1 means Markovian."""
        ...

    @property
    def members(self) -> int:
        """`E`, how many opinions `scores` holds."""
        ...

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """`[B, H, ...]` windows, left-padded where `mask` is false, to `[B]` rewards."""
        ...

    def scores(self, segments: Segments) -> FloatArray:
        """`[E, N]` scores; differences are preference logits, per member."""
        ...


AnyReward = Reward | StepReward
"""What is taken wherever a reward is: a learned one, a control, or a plain function of a step."""


@final
@dataclass(frozen=True)
class PerStep:
    """A function of single steps with the interface of a learned reward; scores are sums.

    Attributes:
        function: what a step is worth.

    >>> reward = PerStep(lambda observations, actions: observations[:, 0])
    >>> reward(np.array([[[1.0], [5.0]]]), np.zeros((1, 2, 1)), np.ones((1, 2), bool)).tolist()
    [5.0]
    """

    function: StepReward

    @property
    def context(self) -> int:
        """1: only the last step of a window counts."""
        return 1

    @property
    def members(self) -> int:
        """1: there is no second opinion."""
        return 1

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """`[B, H, ...]` windows to `[B]` rewards of their last steps."""
        del mask
        return self._of_steps(take(observations, np.s_[:, -1]), actions[:, -1])

    def scores(self, segments: Segments) -> FloatArray:
        """`[1, N]` sums over real steps; each distinct step is asked about once."""
        starts = range(0, segments.steps, CHUNK)
        chunks = [slice(start, start + CHUNK) for start in starts]
        parts = [
            self._of_steps(take(segments.observations, c), segments.actions[c]) for c in chunks
        ]
        return _sum_steps(np.concatenate([np.zeros(0), *parts]), segments)

    def _of_steps(self, observations: Observations, actions: Array) -> FloatArray:
        rewards = np.asarray(self.function(observations, actions))
        if rewards.shape != (len(actions),) or rewards.dtype.kind not in "biuf":
            raise ModelError.mismatch(
                "what the reward function gives",
                expected=f"one number for each of {len(actions)} steps",
                got=f"{rewards.dtype} of shape {rewards.shape}",
                fix="Let it work on the last axes, as in `(o * a).sum(-1)`.",
            )
        return rewards


def as_reward(reward: AnyReward) -> Reward:
    """A reward as it is, or a plain function of observations and actions as one.

    Args:
        reward: learned, a control, or a function of `[B, *obs]` and `[B, *act]` that gives `[B]`.

    Raises:
        ModelError: something that cannot be called.

    >>> as_reward(lambda observations, actions: observations[:, 0]).context
    1
    """
    if isinstance(reward, Reward):
        return reward
    if not callable(reward):
        raise ModelError.mismatch(
            "reward",
            expected="a RewardFunction, a control, or a function of observations and actions",
            got=type(reward).__name__,
            fix="Pass lambda observations, actions: ..., which gives one number per step.",
        )
    return PerStep(reward)


def step_rewards(reward: AnyReward, episodes: Episodes) -> FloatArray:
    """`[T]` rewards of every step with the history its episode gives it."""
    reward = as_reward(reward)
    starts = episodes.start_of_step
    paid = np.empty(episodes.steps)
    size = max(1, CHUNK // reward.context)
    for begin in range(0, episodes.steps, size):
        steps = np.arange(begin, min(begin + size, episodes.steps))
        rows, mask = windows_at(steps, starts[steps], reward.context)
        paid[steps] = reward(take(episodes.observations, rows), episodes.actions[rows], mask)
    return paid


def _sum_steps(rewards: FloatArray, segments: Segments) -> FloatArray:
    return np.asarray((rewards[segments.rows()] * segments.mask()).sum(-1)[None])
