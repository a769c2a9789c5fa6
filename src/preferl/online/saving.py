"""Policies as folders: safetensors for the network, JSON for its settings and spaces."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import safetensors.numpy
from safetensors.torch import load_file, save_file
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from preferl.configs import from_json, to_json
from preferl.evaluation.normalised import NormalisedPolicy, on_raw_observations
from preferl.files import writing
from preferl.models.configs import dense, require_numbers
from preferl.models.spaces import space_from_json, space_to_json
from preferl.models.tensors import require_state
from preferl.online.algorithms import AlgorithmConfig, PPOConfig, SACConfig, build_algorithm
from preferl.online.normalisation import Normalisation
from preferl.reading import read_object, reading

WEIGHTS, CONFIG = "policy.safetensors", "policy.json"
STATISTICS = "normalisation.safetensors"
KINDS: dict[str, type[Any]] = {"PPOConfig": PPOConfig, "SACConfig": SACConfig}


def save_policy(path: Path | str, algorithm: BaseAlgorithm, config: AlgorithmConfig) -> None:
    """Write a policy so that it can act again; what only training needs is left out.

    Statistics of observations go with it if its environment has a `VecNormalize`.

    Args:
        path: the folder, replaced if it exists.
        algorithm: whose policy it is.
        config: from which the algorithm was built.

    Raises:
        SpaceError: statistics of other observations than the policy's.
        StorageError: the folder cannot be written to.
    """
    acting = on_raw_observations(algorithm)
    normalisation = None
    if isinstance(acting, NormalisedPolicy):
        normalisation = Normalisation.of(acting.normaliser)
    about = {
        "kind": type(config).__name__,
        "config": to_json(config),
        "observation_space": space_to_json(algorithm.observation_space),
        "action_space": space_to_json(algorithm.action_space),
        "normalisation": None if normalisation is None else normalisation.to_json(),
    }
    state = algorithm.policy.state_dict()
    with writing(Path(path)) as draft:
        draft.mkdir()
        save_file(
            {k: v.detach().cpu().contiguous().clone() for k, v in state.items()}, draft / WEIGHTS
        )
        if normalisation is not None:
            safetensors.numpy.save_file(dict(normalisation.statistics), draft / STATISTICS)
        (draft / CONFIG).write_text(json.dumps(about, indent=2), encoding="utf-8")


def load_policy(
    path: Path | str, *, device: str = "cpu", env: VecEnv | None = None
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

    Raises:
        CheckpointError: no such folder, a damaged one, or one for other spaces than `env` has.
    """
    path = Path(path)
    fix = "Name the policy folder of a preferl run, or restore it from a copy."
    with reading(
        f"policy {path}", expected=f"a folder with a whole {WEIGHTS} and {CONFIG}", fix=fix
    ):
        about = read_object(path / CONFIG)
        config = from_json(KINDS[about["kind"]], about["config"])
        spaces = [space_from_json(about[f"{of}_space"]) for of in ("observation", "action")]
        tensors = load_file(path / WEIGHTS)
        there = sum(tensor.numel() for tensor in tensors.values())
        require_numbers(dense(config.hidden), there)
        normal = _normalisation(path, about)
        around: VecEnv = spaces_alone(*spaces) if env is None else env
        if normal is not None:
            around = normal.around(around, training=env is not None)
        with warnings.catch_warnings():
            if env is None:  # what only acts fills no rollout that is short for its batches
                warnings.filterwarnings("ignore", "You have specified a mini-batch size")
            algorithm = build_algorithm(config, around, seed=0, device=device)
        require_state(path / WEIGHTS, tensors, algorithm.policy.state_dict())
        algorithm.policy.load_state_dict(tensors)
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
