"""Rollouts: a policy acts in environments, and the caller iterates over the steps.

Everything that evaluates, films, shows or records a policy takes its steps from `rollout`. Every
kind of policy therefore gets its hidden state, episode starts and rewards in the same way. Known
faults of environments are corrected here, since the scores of Fu et al. 2020 ("D4RL: Datasets for
Deep Data-Driven Reinforcement Learning") belong to the rewards of the original simulators.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, Protocol, SupportsFloat, final

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from preferl.data.windows import History
from preferl.envs.checks import Environment
from preferl.envs.config import EnvConfig
from preferl.envs.factory import EnvFactory, env_factory
from preferl.errors import require_in
from preferl.evaluation.policies import (
    Policy,
    ReturnConditionedPolicy,
    on_raw_observations,
    threads_of,
)
from preferl.feedback.step_rewards import AnyReward, as_reward
from preferl.shapes import Array, BoolArray, FloatArray, IntArray, Observations

LONGEST: Final = 10_000
"""Steps after which an episode is cut off if nothing else limits it."""

ENDLESS: Final = (
    f"An episode did not end within {LONGEST} steps and was cut off. Set `max_episode_steps`, or "
    "end episodes in the environment."
)

REACH_WEIGHT = 0.1
"""Reward that a metre between palm and object costs in the original hand environments."""


class Environments(Protocol):
    """`V` environments that restart when an episode ends, such as a `VecEnv` of SB3."""

    num_envs: int

    def reset(self) -> Any:
        """Begin an episode in each environment; return the first observations `[V, *obs]`."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        """Take `[V, *act]` actions; return observations, rewards, dones and infos, `[V]` each."""


@final
@dataclass(frozen=True, eq=False)
class Step:
    """One step of `V` environments.

    Attributes:
        observations: `[V, *obs]` that the policy acted on, as the environments returned them.
        actions: `[V, *act]` of the policy.
        state: hidden state of the policy after it acted; None if it has none.
        starts: `[V]` true if this step is the first of its episode.
        episodes: `[V]` numbers of the episodes, in the order in which they began.
        rewards: `[V]` the environments' own rewards.
        learned: `[V]` learned rewards; None if there is no learned reward.
        dones: `[V]` true if the episode ended with this step.
        infos: `[V]`; at the end of an episode, they contain its `terminal_observation`.
        following: `[V, *obs]` next observations; if an episode ended, the first of the next one.
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
    """Let a policy act, and yield one step of all environments at a time, without end.

    Each call of `predict` gets the state that the last call returned, and the episode starts. After
    each step, a `ReturnConditionedPolicy` gets the rewards of that step.

    Args:
        policy: anything with stable-baselines3's `predict`; it gets `[V, *obs]`, normalised if it
            learned from normalised observations.
        envs: environments with raw observations; they are reset unless `observations` is given.
        deterministic: passed to the policy.
        reward: a learned reward, a control, or a plain function of a step. It is computed for each
            step, with the episode's history so far. A `ReturnConditionedPolicy` then gets it
            instead of the environment's reward.
        observations: current observations `[V, *obs]` of environments that were reset already.
            Their episodes count as beginning here.

    Raises:
        SpaceError: the statistics are of other observations than the policy's.

    >>> envs = SeededEpisodes([gymnasium.make("CartPole-v1")], seed=0)
    >>> from preferl.evaluation.policies import RandomPolicy
    >>> steps = rollout(RandomPolicy(gymnasium.make("CartPole-v1").action_space, 0), envs)
    >>> next(steps).rewards.tolist(), next(steps).starts.tolist()
    ([1.0], [False])
    """
    policy = on_raw_observations(policy)
    threads = threads_of(policy)
    present = envs.reset() if observations is None else observations
    count = episode_count = envs.num_envs
    starts = np.ones(count, bool)
    episodes = np.arange(count)
    state = None
    learned_reward = None if reward is None else as_reward(reward)
    history = History(1 if learned_reward is None else learned_reward.context, count)
    learned: FloatArray | None = None
    by_returns = policy if isinstance(policy, ReturnConditionedPolicy) else None
    while True:
        with threads():
            actions, state = policy.predict(present, state, starts, deterministic)
        following, rewards, dones, infos = envs.step(actions)
        if learned_reward is not None:
            history.forget(starts)
            learned = np.array(learned_reward(*history.append(present, actions)))
        if by_returns is not None:
            by_returns.earned(state, rewards if learned is None else learned)
        yield Step(
            present, actions, state, starts, episodes, rewards, learned, dones, infos, following
        )
        present = following
        starts = dones
        ended = int(np.count_nonzero(dones))
        episodes = episodes.copy()
        episodes[dones] = episode_count + np.arange(ended)
        episode_count += ended


@final
class SeededEpisodes:
    """Environments of gymnasium side by side, whose episodes have consecutive seeds.

    Steps and infos have the form of SB3's `VecEnv`. If no episode is left for an environment, it
    repeats its last observation, with reward 0.

    Args:
        envs: `V` environments of one kind.
        seed: seed of the first episode; each later one adds 1.
        episodes: number of episodes, at least `V`.
        max_steps: steps after which episodes are cut off. None leaves this to the environment. If
            the environment has no limit either, `LONGEST` is the limit, since its episodes might
            never end.

    Raises:
        ConfigError: there are no environments, or more environments than episodes.
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
        self._envs = envs
        self._seed = seed
        self.num_envs = len(envs)
        self._episodes = episodes
        self._max_steps = max_steps if max_steps or _has_limit(envs[0]) else LONGEST
        self._space = envs[0].observation_space
        self._actions = batch_space(envs[0].action_space, len(envs))

    def reset(self) -> Any:
        """Begin an episode in each environment; return the first observations `[V, *obs]`."""
        self._observations: list[Any] = [None] * self.num_envs
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._resting = np.zeros(self.num_envs, bool)
        self._begun_episodes = 0
        for number in range(self.num_envs):
            self._begin(number)
        return self._batch()

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, list[dict[str, Any]]]:
        """Take a step in each running episode; return observations, rewards, dones and infos."""
        rewards = np.zeros(self.num_envs)
        dones = np.zeros(self.num_envs, bool)
        infos: list[dict[str, Any]] = [{} for _ in self._envs]
        action_of = list(iterate(self._actions, actions))
        for v in np.flatnonzero(~self._resting).tolist():
            observation, reward, terminated, truncated, infos[v] = self._envs[v].step(action_of[v])
            self._observations[v] = observation
            rewards[v] = float(reward)
            self._lengths[v] += 1
            dones[v] = terminated or truncated or self._lengths[v] == self._max_steps
            if dones[v]:
                if not (terminated or truncated) and self._max_steps == LONGEST:
                    # Python shows a warning once, although there are many evaluations of many
                    # episodes.
                    warnings.warn(ENDLESS, stacklevel=1)
                end_info = {
                    "terminal_observation": observation,
                    "TimeLimit.truncated": not terminated,
                }
                infos[v] = infos[v] | end_info
                self._begin(v)
        return self._batch(), rewards, dones, infos

    def _begin(self, number: int) -> None:
        self._resting[number] = self._begun_episodes >= self._episodes
        if not self._resting[number]:
            self._observations[number], _ = self._envs[number].reset(
                seed=self._seed + self._begun_episodes
            )
            self._lengths[number] = 0
        self._begun_episodes += 1

    def _batch(self) -> Any:
        batch: Any = create_empty_array(self._space, self.num_envs)
        return concatenate(self._space, self._observations, batch)


def _has_limit(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether gymnasium limits the length of an environment's episodes."""
    return env.spec is not None and env.spec.max_episode_steps is not None


@final
class ReachTermCorrected(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A hand environment whose reward falls with the distance to the object, instead of rising.

    The dense rewards of gymnasium-robotics' door, hammer and relocate environments add 0.1 times
    the distance from the palm to the object. The original environments (Rajeswaran et al. 2018)
    subtract it, and so do the reference scores of D4RL. This wrapper subtracts twice that term,
    computed from the observation after the step. The random policy then returns about as much as in
    D4RL: -56.6 instead of -45.9 in the door environment (D4RL: -56.5), -275.2 instead of -267.8
    with the hammer (D4RL: -274.9), and -5.7 instead of 10.9 in relocate (D4RL: -6.4).

    Args:
        env: one of the three environments.
        reach: maps an observation `[O]` to the vector `[3]` from object to palm, in metres.
    """

    def __init__(self, env: Environment, reach: Callable[[Array], FloatArray]) -> None:
        super().__init__(env)
        self._reach = reach

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step and correct its reward."""
        observation, reward, *ends = self.env.step(action)
        distance = float(np.linalg.norm(self._reach(observation)))
        return observation, float(reward) - 2 * REACH_WEIGHT * distance, *ends


CORRECTIONS: Final[Mapping[str, Callable[[Environment], Environment]]] = {
    "AdroitHandDoor-v1": partial(ReachTermCorrected, reach=lambda seen: seen[35:38]),
    "AdroitHandHammer-v1": partial(
        ReachTermCorrected, reach=lambda seen: seen[33:36] - seen[36:39]
    ),
    "AdroitHandRelocate-v1": partial(ReachTermCorrected, reach=lambda seen: seen[30:33]),
}
"""Corrections of environments by id; other environments stay as they are."""


def make_task_env(env: str | EnvConfig, **options: Any) -> Environment:
    """Make the environment of an id or of settings, with the rewards by which its task is scored.

    Arguments and errors are those of `preferl.envs.factory.make_configured`.

    >>> make_task_env("Pendulum-v1").spec.max_episode_steps
    200
    """
    return task_env(env)(**options)


def task_env(env: str | EnvConfig) -> EnvFactory:
    """Return a function that makes an environment, here or in other processes.

    Known faults (`CORRECTIONS`) are corrected inside of the wrappers that the settings name.
    """
    return env_factory(EnvConfig(env) if isinstance(env, str) else env, corrected)


def corrected(env: Environment) -> Environment:
    """Return an environment with the rewards by which its task is scored."""
    correct = CORRECTIONS.get(env.spec.id if env.spec else "")
    return env if correct is None else correct(env)
