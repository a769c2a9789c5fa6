"""Rewards that are not learned, with the interface of one that is: functions of a step, controls.

Controls are what a learned reward is held against. It has learned something where it beats `zero`
and `random`, comes near `oracle`, and where `negated` makes the policy worse.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, final, runtime_checkable

import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.segments import Segments
from preferl.data.windows import windows_at
from preferl.errors import ConfigError, ModelError
from preferl.feedback.likelihood import Likelihood, likelihood_of
from preferl.shapes import Array, BoolArray, FloatArray, Observations, leaves, take

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

    context: ClassVar[int] = 1
    members: ClassVar[int] = 1

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
        rewards = np.concatenate([np.zeros(0), *parts])
        return np.asarray((rewards[segments.rows()] * segments.mask()).sum(-1)[None])

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


@final
@dataclass(frozen=True)
class Recorded:
    """The environment's own reward, as far as it was recorded with the segments.

    It can score segments, and cannot pay for steps that were never taken.
    """

    context: ClassVar[int] = 1
    members: ClassVar[int] = 1

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Always raises `ConfigError`: recorded rewards belong to recorded steps."""
        del observations, actions, mask
        raise ConfigError(
            "The recorded reward cannot pay for new steps. Pass the true reward as a function: "
            "oracle(lambda observations, actions: ...)."
        )

    def scores(self, segments: Segments) -> FloatArray:
        """`[1, N]` the true returns."""
        return segments.returns()[None]


@final
@dataclass(frozen=True)
class Negated:
    """The opposite of another reward.

    Attributes:
        reward: the other one.
    """

    reward: Reward

    @property
    def context(self) -> int:
        """That of the other reward."""
        return self.reward.context

    @property
    def members(self) -> int:
        """Those of the other reward."""
        return self.reward.members

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """`[B]` minus the other's rewards."""
        return -self.reward(observations, actions, mask)

    @property
    def likelihood(self) -> Likelihood:
        """That of the other reward, which treats both sides alike."""
        return likelihood_of(self.reward)

    def scores(self, segments: Segments) -> FloatArray:
        """`[E, N]` minus the other's scores."""
        return -self.reward.scores(segments)


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


def zero() -> PerStep:
    """Nothing is worth anything: what a policy does if it is never taught."""
    return PerStep(_nothing)


def random(seed: int = 0) -> PerStep:
    """A fixed random function of observation and action: the same step has always the same reward.

    A sum of 32 sine waves (Rahimi and Recht 2007), smooth and bounded by about one, so a policy
    can chase it as well as a learned one.

    Args:
        seed: which of all such functions.
    """
    return PerStep(partial(_waves, seed))


def negated(reward: AnyReward) -> Negated:
    """The opposite of `reward`: a policy that it teaches should do worse than a random one."""
    return Negated(as_reward(reward))


def oracle(function: StepReward | None = None) -> PerStep | Recorded:
    """The true reward: the ceiling of what preferences can teach.

    Args:
        function: `[B, *obs]`, `[B, *act]` to `[B]`. Without one, segments are scored by the
            rewards recorded with them, and new steps cannot be paid.
    """
    return Recorded() if function is None else PerStep(function)


def control_rewards(reward: AnyReward, seed: int) -> dict[str, Reward]:
    """What a learned reward must do better than, by name: random, negated and zero.

    Args:
        reward: the learned one.
        seed: of the random one.
    """
    return {"random": random(seed), "negated": negated(reward), "zero": zero()}


CONTROLS: Mapping[str, Callable[..., Reward]] = MappingProxyType(
    {"zero": zero, "random": random, "negated": negated, "oracle": oracle}
)
"""Names to builders: `zero()`, `random(seed)`, `negated(reward)`, `oracle(function)`."""


def _nothing(observations: Observations, actions: Array) -> FloatArray:
    del observations
    return np.zeros(len(actions))


def _waves(seed: int, observations: Observations, actions: Array) -> FloatArray:
    columns = [_flat(array) for array in (*leaves(observations), actions)]
    inputs = np.concatenate(columns, axis=1)  # [B, features]
    frequencies, phases, weights = _drawn(seed, inputs.shape[1])
    return np.asarray(np.sin(inputs @ frequencies + phases) @ weights)


def _flat(array: Array) -> FloatArray:
    scale = 255 if array.dtype == np.uint8 else 1
    return np.asarray(array, np.float64).reshape(len(array), -1) / scale  # [B, features]


@lru_cache(maxsize=8)
def _drawn(seed: int, features: int, waves: int = 32) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng([seed, features])
    frequencies = rng.normal(size=(features, waves)) / np.sqrt(features)
    return frequencies, rng.uniform(0, 2 * np.pi, waves), rng.normal(size=waves) / np.sqrt(waves)
