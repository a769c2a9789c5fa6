"""Policies as folders: safetensors for the network, JSON for its settings and spaces."""

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import safetensors.numpy
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from preferl.configs import from_json, to_json
from preferl.evaluation.policies import NormalisedPolicy, on_raw_observations
from preferl.models.configs import dense
from preferl.models.folder import POLICY, require_numbers, require_state
from preferl.online.algorithms import build_algorithm
from preferl.online.configs import AlgorithmConfig
from preferl.online.normalisation import Normalisation
from preferl.registry import ALGORITHMS

STATISTICS = "normalisation.safetensors"


def save_policy(path: Path | str, algorithm: BaseAlgorithm, config: AlgorithmConfig) -> None:
    """Write a policy so that it can act again; what only training needs is left out.

    Statistics of observations go with it if its environment has a `VecNormalize`.

    Args:
        path: the folder, replaced if it exists.
        algorithm: whose policy it is.
        config: from which the algorithm was built.

    Raises:
        SpaceError: statistics of other observations than the policy's.
        StorageError: the folder cannot be written to, or holds something else than a policy,
            which would be lost.
    """
    acting = on_raw_observations(algorithm)
    normalisation = None
    if isinstance(acting, NormalisedPolicy):
        normalisation = Normalisation.of(acting.normaliser)
    about = {
        **ALGORITHMS.tag(config),
        "kind": type(config).__name__,
        "config": to_json(config),
        "normalisation": None if normalisation is None else normalisation.to_json(),
    }
    spaces = algorithm.observation_space, algorithm.action_space
    with POLICY.saving(path, about, algorithm.policy.state_dict(), *spaces) as draft:
        if normalisation is not None:
            safetensors.numpy.save_file(dict(normalisation.statistics), draft / STATISTICS)


def load_policy(
    path: Path | str,
    *,
    device: str = "cpu",
    env: VecEnv | None = None,
    trust: Collection[str] = (),
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
        config = from_json(
            ALGORITHMS.named(saved.about, source=f"{path}", trust=trust), saved.about["config"]
        )
        require_numbers(dense(getattr(config, "hidden", ())), saved.numbers)
        normal = _normalisation(path, saved.about)
        around: VecEnv = spaces_alone(*saved.spaces) if env is None else env
        if normal is not None:
            around = normal.around(around, training=env is not None)
        with warnings.catch_warnings():
            if env is None:  # what only acts fills no rollout that is short for its batches
                warnings.filterwarnings("ignore", "You have specified a mini-batch size")
            algorithm = build_algorithm(config, around, seed=0, device=device)
        require_state(path / POLICY.weights, saved.tensors, algorithm.policy.state_dict())
        algorithm.policy.load_state_dict(saved.tensors)
    return algorithm


def spaces_alone(observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> VecEnv:
    """An environment that only says what it looks like."""
    return DummyVecEnv([lambda: _Spaces(observations, actions)])


def _normalisation(path: Path, about: Mapping[str, Any]) -> Normalisation | None:
    told = about.get("normalisation")  # older folders say nothing, and have none
    if told is None:
        return None
    return Normalisation.from_json(told, safetensors.numpy.load_file(path / STATISTICS))


class _Spaces(gymnasium.Env[Any, Any]):
    """An environment that only says what it looks like."""

    def __init__(self, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> None:
        self.observation_space = observations
        self.action_space = actions
