"""Reward models as folders: safetensors for numbers, JSON for shape, spaces and version."""

import json
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from preferl.configs import from_json, to_json
from preferl.errors import CheckpointError, StorageError
from preferl.files import writing
from preferl.models.base import RewardModel
from preferl.models.build import build_reward_model, config_of
from preferl.models.configs import EnsembleConfig, RewardModelConfig, least_numbers, require_numbers
from preferl.models.spaces import space_from_json, space_to_json
from preferl.models.tensors import require_state
from preferl.reading import read_json, reading
from preferl.registry import REWARD_MODELS

FORMAT = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"


def save_reward_model(path: Path | str, model: RewardModel) -> None:
    """Write a model with its input statistics as a folder, all or nothing.

    Args:
        path: the folder, replaced if it exists.
        model: of a kind that `preferl.registry.REWARD_MODELS` has.

    Raises:
        ConfigError: a model of one's own class.
        StorageError: the folder cannot be written to, or holds something else than a model,
            which would be lost.
    """
    require_replaceable(Path(path))
    with writing(Path(path)) as draft:
        write_reward_model(draft, model)


def require_replaceable(path: Path) -> None:
    """Raise `StorageError` if saving a model at `path` would lose what is no model."""
    if path.is_dir() and any(path.iterdir()) and not (path / WEIGHTS).is_file():
        raise StorageError.mismatch(
            f"{path}",
            expected="a new or empty folder, or one that holds a reward model",
            got="a folder that holds something else",
            fix="Choose another name: what is there would be replaced.",
        )


def write_reward_model(folder: Path, model: RewardModel) -> None:
    """The same into a new folder, for what is saved together with a model."""
    about = {
        "format": FORMAT,
        "preferl": version("preferl"),
        "model": _config_to_json(config_of(model)),
        "observation_space": space_to_json(model.observation_space),
        "action_space": space_to_json(model.action_space),
    }
    tensors = {name: t.detach().cpu().contiguous() for name, t in _own_state(model).items()}
    folder.mkdir()
    save_file(tensors, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(about, indent=2), encoding="utf-8")


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
    expected = f"a folder with a whole {WEIGHTS} and {CONFIG}"
    fix = "Name the folder that a preferl run wrote, or restore it from a copy."
    with reading(f"reward model {path}", expected=expected, fix=fix):
        about = read_json(path / CONFIG)
        tensors = load_file(path / WEIGHTS)
    about = about if isinstance(about, dict) else {}
    if about.get("format") != FORMAT:
        raise CheckpointError.mismatch(
            f"format of {path}",
            expected=FORMAT,
            got=about.get("format"),
            fix=f"It was written by preferl {about.get('preferl', 'of an unknown version')}.",
        )
    model = _rebuild(path, about, sum(tensor.numel() for tensor in tensors.values()), trust)
    require_state(path / WEIGHTS, tensors, _own_state(model))
    model.load_state_dict(tensors, strict=False)
    return model.to(device).eval()


def _rebuild(
    path: Path, about: dict[str, Any], numbers: int, trust: Collection[str]
) -> RewardModel:
    """The model of a config, if `numbers` are enough for it."""
    with reading(path / CONFIG, expected="the shape of a known model"):
        config = _config_from_json(about["model"], str(path / CONFIG), trust)
        spaces_ = [space_from_json(about[f"{of}_space"]) for of in ("observation", "action")]
        require_numbers(least_numbers(config, *spaces_), numbers)
        return build_reward_model(config, *spaces_, seed=0)


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
        return EnsembleConfig(
            tuple(_config_from_json(part, source, trust) for part in data["models"])
        )
    config = REWARD_MODELS.named(data, source=source, trust=trust)
    fields = {key: value for key, value in data.items() if key not in ("kind", "module")}
    built: RewardModelConfig = from_json(config, fields)
    return built
