"""Policies that act, also from files of other programs, and records of what they do."""

import warnings
import zipfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import stable_baselines3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from preferl.data.episodes import Episodes, join
from preferl.envs.config import EnvConfig, EnvSource, VecEnvKind
from preferl.envs.simulators import Environment, is_mujoco
from preferl.errors import CheckpointError, ConfigError, in_words
from preferl.evaluation.policies import (
    NormalisedPolicy,
    Policy,
    learned_normalised,
    on_raw_observations,
)
from preferl.evaluation.rollout import rollout, task_env
from preferl.online.algorithms import make_environments
from preferl.online.checkpoints.policy_folder import load_policy, read_vecnormalize, spaces_alone
from preferl.online.wrappers.feedback_controls import stack_states
from preferl.online.wrappers.feedback_env import (
    RecordsStates,
    outcomes,
    present_infos,
    successes,
)
from preferl.online.wrappers.recording import Recording
from preferl.reading import parse_json, reading

BESIDE: Final = ("vecnormalize.pkl", "vec_normalize.pkl")
"""Names that RL Zoo and others give to the file of statistics beside a `.zip`."""


def task_environments(
    env: str | EnvConfig,
    count: int,
    *,
    seed: int,
    states: bool,
    pictures: bool = False,
    vec_env: VecEnvKind = "dummy",
) -> VecEnv:
    """Make copies of the environment in which policies of a task are evaluated.

    The seed of each copy is that of the copy before plus 1. With `states`, infos have `state`, see
    `RecordsStates`. With `pictures`, the copies can be drawn.
    """
    wrap = RecordsStates if states else None
    render_options = {"render_mode": "rgb_array"}
    environment_factory = partial(task_env(env), **(render_options if pictures else {}))
    return make_environments(environment_factory, count, seed=seed, wrap=wrap, vec_env=vec_env)


def has_states(env: Environment) -> bool:
    """Return whether an environment has a state from which it can be drawn. This resets it."""
    env.reset(seed=0)
    return is_mujoco(env) or getattr(env.unwrapped, "state", None) is not None


def record(
    policy: Policy, env: EnvSource, steps: int, *, seed: int, environments: int = 4
) -> Episodes:
    """Record at least `steps` steps over all parallel environments, with the environments' rewards.

    The policy is any object with `predict`. Its actions are drawn at random, as in training.
    """
    with closing(make_environments(env, environments, seed=seed)) as venv:
        return act(policy, venv, steps=steps, whole=False)


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
    """Let a policy act, and return the episodes.

    The policy acts in `V` environments, and its `predict` gets `[V, *obs]`. The environments are
    reset first. Every episode that began counts. If only the episodes that end first counted, short
    ones would be preferred. If `episodes` is None, new episodes begin until all environments
    together have made `steps` steps. With `whole`, running episodes then continue to their end;
    otherwise they are cut. `states` records `info["state"]`. `on_progress` is called with the
    number of recorded steps or episodes, and with the number that is wanted.
    """
    recording = Recording(venv.observation_space, venv.action_space, venv.num_envs)
    observations: Any = venv.reset()
    episode_count = venv.num_envs if episodes is None else episodes
    acting = np.arange(venv.num_envs) < episode_count
    ended = 0
    recording.begin(
        observations, environments=acting, states=stack_states(venv.reset_infos) if states else None
    )
    step_iterator = rollout(policy, venv, deterministic=deterministic, observations=observations)
    while acting.any() and (whole or recording.steps < steps):
        step = next(step_iterator)
        infos = list(step.infos)
        ended_now = np.flatnonzero(step.dones & acting)
        stacked_states = stack_states(present_infos(venv, step.dones, infos)) if states else None
        recording.act(step.actions)
        recording.advance(
            step.following, step.rewards, states=stacked_states, success=successes(infos)
        )
        if not len(ended_now):
            continue
        recording.end(ended_now, *outcomes([infos[v] for v in ended_now]))
        restarting = step.dones & acting
        if episodes is None:
            restarting &= recording.steps < steps
        else:  # running episodes count as begun
            restarting &= np.cumsum(restarting) <= episodes - ended - np.count_nonzero(acting)
        recording.begin(environments=restarting)
        acting = (acting & ~step.dones) | restarting
        ended = ended + len(ended_now)
        if on_progress is not None and episodes is None:
            on_progress(min(recording.steps, steps), steps)
        elif on_progress is not None:
            on_progress(ended, episode_count)
    recorded = recording.take(unfinished="cut")
    return join([] if recorded is None else [recorded])


def load_actor(
    path: Path | str,
    *,
    trust_pickle: bool = False,
    vecnormalize: Path | str | None = None,
    device: str = "cpu",
) -> Policy:
    """Read a policy that acts on the environment's own observations, and does not learn any more.

    The policy is in a folder of `save_policy`, or in a `.zip` of stable-baselines3 (PPO, A2C, SAC,
    TD3, DDPG or DQN). A `.zip` has to be trusted, and is opened with a warning; see
    `DatasetConfig`. `CheckpointError` is raised if a file cannot be read, or if the statistics do
    not belong to the policy.
    """
    path = Path(path)
    if not path.is_file():
        if vecnormalize is not None:
            raise ConfigError(
                f"vecnormalize: expected this file only for a .zip, got {path}, which has its own "
                "statistics if it needs them."
            )
        return on_raw_observations(load_policy(path, device=device))
    if not trust_pickle:
        raise ConfigError(
            f"policy {path}: expected a policy folder of a preferl run, got a file. Files of "
            "stable-baselines3 hold pickles, which can run code. If you trust the file's maker, "
            "pass --trust-pickle (trust_pickle=True)."
        )
    warnings.warn(
        f"Opening {path} runs what its maker put into it: stable-baselines3 saves pickles.",
        stacklevel=2,
    )
    try:
        actor: BaseAlgorithm = _algorithm(path).load(path, device=device)
    except Exception as error:  # a foreign pickle may raise anything
        raise CheckpointError(
            f"policy {path}: expected a whole .zip of stable-baselines3, got {in_words(error)}."
        ) from error
    return _normalised(path, actor, vecnormalize)


def _normalised(path: Path, actor: BaseAlgorithm, statistics: Path | str | None) -> Policy:
    """Return an actor of raw observations, with the given statistics or those beside its file."""
    statistics_files = [path.with_name(name) for name in BESIDE if path.with_name(name).is_file()]
    file = Path(statistics) if statistics is not None else next(iter(statistics_files), None)
    if file is None:
        if learned_normalised(actor):
            raise CheckpointError(
                f"statistics of observations for {path}: expected a file {BESIDE[0]} beside it, "
                "since the policy learned in a VecNormalize, got none. Name the file that "
                "VecNormalize.save wrote: --vecnormalize (vecnormalize=)."
            )
        return actor
    expected = f"those of the observations of {path}"
    fix = "Name another file with --vecnormalize (vecnormalize=)."
    with reading(f"statistics {file}", expected=expected, fix=fix):
        env = spaces_alone(actor.observation_space, actor.action_space)
        return NormalisedPolicy(actor, read_vecnormalize(file, env))


def _algorithm(path: Path) -> Any:
    """Return the algorithm of a `.zip` by its policy's module. Nothing in the file is run."""
    with zipfile.ZipFile(path) as file:
        settings = parse_json(file.read("data"))
    module = settings["policy_class"]["__module__"]
    names = {name.lower(): name for name in ("SAC", "TD3", "DQN")}
    kind = next((part for part in module.split(".") if part in names), None)
    if kind is None and not module.startswith("stable_baselines3.common"):
        raise ValueError(f"a policy of {module}")
    if kind is not None:
        return getattr(stable_baselines3, names[kind])
    return stable_baselines3.PPO if "n_epochs" in settings else stable_baselines3.A2C
