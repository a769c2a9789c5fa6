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

PARTS: Final = ("mean", "var", "count")
"""Parts of running statistics, as SB3 names them."""

BUFFERS: Final = ("buffer_size", "n_steps")
"""Settings by which algorithms make room for steps."""

FEW_STEPS: Final = 2_048
"""Most steps for which a policy that only acts makes room."""

UNUSED: Final = (
    *("Box", "Dict", "Discrete", "MultiBinary", "MultiDiscrete", "OrderedDict"),
    *("__generator_ctor", "__bit_generator_ctor", "__pyx_unpickle_SeedSequence", "SeedSequence"),
    *("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"),
)
"""What a saved `VecNormalize` holds beside numbers: spaces, and what they draw from."""


def _normalisation(normaliser: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return settings of a `VecNormalize`, or of its fields in a file, and its statistics.

    The settings are `clip`, the largest size of a normalised number; `epsilon`, added to variances;
    `keys` of a dictionary that are normalised, None for observations of one array. Statistics are
    `mean` `[*obs]`, `var` `[*obs]` and `count` `[]`, behind `KEY/` for each key.
    """
    keys = None if normaliser.norm_obs_keys is None else list(normaliser.norm_obs_keys)
    statistics = {
        f"{prefix}{part}": np.array(getattr(running, part), np.float64)
        for prefix, running in _running(normaliser.obs_rms, keys)
        for part in PARTS
    }
    clip = float(normaliser.clip_obs)
    epsilon = float(normaliser.epsilon)
    return {"clip": clip, "epsilon": epsilon, "keys": keys}, statistics


def _normalised(
    env: VecEnv, about: Mapping[str, Any], statistics: Mapping[str, Array], *, training: bool
) -> VecNormalize:
    """Normalise observations, not rewards; `ValueError` for statistics of others, or damaged ones.

    With `training` the statistics go on changing.
    """
    clip = float(about["clip"])
    epsilon = float(about["epsilon"])
    keys = None if about["keys"] is None else list(about["keys"])
    if not (clip > 0 and 0 <= epsilon < np.inf):
        raise ValueError(f"clip {clip} and epsilon {epsilon}")
    limits: dict[str, Any] = {"clip_obs": clip, "epsilon": epsilon, "norm_obs_keys": keys}
    wrapped = VecNormalize(env, training=training, norm_reward=False, **limits)
    for prefix, running in _running(wrapped.obs_rms, keys):
        mean, var, count = (np.asarray(statistics[prefix + part]) for part in PARTS)
        if {mean.shape, var.shape} != {running.mean.shape} or count.shape != ():
            raise ValueError(f"statistics {prefix or 'of shape'} {mean.shape} for {env}")
        if not (np.isfinite(mean).all() and np.isfinite(var).all() and (var >= 0).all()):
            raise ValueError(f"statistics {prefix} that are not finite")
        running.mean = mean.astype(np.float64)
        running.var = var.astype(np.float64)
        running.count = float(count)
    return wrapped


def _running(statistics: Any, keys: list[str] | None) -> list[tuple[str, RunningMeanStd]]:
    """Return running statistics behind the names of their keys."""
    return [("", statistics)] if keys is None else [(f"{key}/", statistics[key]) for key in keys]


def read_vecnormalize(path: Path, env: VecEnv) -> VecNormalize:
    """Wrap an environment as `VecNormalize.save` wrote it; rewards are not normalised.

    If the file normalises rewards alone, the wrapper changes nothing. Numbers are read, and nothing
    that could run. Something else, or a file that asks to run something, is a `DataError`.
    """
    saved = load_pickle(path, objects=("VecNormalize", "RunningMeanStd"), left_out=UNUSED)
    with reading(path, expected="what VecNormalize.save wrote", error=DataError):
        if not isinstance(saved, Fields):
            raise TypeError(type(saved).__name__)
        # Those saved before version 1.6 have no names of what they normalise: all.
        running = vars(saved).get("obs_rms")
        keys = list(running) if isinstance(running, dict) else None
        vars(saved).setdefault("norm_obs_keys", keys)
        if not vars(saved)["norm_obs"]:
            return VecNormalize(env, training=False, norm_obs=False, norm_reward=False)
        settings, statistics = _normalisation(saved)
    return _normalised(env, settings, statistics, training=False)


def save_policy(path: Path | str, algorithm: BaseAlgorithm, config: AlgorithmConfig | None) -> None:
    """Write an algorithm's policy so that it can act again, with the config that built it.

    What only training needs is left out. Statistics of observations are written too if its
    environment has a `VecNormalize`. An older policy at `path` is replaced.

    Raises:
        ConfigError: networks that are not torch's, or no config.
        SpaceError: statistics of other observations than the policy's.
        StorageError: the folder cannot be written to, or holds something else than a policy,
            which would be lost.
    """
    require_torch(algorithm)
    if config is None:
        raise ConfigError(
            "config: expected that of the algorithm, got none. Pass "
            "`preferl.online.algorithms.algorithm_of(config, algorithm.get_env())`."
        )
    acting = on_raw_observations(algorithm)
    settings = None
    statistics = None
    if isinstance(acting, NormalisedPolicy):
        settings, statistics = _normalisation(acting.normaliser)
    about = {
        **ALGORITHMS.tag(config),
        "kind": type(config).__name__,
        "config": to_json(config),
        "normalisation": settings,
    }
    spaces = algorithm.observation_space, algorithm.action_space
    with POLICY.saving(path, about, algorithm.policy.state_dict(), *spaces) as draft:
        if statistics is not None:
            safetensors.numpy.save_file(statistics, draft / STATISTICS)


def load_policy(
    path: Path | str, *, device: str = "cpu", env: VecEnv | None = None, trust: Collection[str] = ()
) -> BaseAlgorithm:
    """Read a policy; it acts through `predict`, and in `env` it can learn on.

    If it learned from normalised observations, its environment has a `VecNormalize` with the
    statistics, as when it was saved. `evaluate_policy`, `film` and `record` heed it; where you call
    `predict` yourself, `preferl.evaluation.on_raw_observations` makes of it a policy that takes
    observations as the environment gives them.

    Args:
        path: the folder that `save_policy` wrote.
        device: where its network goes.
        env: where it learns on, without `VecNormalize`; statistics of observations then go on from
            those that were saved. Rewards are not normalised.
        trust: modules that may be imported where the algorithm is one of your own; one that is
            imported already need not be named.

    Raises:
        CheckpointError: no such folder, a damaged one, or one for other spaces than `env` has.
    """
    path = Path(path)
    saved = POLICY.load(path)
    with POLICY.reading(path):
        kind = ALGORITHMS.named(saved.about, source=f"{path}", trust=trust)
        config = from_json(kind, saved.about["config"])
        around: VecEnv = spaces_alone(*saved.spaces) if env is None else env
        if (normal := saved.about["normalisation"]) is not None:
            statistics = safetensors.numpy.load_file(path / STATISTICS)
            around = _normalised(around, normal, statistics, training=env is not None)
        with warnings.catch_warnings():
            if env is None:  # what only acts fills no rollout that is short for its batches
                warnings.filterwarnings("ignore", "You have specified a mini-batch size")
                config = _with_small_buffers(config)
            with bounded_network(saved.numbers):
                algorithm = build_algorithm(config, around, seed=0, device=device)
        require_state(path / POLICY.weights, saved.tensors, algorithm.policy.state_dict())
        algorithm.policy.load_state_dict(saved.tensors)
    return algorithm


def _with_small_buffers(config: AlgorithmConfig) -> AlgorithmConfig:
    """Let an algorithm make room for few steps, since one that only acts stores none."""
    if isinstance(config, SB3Config):
        return replace(config, settings={**config.settings, **_few_steps(config.settings)})
    return replace(config, **_few_steps({f.name: getattr(config, f.name) for f in fields(config)}))


def _few_steps(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: min(settings[name], FEW_STEPS) for name in BUFFERS if name in settings}


def spaces_alone(observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> VecEnv:
    """Make an environment that has spaces and nothing else, for a policy that only acts."""
    env: gymnasium.Env[Any, Any] = gymnasium.Env()
    env.observation_space = observations
    env.action_space = actions
    return DummyVecEnv([lambda: env])
