"""Build reward models from configs, save and load them, with the table of all models."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from preferl.configs import from_json, to_json
from preferl.errors import ConfigError, ModelError
from preferl.models.base import RewardModel
from preferl.models.configs import EnsembleConfig, RewardModelConfig, least_numbers
from preferl.models.ensemble import Ensemble
from preferl.models.folder import REWARD_MODEL, require_numbers, require_state
from preferl.models.spaces import Space
from preferl.reading import reading
from preferl.registry import REWARD_MODELS


def build_reward_model(
    config: RewardModelConfig, observation_space: Space, action_space: Space, *, seed: int
) -> RewardModel:
    """Build the model that a config describes.

    Members of an ensemble take their weights from `seed` and the numbers after it.

    Raises:
        ConfigError: the config's class is not in `preferl.registry.REWARD_MODELS`.
        ModelError: the class that is registered for the config is not a reward model.
        SpaceError: a space has no encoding.
    """
    make = REWARD_MODELS.load(REWARD_MODELS.name_of(config))
    model = make(observation_space, action_space, config, seed=seed)
    if not isinstance(model, RewardModel):
        raise ModelError(f"{make}: expected a RewardModel, got {type(model).__name__}.")
    return model


def build_ensemble(
    observation_space: Space, action_space: Space, config: EnsembleConfig, *, seed: int
) -> Ensemble:
    """Build each model of an ensemble and join them."""
    spaces = observation_space, action_space
    numbered = enumerate(config.models, seed)
    return Ensemble([build_reward_model(part, *spaces, seed=number) for number, part in numbered])


def config_of(model: RewardModel) -> RewardModelConfig:
    """Return the config from which `build_reward_model` makes a model of the same shape.

    If the model's class is not registered, `ConfigError` is raised.
    """
    config: RewardModelConfig = model.config
    if not _is_known(config):
        raise ConfigError(
            "reward model: expected a model whose `config` is in preferl.registry.REWARD_MODELS, "
            f"got {type(model).__name__}. Register its class and its config, or save its "
            "state_dict with safetensors."
        )
    return config


def save_reward_model(
    path: Path | str, model: RewardModel, *, extra_files: Mapping[str, bytes] | None = None
) -> None:
    """Write a model with its input statistics as a folder, all or nothing; replace an earlier one.

    `extra_files` maps names of further files to their contents.

    Raises:
        ConfigError: the model's class is not in `preferl.registry.REWARD_MODELS`.
        StorageError: the folder cannot be written to, or holds files other than a model's, which
            writing would delete.
    """
    description = {"model": config_to_json(config_of(model))}
    spaces = model.observation_space, model.action_space
    with REWARD_MODEL.saving(path, description, _own_state(model), *spaces) as draft:
        for name, content in (extra_files or {}).items():
            (draft / name).write_bytes(content)


def load_reward_model(
    path: Path | str, *, device: str = "cpu", trust: Collection[str] = ()
) -> RewardModel:
    """Read a model with exactly the numbers that were saved.

    Args:
        path: the folder that `save_reward_model` wrote.
        device: device of the model.
        trust: modules that may be imported if the model's class is your own. Modules that are
            already imported need not be named (see `preferl.trust`).

    Raises:
        CheckpointError: the folder is missing; a file is damaged, cut off or of another format; or
            the model's class is unknown or its module not trusted.
    """
    path = Path(path)
    saved = REWARD_MODEL.load(path)
    file = path / REWARD_MODEL.config
    with reading(file, expected="the shape of a known model"):
        config = config_from_json(saved.description["model"], str(file), trust)
        require_numbers(least_numbers(config, *saved.spaces), saved.numbers)
        model = build_reward_model(config, *saved.spaces, seed=0)
    require_state(path / REWARD_MODEL.weights, saved.tensors, _own_state(model))
    model.load_state_dict(saved.tensors, strict=False)
    return model.to(device).eval()


def _own_state(model: RewardModel) -> dict[str, Tensor]:
    """Return a model's state; an encoder that members share is in it only once."""
    first_names: dict[int, str] = {}
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if first_names.setdefault(tensor.data_ptr() if tensor.numel() else hash(name), name) == name
    }


def _is_known(config: object) -> bool:
    parts = config.models if isinstance(config, EnsembleConfig) else ()
    return REWARD_MODELS.has_config(type(config)) and all(map(_is_known, parts))


def config_to_json(config: RewardModelConfig) -> dict[str, Any]:
    """Return a model's config as JSON, with the name of its class; `config_from_json` reads it."""
    if isinstance(config, EnsembleConfig):
        return {"kind": "ensemble", "models": [config_to_json(part) for part in config.models]}
    return REWARD_MODELS.tag(config) | to_json(config)


def config_from_json(
    data: Mapping[str, Any], source: str, trust: Collection[str]
) -> RewardModelConfig:
    """Read the config of a model. Errors name `source`; `trust` lists importable modules."""
    if data["kind"] == "ensemble":
        parts = (config_from_json(part, source, trust) for part in data["models"])
        return EnsembleConfig(tuple(parts))
    kind = REWARD_MODELS.named(data, source=source, trust=trust)
    fields = {key: value for key, value in data.items() if key not in ("kind", "module")}
    return from_json(kind, fields)  # type: ignore[no-any-return]
