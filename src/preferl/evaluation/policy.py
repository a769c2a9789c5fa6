"""How good a policy is by the environment's own reward."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, final

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from preferl.errors import DataError, require_in
from preferl.evaluation.normalised import on_raw_observations
from preferl.evaluation.protocols import PaidPolicy, Policy
from preferl.shapes import BoolArray, FloatArray, IntArray, leaves
from preferl.statistics import bootstrap_interval

EnvSource = str | Callable[..., gymnasium.Env[Any, Any]]
"""The id of a registered environment, or a function that makes one."""


@final
@dataclass(frozen=True, eq=False)
class PolicyReport:
    """The episodes a policy was judged by.

    Attributes:
        returns: `[K]` undiscounted sums of the environment's reward.
        lengths: `[K]` steps.
        success: `[K]` whether the environment's `info["success"]` was true at any step; None
            where it does not say.

    >>> report = PolicyReport(np.array([1.0, 3.0]), np.array([5, 5]))
    >>> report.mean, report.median
    (2.0, 2.0)
    """

    returns: FloatArray
    lengths: IntArray
    success: BoolArray | None = None

    @property
    def episodes(self) -> int:
        """`K`."""
        return len(self.returns)

    @property
    def mean(self) -> float:
        """Of the returns."""
        return float(self.returns.mean())

    @property
    def median(self) -> float:
        """Of the returns."""
        return float(np.median(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation from episode to episode (with `K - 1`); 0 for a single one."""
        return float(self.returns.std(ddof=1)) if self.episodes > 1 else 0.0

    @property
    def success_rate(self) -> float | None:
        """Share of episodes that succeeded, in [0, 1]; None where that is not known."""
        return None if self.success is None else float(self.success.mean())

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of the mean."""
        return bootstrap_interval(self.returns, np.random.default_rng(0))

    def to_json(self) -> dict[str, Any]:
        """Summary and episodes as plain numbers and lists."""
        return {
            "episodes": self.episodes,
            "mean": self.mean,
            "median": self.median,
            "std": self.std,
            "interval": list(self.interval),
            "success_rate": self.success_rate,
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
            "success": None if self.success is None else self.success.tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The report that `to_json` wrote, number for number.

        Raises:
            DataError: no such report.
        """
        try:
            success = data["success"]
            return cls(
                np.array(data["returns"], float),
                np.array(data["lengths"], np.int64),
                None if success is None else np.array(success, bool),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError.mismatch(
                "policy report", expected="returns, lengths and success", got=repr(error)
            ) from error


@final
class RandomPolicy:
    """Acts at random, whatever it sees: the floor every policy should leave.

    Args:
        action_space: drawn from uniformly.
        seed: of the draws. The space that is passed stays as it was.
    """

    def __init__(self, action_space: gymnasium.Space[Any], seed: int) -> None:
        self._space = deepcopy(action_space)
        self._space.seed(seed)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """`[V, *obs]` observations to `[V, *act]` actions; `deterministic` cannot be had."""
        del episode_start, deterministic
        count = len(leaves(observation)[0])
        return np.stack([self._space.sample() for _ in range(count)]), state


def evaluate_policy(
    policy: Policy,
    env: EnvSource,
    *,
    episodes: int = 20,
    seed: int,
    deterministic: bool = True,
    parallel: int = 4,
    max_steps: int | None = None,
) -> PolicyReport:
    """Let a policy play whole episodes and sum up the environment's own reward.

    Episode `k` begins with `seed + k` and counts once, whether short or long. So for a policy that
    draws nothing the result does not depend on `parallel`.

    Args:
        policy: anything with stable-baselines3's `predict`; it gets `[V, *obs]` observations. An
            algorithm with a `VecNormalize` gets them normalised by its statistics, which stay as
            they are.
        env: the id of an environment, or a function without arguments that makes one.
        episodes: `K`.
        seed: of the first episode; choose one that training did not use.
        deterministic: passed to the policy; the default judges what it has learned rather than
            how it explores.
        parallel: `V`, environments stepped side by side so that the policy sees batches.
        max_steps: cut episodes off after this many, for environments that never end.

    Raises:
        ConfigError: less than one episode, environment or step.
        SpaceError: statistics of other observations than the policy's.
    """
    policy = on_raw_observations(policy)
    require_in("episodes", episodes, 1, float("inf"))
    require_in("parallel", parallel, 1, float("inf"))
    require_in("max_steps", max_steps or 1, 1, float("inf"))
    envs = [make_env(env) for _ in range(min(parallel, episodes))]
    try:
        return _play(policy, envs, episodes, seed, deterministic, max_steps)
    finally:
        for one in envs:
            one.close()


def make_env(env: EnvSource, **options: Any) -> gymnasium.Env[Any, Any]:
    """The environment of an id, or what the function makes of `options`."""
    return gymnasium.make(env, **options) if isinstance(env, str) else env(**options)


def _play(
    policy: Policy,
    envs: list[gymnasium.Env[Any, Any]],
    episodes: int,
    seed: int,
    deterministic: bool,
    max_steps: int | None,
) -> PolicyReport:
    """Play from a queue of episodes; an environment that finds it empty rests."""
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    success, told = np.zeros(episodes, bool), False
    playing = np.arange(len(envs))  # [V] the episode of each environment; `episodes` or more: rests
    observations = [one.reset(seed=seed + k)[0] for k, one in enumerate(envs)]
    start, state, following = np.ones(len(envs), bool), None, len(envs)
    space = envs[0].observation_space
    actions_space = batch_space(envs[0].action_space, len(envs))
    batch: Any = create_empty_array(space, len(envs))
    while (playing < episodes).any():
        batch = concatenate(space, observations, batch)
        actions, state = policy.predict(batch, state, start, deterministic)
        start = np.zeros(len(envs), bool)
        each = list(iterate(actions_space, actions))
        paid = np.zeros(len(envs))
        for v in np.flatnonzero(playing < episodes):
            k = playing[v]
            observations[v], reward, terminated, truncated, info = envs[v].step(each[v])
            paid[v] = float(reward)
            returns[k] += paid[v]
            lengths[k] += 1
            if "success" in info:
                told = True
                success[k] |= bool(np.any(info["success"]))
            if terminated or truncated or lengths[k] == max_steps:
                playing[v], start[v] = following, True
                if following < episodes:
                    observations[v], _ = envs[v].reset(seed=seed + following)
                following += 1
        if isinstance(policy, PaidPolicy):
            policy.earned(state, paid)
    return PolicyReport(returns, lengths, success if told else None)
