"""Configs to reward models and back, by the table of all kinds."""

from typing import Any

from gymnasium import spaces

from preferl.errors import ConfigError, ModelError
from preferl.models.base import RewardModel
from preferl.models.configs import EnsembleConfig, RewardModelConfig
from preferl.models.ensemble import Ensemble
from preferl.registry import REWARD_MODELS


def build_reward_model(
    config: RewardModelConfig,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    seed: int,
) -> RewardModel:
    """Build the model that a config describes.

    Args:
        config: of a kind that `preferl.registry.REWARD_MODELS` has.
        observation_space: what observations look like.
        action_space: what actions look like.
        seed: of the initial weights; members of an ensemble use the following numbers.

    Raises:
        ConfigError: a config of an unknown kind.
        ModelError: what is registered for the config makes no reward model.
        SpaceError: a space that has no encoding.
    """
    make = REWARD_MODELS.load(REWARD_MODELS.name_of(config))
    model = make(observation_space, action_space, config, seed=seed)
    if not isinstance(model, RewardModel):
        got = type(model).__name__
        raise ModelError.mismatch(f"{make}", expected="a RewardModel", got=got)
    return model


def build_ensemble(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    config: EnsembleConfig,
    *,
    seed: int,
) -> Ensemble:
    """Build each model of an ensemble and join them."""
    return Ensemble(
        [
            build_reward_model(part, observation_space, action_space, seed=seed + index)
            for index, part in enumerate(config.models)
        ]
    )


def config_of(model: RewardModel) -> RewardModelConfig:
    """The config from which `build_reward_model` makes a model of the same shape.

    Raises:
        ConfigError: a model of one's own class, which nothing registers.
    """
    config: RewardModelConfig = model.config
    if not _is_known(config):
        raise ConfigError.mismatch(
            "reward model",
            expected="one whose `config` preferl.registry.REWARD_MODELS has",
            got=type(model).__name__,
            fix="Register its class and its config, or save its state_dict with safetensors.",
        )
    return config


def _is_known(config: object) -> bool:
    parts = config.models if isinstance(config, EnsembleConfig) else ()
    return REWARD_MODELS.has_config(type(config)) and all(map(_is_known, parts))
