"""Policies that somebody saved, as actors: folders of preferl, and zip files of SB3."""

import warnings
import zipfile
from pathlib import Path
from typing import Any, Final

import stable_baselines3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from preferl.errors import CheckpointError, ConfigError, DataError
from preferl.evaluation.policies import NormalisedPolicy, Policy, on_raw_observations
from preferl.online.saving import load_policy, read_vecnormalize, spaces_alone
from preferl.reading import parse_json

BESIDE: Final = ("vecnormalize.pkl", "vec_normalize.pkl")
"""What statistics beside a zip file are called by RL Zoo and by most others."""


def load_actor(
    path: Path | str,
    *,
    trust_pickle: bool = False,
    vecnormalize: Path | str | None = None,
    device: str = "cpu",
) -> Policy:
    """Read a policy that only acts, on observations as the environment gives them.

    Args:
        path: the folder that `save_policy` wrote, or a `.zip` of stable-baselines3 (PPO, A2C, SAC,
            TD3, DDPG or DQN).
        trust_pickle: open a zip file, with a warning. Off, since it holds pickles, and those run
            whatever their maker wanted.
        vecnormalize: for a zip file, what `VecNormalize.save` wrote: its statistics of
            observations, which are read without running anything. None takes a `vecnormalize.pkl`
            or `vec_normalize.pkl` in the same folder, if there is one.
        device: where its networks go.

    Raises:
        CheckpointError: no such policy, a damaged one, one of another algorithm, or one whose
            statistics are missing, damaged or of other observations.
        ConfigError: a zip file that is not said to be trusted, or statistics for a folder.
    """
    path = Path(path)
    if not path.is_file():
        if vecnormalize is not None:
            raise ConfigError.mismatch(
                "vecnormalize",
                expected="a .zip that it belongs to",
                got=f"{path}, which has statistics of its own if it needs them",
            )
        return on_raw_observations(load_policy(path, device=device))
    if not trust_pickle:
        raise ConfigError.mismatch(
            f"policy {path}",
            expected="a policy folder of a preferl run",
            got="a file, which holds pickles if it is of stable-baselines3",
            fix="If you trust its maker, say so: --trust-pickle (trust_pickle=True).",
        )
    warnings.warn(
        f"Opening {path} runs what its maker put into it: stable-baselines3 saves pickles.",
        stacklevel=2,
    )
    try:
        actor: BaseAlgorithm = _algorithm(path).load(path, device=device)
    except Exception as error:  # a foreign pickle fails in whichever way it likes
        raise CheckpointError.mismatch(
            f"policy {path}", expected="a whole .zip of stable-baselines3", got=error
        ) from error
    return _normalised(path, actor, vecnormalize)


def _normalised(path: Path, actor: BaseAlgorithm, statistics: Path | str | None) -> Policy:
    """The same on raw observations, by the statistics that were named or lie beside it."""
    beside = (path.with_name(name) for name in BESIDE)
    named = None if statistics is None else Path(statistics)
    file = named or next((file for file in beside if file.is_file()), None)
    if file is None:
        # SB3 keeps what was seen before it was normalised, if that was done, for these alone.
        if isinstance(actor, OnPolicyAlgorithm) and actor._last_original_obs is not None:
            raise CheckpointError.mismatch(
                f"statistics of observations for {path}",
                expected=f"a file {BESIDE[0]}, since it learned in a VecNormalize",
                got="none beside it",
                fix="Name what VecNormalize.save wrote: --vecnormalize (vecnormalize=).",
            )
        return actor
    try:
        normalisation = read_vecnormalize(file)
        if normalisation is None:
            return actor
        env = spaces_alone(actor.observation_space, actor.action_space)
        return NormalisedPolicy(actor, normalisation.around(env))
    except (DataError, ValueError, LookupError) as error:
        raise CheckpointError.mismatch(
            f"statistics {file}",
            expected=f"those of the observations of {path}",
            got=error,
            fix="Name another file with --vecnormalize (vecnormalize=).",
        ) from error


def _algorithm(path: Path) -> Any:
    """Which algorithm a zip is of, by the module of its policy; nothing is run for it."""
    with zipfile.ZipFile(path) as file:
        about = parse_json(file.read("data"))
    module = about["policy_class"]["__module__"]
    names = {name.lower(): name for name in ("SAC", "TD3", "DQN")}
    kind = next((part for part in module.split(".") if part in names), None)
    if kind is None and not module.startswith("stable_baselines3.common"):
        raise ValueError(f"a policy of {module}")
    name = names[kind] if kind else "PPO" if "n_epochs" in about else "A2C"
    return getattr(stable_baselines3, name)
