"""What a policy does, recorded: whole episodes or so many steps, in several environments."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from preferl.data.episodes import Episodes, join
from preferl.evaluation.environments import make_task_env
from preferl.evaluation.policies import Policy
from preferl.evaluation.rollout import rollout
from preferl.online.algorithms import make_environments
from preferl.online.feedback_controls import stack_states
from preferl.online.feedback_env import RecordsStates, outcomes, present_infos
from preferl.online.recording import Recording
from preferl.simulators import Environment, is_mujoco


def task_environments(env: str, count: int, *, seed: int, states: bool) -> VecEnv:
    """Copies of the environment in which policies of a task are evaluated.

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


def record(policy: Policy, env: str, steps: int, *, seed: int, environments: int = 4) -> Episodes:
    """At least `steps` steps of a policy, with the environment's rewards.

    Args:
        policy: anything with `predict`; it acts as it was trained to, not greedily.
        env: id of a registered environment.
        steps: over all parallel environments.
        seed: of the environments.
        environments: how many act in parallel.
    """
    venv = make_environments(env, environments, seed=seed)
    try:
        return act(policy, venv, steps=steps, whole=False)
    finally:
        venv.close()


def act(
    policy: Policy,
    venv: VecEnv,
    *,
    episodes: int | None = None,
    steps: int = 0,
    whole: bool = True,
    states: bool = False,
    deterministic: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Episodes:
    """Let a policy act, and keep all that it did.

    Every episode that was begun counts, whichever end first: the first ones to end would be short
    ones more often than is true.

    Args:
        policy: anything with stable-baselines3's `predict`; it gets `[V, *obs]`, normalised if it
            learned from such.
        venv: `V` environments with their own observations, reset here.
        episodes: how many; None counts steps.
        steps: episodes are begun until so many are recorded.
        whole: let the episodes under way then end; else they are cut off there.
        states: record `info["state"]`.
        deterministic: passed to the policy.
        on_progress: called with how much has been recorded, and how much is to be.

    Raises:
        DataError: the environments gave NaN or infinite numbers.
    """
    recording = Recording(venv.observation_space, venv.action_space, venv.num_envs)
    tell = on_progress or (lambda *_: None)
    observations: Any = venv.reset()
    wanted = venv.num_envs if episodes is None else episodes
    acting, ended = np.arange(venv.num_envs) < wanted, 0
    recording.begin(
        observations, which=acting, states=stack_states(venv.reset_infos) if states else None
    )
    taken = rollout(policy, venv, deterministic=deterministic, observations=observations)
    while acting.any() and (whole or recording.steps < steps):
        step = next(taken)
        infos, over = list(step.infos), np.flatnonzero(step.dones & acting)
        seen = stack_states(present_infos(venv, step.dones, infos)) if states else None
        recording.act(step.actions)
        recording.advance(step.following, step.rewards, states=seen)
        if len(over):
            recording.end(over, *outcomes([infos[v] for v in over]))
            again = step.dones & acting
            if episodes is None:
                again &= recording.steps < steps
            else:  # those under way were begun as well
                again &= np.cumsum(again) <= episodes - ended - np.count_nonzero(acting)
            recording.begin(which=again)
            acting, ended = (acting & ~step.dones) | again, ended + len(over)
            tell(*((min(recording.steps, steps), steps) if episodes is None else (ended, episodes)))
    return join([part for part in (recording.take(unfinished="cut"),) if part is not None])
