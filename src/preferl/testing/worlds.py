"""Small worlds whose truth is known: data of any space, a linear reward and simple models."""

from collections.abc import Sequence
from typing import Any, final

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segment_sampling import sample_segments
from preferl.errors import ConfigError, SpaceError
from preferl.feedback.step_rewards import StepReward
from preferl.functional.preference import pool
from preferl.models.base import RewardModel, RewardOutput
from preferl.models.encoders import VectorEncoder
from preferl.shapes import Array, FloatArray, Observations

POINT_SPACE = spaces.Box(-2, 2, (2,))
PUSH_SPACE = spaces.Box(-1, 1, (2,))
POSITION_WEIGHTS = np.array([1.0, -0.5])
PUSH_WEIGHTS = np.array([0.5, 0.25])


def linear_reward(observations: Observations, actions: Array) -> FloatArray:
    """Return the true reward `[...]` of `PointWorld` for positions and pushes `[..., 2]`.

    >>> linear_reward(np.array([[1.0, 2.0]]), np.array([[1.0, -2.0]])).tolist()
    [0.0]
    """
    return np.asarray(observations @ POSITION_WEIGHTS + actions @ PUSH_WEIGHTS)


@final
class PointWorld(gymnasium.Env[FloatArray, FloatArray]):
    """A point that is pushed in the plane, with the known reward `linear_reward`.

    Episodes are cut off after `length` steps.

    >>> env = PointWorld(length=2)
    >>> observation, _ = env.reset(seed=0)
    >>> _, reward, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
    >>> bool(np.isclose(reward, linear_reward(observation, np.zeros(2)))), terminated, truncated
    (True, False, False)
    """

    observation_space = POINT_SPACE
    action_space = PUSH_SPACE

    def __init__(self, length: int = 20) -> None:
        self.length = length
        self._step = 0
        self._position = np.zeros(2, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Put the point at random within one unit of the middle, on each axis."""
        super().reset(seed=seed, options=options)
        self._position = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self._step = 0
        return self._position.copy(), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Move the point. The reward is that of the push and of the position before it."""
        reward = float(linear_reward(self._position, action))
        self._position = np.clip(self._position + 0.2 * action, -2, 2).astype(np.float32)
        self._step += 1
        return self._position.copy(), reward, False, self._step >= self.length, {}


def sample_steps(space: spaces.Space[Any], count: int, rng: np.random.Generator) -> Any:
    """Draw `[count, *space]` values of a space, or a dictionary of them; normal ones if unbounded.

    Raises:
        SpaceError: the space is of another kind.

    >>> sample_steps(spaces.Discrete(3, start=5), 4, np.random.default_rng(0)).tolist()
    [7, 6, 6, 5]
    """
    shape = (count, *(space.shape or ()))
    match space:
        case spaces.Dict():
            return {key: sample_steps(part, count, rng) for key, part in space.items()}
        case spaces.Discrete():
            return rng.integers(space.start, space.start + space.n, shape).astype(space.dtype)
        case spaces.MultiDiscrete():
            return rng.integers(space.start, space.start + space.nvec, shape).astype(space.dtype)
        case spaces.MultiBinary():
            return rng.integers(0, 2, shape).astype(np.int8)
        case spaces.Box():
            low = np.where(space.bounded_below, space.low, -3.0)
            high = np.where(space.bounded_above, space.high, 3.0)
            bounded = space.bounded_below | space.bounded_above
            drawn = np.where(bounded, rng.uniform(low, high, shape), rng.normal(size=shape))
            return drawn.astype(space.dtype)
    raise SpaceError(
        "space: expected Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these, got "
        f"{space}."
    )


def make_episodes(
    rng: np.random.Generator,
    lengths: Sequence[int],
    observation_space: spaces.Space[Any] = POINT_SPACE,
    action_space: spaces.Space[Any] = PUSH_SPACE,
    *,
    reward: StepReward | None = None,
) -> Episodes:
    """Make episodes of independent random steps; every second one terminates.

    `reward` computes the rewards of each step. Without it, rewards are `linear_reward` if both
    spaces are those of `PointWorld`, which is the default, and else normal numbers.

    >>> make_episodes(np.random.default_rng(0), [3, 2]).terminated.tolist()
    [False, False, True, False, False]
    """
    steps = int(sum(lengths))
    observations = sample_steps(observation_space, steps, rng)
    actions = sample_steps(action_space, steps, rng)
    if reward is None and observation_space is POINT_SPACE and action_space is PUSH_SPACE:
        reward = linear_reward
    terminated = np.zeros(steps, bool)
    terminated[np.cumsum(lengths)[::2] - 1] = True
    return Episodes(
        observations=observations,
        actions=actions,
        rewards=rng.normal(size=steps) if reward is None else reward(observations, actions),
        terminated=terminated,
        final_observations=sample_steps(observation_space, len(lengths), rng),
        lengths=np.asarray(lengths),
    )


def make_comparisons(
    rng: np.random.Generator, pairs: int = 20, length: int = 5, episodes: Episodes | None = None
) -> Comparisons:
    """Make pairs of random segments, in which the higher true return is preferred.

    Episodes that are shorter than a segment become padded segments. By default there are three
    episodes in the spaces of `PointWorld`, and one of them is short.

    >>> make_comparisons(np.random.default_rng(0), pairs=3).preference.shape
    (3,)
    """
    if episodes is None:
        episodes = make_episodes(rng, [3 * length, max(1, length - 2), 2 * length])
    segments = sample_segments(episodes, 2 * pairs, length, rng, short="pad")
    rows = np.arange(2 * pairs).reshape(-1, 2)
    returns = segments.returns(rows)
    return Comparisons.of(segments, rows, (np.sign(returns[:, 0] - returns[:, 1]) + 1) / 2)


@final
class CountingModel(RewardModel):
    """Does what another model does and counts its training calls, to find hidden loops.

    Attributes:
        model: the other model; this one shares its parameters and encoder.
        rows: windows `B` in each call of `judge` in training mode.
    """

    def __init__(self, model: RewardModel) -> None:
        super().__init__(model.encoder, context=model.context, members=model.members)
        self.model = model
        self.rows: list[int] = []

    def judge(self, features: Any, mask: Tensor) -> RewardOutput:
        """Count the call, and return the other model's rewards `[E, B, L]` and scores `[E, B]`."""
        if self.training:
            self.rows.append(len(mask))
        return self.model.judge(features, mask)

    def pool(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """Return the other model's scores `[E, B]`."""
        return self.model.pool(rewards, mask)


@final
class FadingModel(RewardModel):
    """A reward model with context that can be computed by hand; earlier steps count less.

    The value of a step is `tanh(w · x)` of its features `x`. The reward of a step is its own value,
    plus half of the value of the step before, a quarter of that before it, and so on within the
    context. The members' weights are spread evenly.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any] = POINT_SPACE,
        action_space: spaces.Space[Any] = PUSH_SPACE,
        *,
        context: int = 4,
        members: int = 2,
    ) -> None:
        encoder = VectorEncoder(observation_space, action_space)
        super().__init__(encoder, context=context, members=members)
        self.weight = nn.Parameter(torch.linspace(-1, 1, members * encoder.size).view(members, -1))

    def judge(self, features: Tensor, mask: Tensor) -> RewardOutput:
        """Return rewards `[E, B, L]` and scores `[E, B]` of features `[B, L, F]`.

        Raises:
            ConfigError: there are more steps than the context.
        """
        if not mask.shape[1] <= self.context:
            raise ConfigError(f"steps: expected {self.context}, got {mask.shape[1]}.")
        value = torch.tanh(torch.einsum("blf,ef->ebl", features, self.weight)) * mask
        place = torch.arange(mask.shape[1], device=mask.device)
        age = place[:, None] - place  # [L, L]
        rewards = value @ torch.where(age >= 0, 0.5**age, 0.0).T
        return RewardOutput(rewards, self.pool(rewards, mask))

    def pool(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """Return scores `[E, B]`, the mean rewards of the real steps."""
        return pool(rewards, mask, "mean")
