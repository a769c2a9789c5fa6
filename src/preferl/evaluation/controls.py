"""Rewards that know nothing, everything, or the opposite: what a learned reward is held against.

A learned reward is worth something where it beats `zero` and `random`, comes near `oracle`, and
where `negated` makes the policy worse.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, final

import numpy as np

from preferl.data.segments import Segments
from preferl.errors import ConfigError
from preferl.evaluation.protocols import Reward
from preferl.feedback.likelihood import Likelihood, likelihood_of
from preferl.feedback.step_rewards import AnyReward, PerStep, StepReward, as_reward
from preferl.shapes import Array, BoolArray, FloatArray, Observations, leaves


@final
@dataclass(frozen=True)
class Recorded:
    """The environment's own reward, as far as it was recorded with the segments.

    It can score segments, and cannot pay for steps that were never taken.
    """

    @property
    def context(self) -> int:
        """1: the environment pays each step."""
        return 1

    @property
    def members(self) -> int:
        """1: there is one truth."""
        return 1

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
