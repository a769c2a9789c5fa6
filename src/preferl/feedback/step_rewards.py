"""Controls and functions of single steps, with the interface of a learned reward.

A learned reward is compared with controls. It has learned something if it beats `zero` and
`random`, comes near `oracle`, and if its opposite, `negated`, makes the policy worse.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from inspect import signature
from typing import Any, ClassVar, Protocol, final, runtime_checkable

import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.segments import Segments
from preferl.data.windows import window_indices
from preferl.errors import ConfigError, ModelError
from preferl.feedback.likelihood import Likelihood, likelihood_of
from preferl.shapes import Array, BoolArray, FloatArray, Observations, leaves, take

StepReward = Callable[[Observations, Array], FloatArray]
"""Maps observations `[B, *obs]` and actions `[B, *act]` to rewards `[B]`."""

CHUNK = 4096
"""Rows per call. With more, a block of pixel steps might not fit into memory as floats."""


@runtime_checkable
class Reward(Protocol):
    """A learned reward, such as `RewardFunction`, or a control that is used like one."""

    @property
    def context(self) -> int:
        """`H`, the number of steps that the reward may see; 1 means Markovian."""
        ...

    @property
    def members(self) -> int:
        """`E`, the number of members whose scores `scores` returns."""
        ...

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Map windows `[B, H, ...]`, left-padded where `mask` is false, to rewards `[B]`."""
        ...

    def scores(self, segments: Segments) -> FloatArray:
        """Compute scores `[E, N]`; their differences are each member's preference logits."""
        ...


AnyReward = Reward | StepReward
"""Any reward that functions accept: a learned one, a control, or a plain function of steps."""


@final
@dataclass(frozen=True)
class PerStep:
    """A function of single steps with the interface of a learned reward; scores are sums.

    Without a function, it is the environment's own reward as it was recorded. Segments then score
    their true returns, and new steps raise `ConfigError`, as their reward is not known.

    Raises:
        ModelError: the function cannot be called with observations and actions. It may be a
            function of next observations, or a reward model.

    >>> reward = PerStep(lambda observations, actions: observations[:, 0])
    >>> reward(np.array([[[1.0], [5.0]]]), np.zeros((1, 2, 1)), np.ones((1, 2), bool)).tolist()
    [5.0]
    """

    function: StepReward | None = None

    context: ClassVar[int] = 1
    members: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.function is not None:
            require_step_function(self.function)

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Map windows `[B, H, ...]` to the rewards `[B]` of their last steps."""
        del mask
        return self._of_steps(take(observations, np.s_[:, -1]), actions[:, -1])

    def scores(self, segments: Segments) -> FloatArray:
        """Sum rewards over real steps, `[1, N]`; the function sees each distinct step once."""
        if self.function is None:
            return segments.returns()[None]
        chunks = [slice(start, start + CHUNK) for start in range(0, segments.steps, CHUNK)]
        parts = [
            self._of_steps(take(segments.observations, c), segments.actions[c]) for c in chunks
        ]
        rewards = np.concatenate([np.zeros(0), *parts])
        return np.asarray((rewards[segments.rows()] * segments.mask()).sum(-1)[None])

    def _of_steps(self, observations: Observations, actions: Array) -> FloatArray:
        if self.function is None:
            raise ConfigError(
                "The recorded reward is not known for new steps. Pass the true reward as a "
                "function: oracle(lambda observations, actions: ...)."
            )
        return one_per_step(self.function(observations, actions), len(actions))


@final
@dataclass(frozen=True)
class Negated:
    """The opposite of another reward, with its context, members and likelihood."""

    reward: Reward

    @property
    def context(self) -> int:
        """`H` of the other reward."""
        return self.reward.context

    @property
    def members(self) -> int:
        """`E` of the other reward."""
        return self.reward.members

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of the other reward; it is the same, since it treats both clips alike."""
        return likelihood_of(self.reward)

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Return minus the other reward's rewards, `[B]`."""
        return -self.reward(observations, actions, mask)

    def scores(self, segments: Segments) -> FloatArray:
        """Return minus the other reward's scores, `[E, N]`."""
        return -self.reward.scores(segments)


def as_reward(reward: AnyReward) -> Reward:
    """Return a reward unchanged, or wrap a plain function of observations and actions.

    Raises:
        ModelError: the function cannot be called with observations and actions.
    """
    if isinstance(reward, Reward):
        return reward
    require_step_function(reward)  # refuses None, too
    return PerStep(reward)


def require_step_function(function: Any) -> None:
    """Raise `ModelError` unless `function` can be called with observations and actions only."""
    expected = "a RewardFunction, a control, or a function of observations and actions"
    fix = "Pass `lambda observations, actions: ...`, which returns one number per step."
    if not callable(function):
        kind = type(function).__name__
        raise ModelError(f"reward: expected {expected}, got {kind}. {fix}")
    # the call of a torch network takes any arguments
    called = getattr(function, "forward", function)
    try:
        parameters = signature(called)
    except ValueError:  # a function that is not written in Python may not tell its arguments
        return
    try:
        parameters.bind(None, None)
    except TypeError as error:
        kind = "class" if isinstance(function, type) else type(function).__name__
        raise ModelError(
            f"reward: expected {expected}, got a {kind} with the arguments {parameters}. {fix} A "
            "reward has neither the next observation nor whether the episode is over. For a reward "
            "model, pass `RewardFunction(model)`."
        ) from error


def one_per_step(given: Any, steps: int) -> FloatArray:
    """Return a function's rewards; raise `ModelError` unless they are `[steps]` numbers."""
    rewards = np.asarray(given)
    if rewards.shape != (steps,) or rewards.dtype.kind not in "biuf":
        raise ModelError(
            f"result of the reward function: expected one number for each of {steps} steps, got "
            f"{rewards.dtype} of shape {rewards.shape}. Let the function work on the last axes, as "
            "in `(o * a).sum(-1)`."
        )
    return rewards


def step_rewards(reward: AnyReward, episodes: Episodes) -> FloatArray:
    """Compute the reward of each step, `[T]`, given its history in its episode."""
    reward = as_reward(reward)
    starts = episodes.start_of_step
    rewards = np.empty(episodes.steps)
    size = max(1, CHUNK // reward.context)
    for begin in range(0, episodes.steps, size):
        steps = np.arange(begin, min(begin + size, episodes.steps))
        rows, mask = window_indices(starts, reward.context, steps)
        rewards[steps] = reward(take(episodes.observations, rows), episodes.actions[rows], mask)
    return rewards


def zero() -> PerStep:
    """Return a reward that is always 0. It shows what a policy does without teaching."""
    return PerStep(_nothing)


def random(seed: int = 0) -> PerStep:
    """Return a fixed random function, in which the same step always has the same reward.

    It is a sum of 32 sine waves (Rahimi and Recht 2007). It is smooth and bounded by about one, so
    a policy can follow it as well as a learned reward. The seed chooses one of all such functions.
    """
    return PerStep(partial(_waves, seed))


def negated(reward: AnyReward) -> Negated:
    """Return the opposite of `reward`. A policy that learns from it should be worse than random."""
    return Negated(as_reward(reward))


oracle = PerStep
"""The true reward, as a function of a step: preferences cannot teach more than this."""


def control_rewards(reward: AnyReward, seed: int) -> dict[str, Reward]:
    """Return the controls that a learned reward must beat, by name; `random` uses the seed."""
    return {"random": random(seed), "negated": negated(reward), "zero": zero()}


def _nothing(observations: Observations, actions: Array) -> FloatArray:
    del observations
    return np.zeros(len(actions))


def _waves(seed: int, observations: Observations, actions: Array) -> FloatArray:
    columns = [  # [B, features] each; pixels in [0, 1]
        np.asarray(array, np.float64).reshape(len(array), -1) / (255 if array.dtype == "u1" else 1)
        for array in (*leaves(observations), actions)
    ]
    inputs = np.concatenate(columns, axis=1)
    frequencies, phases, weights = _drawn(seed, inputs.shape[1])
    return np.asarray(np.sin(inputs @ frequencies + phases) @ weights)


@lru_cache(maxsize=8)
def _drawn(seed: int, features: int, waves: int = 32) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng([seed, features])
    frequencies = rng.normal(size=(features, waves)) / np.sqrt(features)
    return frequencies, rng.uniform(0, 2 * np.pi, waves), rng.normal(size=waves) / np.sqrt(waves)
