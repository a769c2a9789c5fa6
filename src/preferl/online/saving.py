"""Policies as folders: safetensors for the network, JSON for its settings and spaces."""

import json
from pathlib import Path
from typing import Any

import gymnasium
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv

from preferl.configs import from_json, to_json
from preferl.errors import CheckpointError, mismatch
from preferl.files import writing
from preferl.models.checkpoint import space_from_json, space_to_json
from preferl.online.algorithms import AlgorithmConfig, PPOConfig, SACConfig, build_algorithm

WEIGHTS, CONFIG = "policy.safetensors", "policy.json"
KINDS: dict[str, type[Any]] = {"PPOConfig": PPOConfig, "SACConfig": SACConfig}


def save_policy(path: Path | str, algorithm: BaseAlgorithm, config: AlgorithmConfig) -> None:
    """Write a policy so that it can act again; what only training needs is left out.

    Args:
        path: the folder, replaced if it exists.
        algorithm: whose policy it is.
        config: from which the algorithm was built.

    Raises:
        StorageError: the folder cannot be written to.
    """
    about = {
        "kind": type(config).__name__,
        "config": to_json(config),
        "observation_space": space_to_json(algorithm.observation_space),
        "action_space": space_to_json(algorithm.action_space),
    }
    state = algorithm.policy.state_dict()
    with writing(Path(path)) as draft:
        draft.mkdir()
        save_file(
            {k: v.detach().cpu().contiguous().clone() for k, v in state.items()}, draft / WEIGHTS
        )
        (draft / CONFIG).write_text(json.dumps(about, indent=2), encoding="utf-8")


def load_policy(path: Path | str, *, device: str = "cpu") -> BaseAlgorithm:
    """Read a policy; it acts through `predict`, and `set_env` lets it learn on.

    Args:
        path: the folder that `save_policy` wrote.
        device: where its network goes.

    Raises:
        CheckpointError: no such folder, or a damaged one.
    """
    path = Path(path)
    try:
        about = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        config = from_json(KINDS[about["kind"]], about["config"])
        spaces = (space_from_json(about[f"{of}_space"]) for of in ("observation", "action"))
        env = DummyVecEnv([lambda: _Spaces(*spaces)])
        algorithm = build_algorithm(config, env, seed=0, device=device)
        algorithm.policy.load_state_dict(load_file(path / WEIGHTS))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            mismatch(
                f"policy {path}",
                expected=f"a folder with a whole {WEIGHTS} and {CONFIG}",
                got=error,
                fix="Name the policy folder of a preferl run, or restore it from a copy.",
            )
        ) from error
    return algorithm


class _Spaces(gymnasium.Env[Any, Any]):
    """An environment that only says what it looks like."""

    def __init__(self, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> None:
        self.observation_space = observations
        self.action_space = actions
