"""Reward models as folders, in the form of `preferl.models.folder`."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from preferl.configs import from_json, to_json
from preferl.models.base import RewardModel
from preferl.models.build import build_reward_model, config_of
from preferl.models.configs import EnsembleConfig, RewardModelConfig, least_numbers
from preferl.models.folder import REWARD_MODEL, require_numbers, require_state
from preferl.reading import reading
from preferl.registry import REWARD_MODELS


def save_reward_model(path: Path | str, model: RewardModel) -> None:
    """Write a model with its input statistics as a folder, all or nothing.

    Args:
        path: the folder, replaced if it exists.
        model: of a kind that `preferl.registry.REWARD_MODELS` has.

    Raises:
        ConfigError: a model of one's own class that nothing registers.
        StorageError: the folder cannot be written to, or holds something else than a model,
            which would be lost.
    """
    with saving_reward_model(path, model):
        pass


@contextmanager
def saving_reward_model(path: Path | str, model: RewardModel) -> Iterator[Path]:
    """The same; the block may put more files into the folder's draft."""
    about = {"model": _config_to_json(config_of(model))}
    spaces = model.observation_space, model.action_space
    with REWARD_MODEL.saving(path, about, _own_state(model), *spaces) as draft:
        yield draft


def load_reward_model(
    path: Path | str, *, device: str = "cpu", trust: Collection[str] = ()
) -> RewardModel:
    """Read a model; every number is the one that was saved.

    Args:
        path: the folder that `save_reward_model` wrote.
        device: where the model goes.
        trust: modules that may be imported where the model is of a class of your own; one that
            is imported already need not be named (see `preferl.trust`).

    Raises:
        CheckpointError: no such folder, a damaged or cut-off file, one of another format, or a
            model of a class that is not known here, or whose module nobody trusts.
    """
    path = Path(path)
    saved = REWARD_MODEL.load(path)
    file = path / REWARD_MODEL.config
    with reading(file, expected="the shape of a known model"):
        config = _config_from_json(saved.about["model"], str(file), trust)
        require_numbers(least_numbers(config, *saved.spaces), saved.numbers)
        model = build_reward_model(config, *saved.spaces, seed=0)
    require_state(path / REWARD_MODEL.weights, saved.tensors, _own_state(model))
    model.load_state_dict(saved.tensors, strict=False)
    return model.to(device).eval()


def _own_state(model: RewardModel) -> dict[str, torch.Tensor]:
    """The state without the second names of an encoder that members share."""
    seen: dict[int, str] = {}
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if seen.setdefault(tensor.data_ptr() if tensor.numel() else hash(name), name) == name
    }


def _config_to_json(config: RewardModelConfig) -> dict[str, Any]:
    if isinstance(config, EnsembleConfig):
        return {"kind": "ensemble", "models": [_config_to_json(part) for part in config.models]}
    return REWARD_MODELS.tag(config) | to_json(config)


def _config_from_json(
    data: Mapping[str, Any], source: str, trust: Collection[str]
) -> RewardModelConfig:
    if data["kind"] == "ensemble":
        parts = (_config_from_json(part, source, trust) for part in data["models"])
        return EnsembleConfig(tuple(parts))
    kind = REWARD_MODELS.named(data, source=source, trust=trust)
    fields = {key: value for key, value in data.items() if key not in ("kind", "module")}
    config: RewardModelConfig = from_json(kind, fields)
    return config
