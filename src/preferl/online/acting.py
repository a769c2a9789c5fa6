"""Whole episodes of a policy, several environments at once, none favoured for being short."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from preferl.data.episodes import Episodes, join
from preferl.evaluation.environments import make_task_env
from preferl.evaluation.normalised import on_raw_observations
from preferl.evaluation.protocols import Policy
from preferl.online.feedback_env import (
    RecordsStates,
    outcomes,
    present_infos,
    stack_states,
)
from preferl.online.recording import Recording
from preferl.shapes import BoolArray
from preferl.simulators import Environment, is_mujoco


def task_environments(env: str, count: int, *, seed: int, states: bool) -> VecEnv:
    """Copies of the environment in which policies of a task are judged.

    Args:
        env: id of the environment.
        count: `V`.
        seed: of the first; the others follow.
        states: whether infos tell `state`, see `RecordsStates`.

    Raises:
        ConfigError: an id that gymnasium does not know.
        MissingExtraError: the package that has it is not installed.
    """
    venv = DummyVecEnv([partial(_make, env, states)] * count)
    venv.seed(seed)
    return venv


def _make(env: str, states: bool) -> gymnasium.Env[Any, Any]:
    made = make_task_env(env)
    return RecordsStates(made) if states else made


def tells_states(env: Environment) -> bool:
    """Whether moments of it can be drawn again: MuJoCo's, and those with `state`; it is reset.

    >>> tells_states(gymnasium.make("CartPole-v1"))
    True
    """
    env.reset(seed=0)
    return is_mujoco(env) or getattr(env.unwrapped, "state", None) is not None


def act(
    policy: Policy,
    venv: VecEnv,
    *,
    episodes: int | None = None,
    steps: int = 0,
    states: bool = False,
    deterministic: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Episodes:
    """Let a policy act for whole episodes, and keep all that were begun.

    Every episode that was begun counts, whichever end first: the first ones to end would be short
    ones more often than is true.

    Args:
        policy: anything with stable-baselines3's `predict`; it gets `[V, *obs]`, normalised if it
            learned from such.
        venv: `V` environments with their own observations, reset here.
        episodes: how many; None counts steps.
        steps: episodes are begun until so many are recorded, and those under way then end.
        states: record `info["state"]`.
        deterministic: passed to the policy.
        on_progress: told how much has been recorded, and how much is to be.

    Raises:
        DataError: the environments gave NaN or infinite numbers.
    """
    policy = on_raw_observations(policy)
    recording = Recording(venv.observation_space, venv.action_space, venv.num_envs)
    tell = on_progress or (lambda *_: None)
    observations: Any = venv.reset()
    start = np.ones(venv.num_envs, bool)
    acting = _some(start, episodes, begun=0, going_on=True)
    begun, ended = int(acting.sum()), 0
    recording.begin(
        observations, which=acting, states=stack_states(venv.reset_infos) if states else None
    )
    state = None
    while acting.any():
        actions, state = policy.predict(observations, state, start, deterministic)
        recording.act(actions)
        observations, rewards, start, infos = venv.step(actions)
        seen = stack_states(present_infos(venv, start, infos)) if states else None
        recording.advance(observations, rewards, states=seen)
        over = np.flatnonzero(start & acting)
        if len(over):
            recording.end(over, *outcomes([infos[v] for v in over]))
            again = _some(start & acting, episodes, begun=begun, going_on=recording.steps < steps)
            recording.begin(which=again)
            acting = (acting & ~start) | again
            begun, ended = begun + int(again.sum()), ended + len(over)
            tell(*((min(recording.steps, steps), steps) if episodes is None else (ended, episodes)))
    return join([part for part in (recording.take(),) if part is not None])


def _some(free: BoolArray, episodes: int | None, *, begun: int, going_on: bool) -> BoolArray:
    """`[V]` where an episode begins: as many as are left, or all that are free."""
    if episodes is None:
        return free & going_on
    return np.asarray(free & (np.cumsum(free) <= episodes - begun))
