"""Exploration: a random policy takes over sometimes, so that queries show more states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, final

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from preferl.errors import SpaceError, require_in
from preferl.evaluation.policies import Policy
from preferl.evaluation.rollout import rollout
from preferl.online.wrappers.replay import end_replay
from preferl.shapes import Array, BoolArray, Observations, leaves


def random_actions(space: spaces.Space[Any], count: int, rng: np.random.Generator) -> Array:
    """Draw random values of an action space, `[count, *act]`, at once.

    The distributions are those of `space.sample()`: uniform between two bounds, exponential from a
    single bound, and standard normal without bounds.

    Raises:
        SpaceError: the space is not a Box, Discrete, MultiDiscrete or MultiBinary.

    >>> random_actions(spaces.Discrete(2, start=5), 4, np.random.default_rng(0)).tolist()
    [6, 6, 6, 5]
    """
    if isinstance(space, spaces.Box):
        return _random_box(space, count, rng)
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start + rng.integers(space.n, size=count), space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        drawn = rng.integers(space.nvec, size=(count, *space.nvec.shape))
        return np.asarray(space.start + drawn, space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(2, size=(count, *space.shape), dtype=np.int8)
    raise SpaceError(
        "action space to explore: expected Box, Discrete, MultiDiscrete or MultiBinary, got "
        f"{space}."
    )


def _random_box(space: spaces.Box, count: int, rng: np.random.Generator) -> Array:
    shape = (count, *space.shape)
    whole = not np.issubdtype(space.dtype, np.floating)
    below = space.bounded_below
    above = space.bounded_above
    low = np.where(below, space.low, 0.0).astype(np.float64)
    high = np.where(above, space.high, 0.0).astype(np.float64) + whole
    away = rng.exponential(size=shape)
    drawn = np.select(
        [below & above, below, above],
        [low + rng.random(shape) * (high - low), low + away, high - away],
        rng.normal(size=shape),
    )
    if not whole:
        return np.asarray(drawn, space.dtype)
    # Rounding down leaves the bounds only by rounding errors; an integer must not wrap around.
    return np.asarray(np.clip(np.floor(drawn), space.low, space.high), space.dtype)


@final
@dataclass(eq=False)
class ExplorationPolicy:
    """Acts as `policy` does, or at random; each environment switches between them on its own.

    Args:
        policy: the agent; it acts at every step, for all environments at once.
        action_space: space of the random actions.
        rng: draws who acts and what random policies do.
        random_probability: probability that a draw chooses the random policy; with 0, the agent
            always acts.
        switch_probability: probability that an environment draws again at a step. 0 keeps the
            choice for whole episodes, and 1 draws at every step. At 0.5, a choice lasts two steps
            or more.

    Raises:
        ConfigError: a probability is outside [0, 1].
    """

    policy: Policy
    action_space: spaces.Space[Any]
    rng: np.random.Generator
    random_probability: float = 0.5
    switch_probability: float = 0.5
    _random: BoolArray | None = field(default=None, init=False)  # [V] where the random policy acts

    def __post_init__(self) -> None:
        require_in("random_probability", self.random_probability, 0.0, 1.0)
        require_in("switch_probability", self.switch_probability, 0.0, 1.0)

    def predict(
        self,
        observation: Observations,
        state: tuple[Array, ...] | None = None,
        episode_start: Array | None = None,
        deterministic: bool = False,
    ) -> tuple[Array, tuple[Array, ...] | None]:
        """Return actions `[V, *act]` and the policy's next hidden state, as in SB3.

        `V` is the leading axis of the observations `[V, *obs]`. Where `episode_start [V]` is true,
        an episode begins, and the policy that acts is drawn again.
        """
        actions, state = self.policy.predict(observation, state, episode_start, deterministic)
        environments = len(leaves(observation)[0])
        at_random = self._draw(environments, episode_start)
        random = random_actions(self.action_space, environments, self.rng)
        return np.where(at_random.reshape(-1, *[1] * (random.ndim - 1)), random, actions), state

    def snapshot(self) -> dict[str, Any]:
        """Return the generator and where the random policy acts, for `restore`."""
        return {"rng": self.rng, "random": self._random}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue as another policy of the same settings would have continued."""
        self.rng = snapshot["rng"]
        self._random = snapshot["random"]

    def _draw(self, environments: int, episode_start: Array | None) -> BoolArray:
        """Draw where the random policy acts at this step, `[V]`."""
        draws = self.rng.random((2, environments))
        choice: BoolArray = draws[0] < self.random_probability
        if self._random is None or len(self._random) != environments:
            self._random = choice
            return choice
        again = draws[1] < self.switch_probability
        if episode_start is not None:
            again |= np.asarray(episode_start, bool)
        self._random[again] = choice[again]
        return self._random


def explore(
    agent: BaseAlgorithm,
    env: VecEnv,
    policy: ExplorationPolicy,
    vector_steps: int,
    *,
    on_step: Callable[[], None],
) -> None:
    """Let a policy act instead of an agent. The agent does not learn from these steps.

    The policy starts from the agent's last observations; if there are none, environments are reset.
    Afterwards, the agent begins with a reset.
    """
    observations: Any = env.reset() if agent._last_obs is None else agent._last_obs
    try:
        for _ in islice(rollout(policy, env, observations=observations), vector_steps):
            on_step()
    finally:
        require_reset(agent)


def require_reset(agent: BaseAlgorithm) -> None:
    """Make an algorithm begin with a reset; no window of its replay buffer may cross the reset."""
    agent._last_obs = None
    end_replay(agent)
