"""One rollout: a policy acts in environments, and whoever wants to know takes step after step.

Whatever evaluates, films, shows or records a policy takes its steps from `rollout`, so that hidden
states, beginnings of episodes and rewards reach every kind of policy alike.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, final

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from preferl.data.windows import History
from preferl.errors import require_in
from preferl.evaluation.policies import PaidPolicy, Policy, on_raw_observations
from preferl.feedback.step_rewards import AnyReward, as_reward
from preferl.shapes import Array, BoolArray, FloatArray, IntArray, Observations

EnvSource = str | Callable[..., gymnasium.Env[Any, Any]]
"""The id of a registered environment, or a function that makes one."""


class Environments(Protocol):
    """`V` environments that begin anew where an episode ends; a `VecEnv` of SB3 is such."""

    num_envs: int

    def reset(self) -> Any:
        """Begin an episode in each; `[V, *obs]` the first observations."""
        ...

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        """Take `[V, *act]` actions; observations, rewards, dones and infos, `[V]` each."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Step:
    """One step of `V` environments.

    Attributes:
        observations: `[V, *obs]` that the policy acted on, as the environments gave them.
        actions: `[V, *act]` what it did.
        state: of the policy, after it acted; None where it has none.
        starts: `[V]` where this step is the first of its episode.
        episodes: `[V]` numbers of the episodes, in the order in which they began.
        rewards: `[V]` the environments' own.
        learned: `[V]` by the learned reward; None without one.
        dones: `[V]` where the episode ended with this step.
        infos: `[V]`; at an episode's end they hold its `terminal_observation`.
        following: `[V, *obs]` what is seen next; where an episode ended, the next one's first.
    """

    observations: Observations
    actions: Array
    state: Any
    starts: BoolArray
    episodes: IntArray
    rewards: FloatArray
    learned: FloatArray | None
    dones: BoolArray
    infos: Sequence[dict[str, Any]]
    following: Observations


def rollout(
    policy: Policy,
    envs: Environments,
    *,
    deterministic: bool = False,
    reward: AnyReward | None = None,
    observations: Any = None,
) -> Iterator[Step]:
    """Let a policy act, one step of all environments at a time, for as long as steps are taken.

    Each call of `predict` gets the state that the call before handed back and the beginnings of
    episodes. A policy that goes by what it earns (`PaidPolicy`) learns of it after each step.

    Args:
        policy: anything with stable-baselines3's `predict`; it gets `[V, *obs]`, normalised if it
            learned from such.
        envs: with their own observations; reset first, unless `observations` is given.
        deterministic: passed to the policy.
        reward: learned, a control, or a plain function of a step: computed for each step, with
            the history that its episode has here. A `PaidPolicy` then goes by it.
        observations: `[V, *obs]` what the environments show already; episodes count from here.

    Raises:
        SpaceError: statistics of other observations than the policy's.

    >>> envs = SeededEpisodes([gymnasium.make("CartPole-v1")], seed=0)
    >>> from preferl.evaluation.policies import RandomPolicy
    >>> steps = rollout(RandomPolicy(gymnasium.make("CartPole-v1").action_space, 0), envs)
    >>> next(steps).rewards.tolist(), next(steps).starts.tolist()
    ([1.0], [False])
    """
    policy = on_raw_observations(policy)
    seen = envs.reset() if observations is None else observations
    count = begun = envs.num_envs
    starts, episodes, state = np.ones(count, bool), np.arange(count), None
    learned_reward = None if reward is None else as_reward(reward)
    history = History(1 if learned_reward is None else learned_reward.context, count)
    learned: FloatArray | None = None
    while True:
        actions, state = policy.predict(seen, state, starts, deterministic)
        following, rewards, dones, infos = envs.step(actions)
        if learned_reward is not None:
            history.forget(starts)
            learned = np.array(learned_reward(*history.append(seen, actions)))
        if isinstance(policy, PaidPolicy):
            policy.earned(state, rewards if learned is None else learned)
        yield Step(
            seen, actions, state, starts, episodes, rewards, learned, dones, infos, following
        )
        seen, starts, ended = following, dones, int(np.count_nonzero(dones))
        episodes = episodes.copy()
        episodes[dones] = begun + np.arange(ended)
        begun += ended


@final
class SeededEpisodes:
    """Environments of gymnasium side by side, whose episodes begin with one seed after the other.

    Steps and infos are those of SB3's `VecEnv`. An environment that finds no episode left rests: it
    shows what it showed last, and earns nothing.

    Args:
        envs: `V` of one kind.
        seed: of the first episode; each later one adds 1.
        episodes: how many there are, at least `V`.
        max_steps: episodes are cut off after so many; None cuts none.

    Raises:
        ConfigError: no environments, or more than there are episodes.
    """

    def __init__(
        self,
        envs: Sequence[gymnasium.Env[Any, Any]],
        seed: int,
        *,
        episodes: float = inf,
        max_steps: int | None = None,
    ) -> None:
        require_in("environments", len(envs), 1, episodes)
        self._envs, self._seed, self.num_envs = envs, seed, len(envs)
        self._episodes, self._max_steps = episodes, max_steps
        self._space = envs[0].observation_space
        self._actions = batch_space(envs[0].action_space, len(envs))

    def reset(self) -> Any:
        """Begin an episode in each; `[V, *obs]` the first observations."""
        self._seen: list[Any] = [None] * self.num_envs
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._resting = np.zeros(self.num_envs, bool)
        self._begun = 0
        for place in range(self.num_envs):
            self._begin(place)
        return self._batch()

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, list[dict[str, Any]]]:
        """One step wherever there is an episode; observations, rewards, dones and infos."""
        rewards, dones = np.zeros(self.num_envs), np.zeros(self.num_envs, bool)
        infos: list[dict[str, Any]] = [{} for _ in self._envs]
        each = list(iterate(self._actions, actions))
        for v in np.flatnonzero(~self._resting).tolist():
            seen, reward, terminated, truncated, infos[v] = self._envs[v].step(each[v])
            self._seen[v], rewards[v] = seen, float(reward)
            self._lengths[v] += 1
            dones[v] = terminated or truncated or self._lengths[v] == self._max_steps
            if dones[v]:
                last = {"terminal_observation": seen, "TimeLimit.truncated": not terminated}
                infos[v] = infos[v] | last
                self._begin(v)
        return self._batch(), rewards, dones, infos

    def _begin(self, place: int) -> None:
        self._resting[place] = self._begun >= self._episodes
        if not self._resting[place]:
            self._seen[place], _ = self._envs[place].reset(seed=self._seed + self._begun)
            self._lengths[place] = 0
        self._begun += 1

    def _batch(self) -> Any:
        batch: Any = create_empty_array(self._space, self.num_envs)
        return concatenate(self._space, self._seen, batch)


def make_env(env: EnvSource, **options: Any) -> gymnasium.Env[Any, Any]:
    """The environment of an id, or what the function makes of `options`."""
    return gymnasium.make(env, **options) if isinstance(env, str) else env(**options)
