"""Policies as folders: safetensors for networks and statistics, JSON for settings and spaces."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
import safetensors.numpy
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from preferl.configs import from_json, to_json
from preferl.data.sources.pickles import Fields, load_pickle
from preferl.errors import ConfigError, DataError
from preferl.evaluation.policies import NormalisedPolicy, on_raw_observations
from preferl.models.folder import POLICY, bounded_network, require_state
from preferl.online.algorithms import build_algorithm, require_torch
from preferl.online.configs import AlgorithmConfig, SB3Config
from preferl.reading import reading
from preferl.registry import ALGORITHMS
from preferl.shapes import Array

STATISTICS = "normalisation.safetensors"

RUNNING_STATISTICS: Final = ("mean", "var", "count")
"""Parts of running statistics, as SB3 names them."""

BUFFERS: Final = ("buffer_size", "n_steps")
"""Settings that decide how much memory an algorithm allocates, counted in steps."""

FEW_STEPS: Final = 2_048
"""How many steps of memory a policy that only acts allocates at most."""

UNUSED: Final = (
    *("Box", "Dict", "Discrete", "MultiBinary", "MultiDiscrete", "OrderedDict"),
    *("__generator_ctor", "__bit_generator_ctor", "__pyx_unpickle_SeedSequence", "SeedSequence"),
    *("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"),
)
"""Classes in a saved `VecNormalize` that are left out: spaces and their random generators."""


def _normalisation(normaliser: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the settings and statistics of a `VecNormalize`, or those in its saved fields.

    The settings are `clip`, the largest size of a normalised number; `epsilon`, which is added to
    variances; and `keys`, the names of normalised arrays in dictionary observations. `keys` is None
    if observations are a single array. The statistics are `mean` `[*obs]`, `var` `[*obs]` and
    `count` `[]`. If there are keys, their names begin with `KEY/`.
    """
    keys = None if normaliser.norm_obs_keys is None else list(normaliser.norm_obs_keys)
    statistics = {
        f"{prefix}{part}": np.array(getattr(running, part), np.float64)
        for prefix, running in _running(normaliser.obs_rms, keys)
        for part in RUNNING_STATISTICS
    }
    clip = float(normaliser.clip_obs)
    epsilon = float(normaliser.epsilon)
    return {"clip": clip, "epsilon": epsilon, "keys": keys}, statistics


def _normalised(
    env: VecEnv, settings: Mapping[str, Any], statistics: Mapping[str, Array], *, training: bool
) -> VecNormalize:
    """Wrap an environment so that its observations are normalised, and its rewards are not.

    With `training`, the statistics keep changing. If the statistics do not fit the observations,
    `ValueError` is raised.
    """
    clip = float(settings["clip"])
    epsilon = float(settings["epsilon"])
    keys = None if settings["keys"] is None else list(settings["keys"])
    if not (clip > 0 and 0 <= epsilon < np.inf):
        raise ValueError(f"clip {clip} and epsilon {epsilon}")
    limits: dict[str, Any] = {"clip_obs": clip, "epsilon": epsilon, "norm_obs_keys": keys}
    wrapped = VecNormalize(env, training=training, norm_reward=False, **limits)
    for prefix, running in _running(wrapped.obs_rms, keys):
        mean, var, count = (np.asarray(statistics[prefix + part]) for part in RUNNING_STATISTICS)
        if {mean.shape, var.shape} != {running.mean.shape} or count.shape != ():
            raise ValueError(f"statistics {prefix or 'of shape'} {mean.shape} for {env}")
        if not (np.isfinite(mean).all() and np.isfinite(var).all() and (var >= 0).all()):
            raise ValueError(f"statistics {prefix} that are not finite")
        running.mean = mean.astype(np.float64)
        running.var = var.astype(np.float64)
        running.count = float(count)
    return wrapped


def _running(statistics: Any, keys: list[str] | None) -> list[tuple[str, RunningMeanStd]]:
    """Return each running statistic with the prefix of its names: `KEY/`, or "" without keys."""
    return [("", statistics)] if keys is None else [(f"{key}/", statistics[key]) for key in keys]


def read_vecnormalize(path: Path, env: VecEnv) -> VecNormalize:
    """Wrap an environment in the `VecNormalize` of a file; rewards are not normalised.

    If the file normalises only rewards, the wrapper changes nothing. Nothing in the file is run. If
    a file asks to run something, or holds something else, `DataError` is raised.
    """
    saved = load_pickle(path, objects=("VecNormalize", "RunningMeanStd"), left_out=UNUSED)
    with reading(path, expected="what VecNormalize.save wrote", error=DataError):
        if not isinstance(saved, Fields):
            raise TypeError(type(saved).__name__)
        # Files of SB3 before 1.6 do not name the keys that they normalise: they normalise all.
        running = vars(saved).get("obs_rms")
        keys = list(running) if isinstance(running, dict) else None
        vars(saved).setdefault("norm_obs_keys", keys)
        if not vars(saved)["norm_obs"]:
            return VecNormalize(env, training=False, norm_obs=False, norm_reward=False)
        settings, statistics = _normalisation(saved)
    return _normalised(env, settings, statistics, training=False)


def save_policy(path: Path | str, algorithm: BaseAlgorithm, config: AlgorithmConfig | None) -> None:
    """Write an algorithm's policy so that it can act again, with the config that built it.

    State that only training needs is left out. If the environment has a `VecNormalize`, its
    statistics of observations are written too. An older policy at `path` is replaced.

    Raises:
        ConfigError: the networks are not torch's, or `config` is None.
        SpaceError: the statistics are of other observations than the policy's.
        StorageError: the folder cannot be written to, or holds something other than a policy.
    """
    require_torch(algorithm)
    if config is None:
        raise ConfigError(
            "config: expected the algorithm's config, got none. Pass "
            "`preferl.online.algorithms.algorithm_of(config, algorithm.get_env())`."
        )
    acting = on_raw_observations(algorithm)
    settings = None
    statistics = None
    if isinstance(acting, NormalisedPolicy):
        settings, statistics = _normalisation(acting.normaliser)
    description = {
        **ALGORITHMS.tag(config),
        "kind": type(config).__name__,
        "config": to_json(config),
        "normalisation": settings,
    }
    spaces = algorithm.observation_space, algorithm.action_space
    with POLICY.saving(path, description, algorithm.policy.state_dict(), *spaces) as draft:
        if statistics is not None:
            safetensors.numpy.save_file(statistics, draft / STATISTICS)


def load_policy(
    path: Path | str, *, device: str = "cpu", env: VecEnv | None = None, trust: Collection[str] = ()
) -> BaseAlgorithm:
    """Read a policy that acts through `predict`. If `env` is given, it can continue to learn there.

    If the policy learned from normalised observations, its environment is a `VecNormalize` with the
    saved statistics. `evaluate_policy`, `film` and `record` use these statistics. For calling
    `predict` yourself, `preferl.evaluation.on_raw_observations` returns a policy that takes the
    environment's own observations.

    Args:
        path: the folder that `save_policy` wrote.
        device: device of the networks.
        env: environment in which the policy learns on, without `VecNormalize`. The saved statistics
            of observations then keep changing. Rewards are not normalised.
        trust: modules that may be imported if the algorithm is one of your own. Modules that are
            already imported need not be named.

    Raises:
        CheckpointError: there is no such folder, it is damaged, or it is for other spaces than
            those of `env`.
    """
    path = Path(path)
    saved = POLICY.load(path)
    with POLICY.reading(path):
        kind = ALGORITHMS.named(saved.description, source=f"{path}", trust=trust)
        config = from_json(kind, saved.description["config"])
        policy_env: VecEnv = spaces_alone(*saved.spaces) if env is None else env
        if (normalisation := saved.description["normalisation"]) is not None:
            statistics = safetensors.numpy.load_file(path / STATISTICS)
            policy_env = _normalised(
                policy_env, normalisation, statistics, training=env is not None
            )
        with warnings.catch_warnings():
            if env is None:  # a policy that only acts collects no rollouts to split into batches
                warnings.filterwarnings("ignore", "You have specified a mini-batch size")
                config = _with_small_buffers(config)
            with bounded_network(saved.numbers):
                algorithm = build_algorithm(config, policy_env, seed=0, device=device)
        require_state(path / POLICY.weights, saved.tensors, algorithm.policy.state_dict())
        algorithm.policy.load_state_dict(saved.tensors)
    return algorithm


def _with_small_buffers(config: AlgorithmConfig) -> AlgorithmConfig:
    """Make an algorithm allocate memory for few steps, since one that only acts stores none."""
    if isinstance(config, SB3Config):
        return replace(config, settings={**config.settings, **_few_steps(config.settings)})
    return replace(config, **_few_steps({f.name: getattr(config, f.name) for f in fields(config)}))


def _few_steps(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: min(settings[name], FEW_STEPS) for name in BUFFERS if name in settings}


def spaces_alone(observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> VecEnv:
    """Make an environment that has only spaces, for a policy that only acts."""
    env: gymnasium.Env[Any, Any] = gymnasium.Env()
    env.observation_space = observations
    env.action_space = actions
    return DummyVecEnv([lambda: env])
