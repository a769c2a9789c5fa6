"""Reward functions as folders: the model's files and how its members become one reward."""

import json
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from preferl.errors import ConfigError
from preferl.feedback.likelihood import Likelihood
from preferl.functional.combine import Combine, lower_bound, mean
from preferl.models.build import load_reward_model, saving_reward_model
from preferl.reading import read_object, reading
from preferl.training.reward_function import RewardFunction
from preferl.training.scaling import RewardScaler

REWARD = "reward.json"


def save_reward(path: Path | str, reward: RewardFunction) -> None:
    """Write a reward with its scale as a folder, all or nothing.

    Args:
        path: the folder, replaced if it exists.
        reward: combined by `mean` or `lower_bound`.

    Raises:
        ConfigError: a way of combining members that has no name, or a model of one's own class.
        StorageError: the folder cannot be written to, or holds something else than a model,
            which would be lost.
    """
    about = {
        "combine": _combine_to_json(reward.how),
        "scaler": _scaler_to_json(reward.scaler),
        "likelihood": reward.likelihood.to_json(),
    }
    with saving_reward_model(path, reward.model) as draft:
        (draft / REWARD).write_text(json.dumps(about, indent=2), encoding="utf-8")


def load_reward(
    path: Path | str, *, device: str = "cpu", trust: Collection[str] = ()
) -> RewardFunction:
    """Read a reward that pays exactly what it paid when it was saved.

    Args:
        path: the folder that `save_reward` wrote.
        device: where the model goes.
        trust: modules that may be imported, as for `load_reward_model`.

    Raises:
        CheckpointError: no such folder, a damaged one, or a model of a class that is not known.
    """
    path = Path(path)
    model = load_reward_model(path, device=device, trust=trust)
    expected = "how a reward's members are scaled and combined"
    fix = "Restore the folder as a whole; a model alone loads with load_reward_model."
    with reading(path / REWARD, expected=expected, fix=fix):
        about = read_object(path / REWARD)
        combine = _combine_from_json(about["combine"])
        return RewardFunction(
            model,
            combine=combine,
            scaler=_scaler_from_json(about["scaler"]),
            # Folders from before likelihoods were saved do not say with which they were fitted.
            likelihood=Likelihood(**about.get("likelihood", {})),
        )


def _combine_to_json(combine: Combine) -> dict[str, Any]:
    if combine is mean:
        return {"kind": "mean"}
    if isinstance(combine, partial) and combine.func is lower_bound().func:
        return {"kind": "lower_bound", **combine.keywords}
    raise ConfigError.mismatch(
        "combine",
        expected="mean or lower_bound(k)",
        got=combine,
        fix="Save the model with save_reward_model and combine its members in code.",
    )


def _combine_from_json(data: dict[str, Any]) -> Combine:
    match data["kind"]:
        case "mean":
            return mean
        case "lower_bound":
            deviations = float(data["deviations"])
            if not np.isfinite(deviations):
                raise ConfigError.mismatch("deviations", expected="a finite number", got=deviations)
            return lower_bound(deviations)
    raise ConfigError.mismatch("combine", expected="mean or lower_bound", got=data["kind"])


def _scaler_to_json(scaler: RewardScaler | None) -> dict[str, Any] | None:
    if scaler is None:
        return None
    return {
        "mean": scaler.mean.tolist(),
        "deviation": scaler.deviation.tolist(),
        "target": scaler.target,
    }


def _scaler_from_json(data: dict[str, Any] | None) -> RewardScaler | None:
    if data is None:
        return None
    return RewardScaler(np.array(data["mean"]), np.array(data["deviation"]), data["target"])
