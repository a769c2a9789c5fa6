"""Policies that somebody saved, as actors: folders of preferl, and zip files of SB3."""

import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import stable_baselines3
from stable_baselines3.common.base_class import BaseAlgorithm

from preferl.errors import CheckpointError, ConfigError, mismatch
from preferl.online.saving import load_policy


def load_actor(path: Path | str, *, trust_pickle: bool = False, device: str = "cpu") -> Any:
    """Read a policy that only acts.

    Args:
        path: the folder that `save_policy` wrote, or a `.zip` of stable-baselines3 (PPO, A2C, SAC,
            TD3, DDPG or DQN) whose observations need no `VecNormalize`.
        trust_pickle: open a zip file, with a warning. Off, since it holds pickles, and those run
            whatever their maker wanted.
        device: where its networks go.

    Raises:
        CheckpointError: no such policy, a damaged one, or one of another algorithm.
        ConfigError: a zip file that is not said to be trusted.
    """
    path = Path(path)
    if not path.is_file():
        return load_policy(path, device=device)
    if not trust_pickle:
        raise ConfigError(
            mismatch(
                f"policy {path}",
                expected="a policy folder of a preferl run",
                got="a file, which holds pickles if it is of stable-baselines3",
                fix="If you trust its maker, say so: --trust-pickle (trust_pickle=True).",
            )
        )
    warnings.warn(
        f"Opening {path} runs what its maker put into it: stable-baselines3 saves pickles.",
        stacklevel=2,
    )
    try:
        actor: BaseAlgorithm = _algorithm(path).load(path, device=device)
    except Exception as error:  # a foreign pickle fails in whichever way it likes
        raise CheckpointError(
            mismatch(f"policy {path}", expected="a whole .zip of stable-baselines3", got=error)
        ) from error
    return actor


def _algorithm(path: Path) -> Any:
    """Which algorithm a zip is of, by the module of its policy; nothing is run for it."""
    with zipfile.ZipFile(path) as file:
        about = json.loads(file.read("data"))
    module = about["policy_class"]["__module__"]
    names = {name.lower(): name for name in ("SAC", "TD3", "DQN")}
    kind = next((part for part in module.split(".") if part in names), None)
    if kind is None and not module.startswith("stable_baselines3.common"):
        raise ValueError(f"a policy of {module}")
    name = names[kind] if kind else "PPO" if "n_epochs" in about else "A2C"
    return getattr(stable_baselines3, name)
