"""Config to model: the one registry, which checkpoints need."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gymnasium import spaces

from preferl.errors import ConfigError
from preferl.models.base import RewardModel
from preferl.models.cnn import CNNReward, CNNRewardConfig
from preferl.models.ensemble import Ensemble
from preferl.models.lstm import LSTMReward, LSTMRewardConfig
from preferl.models.mlp import MLPReward, MLPRewardConfig
from preferl.models.transformer import PreferenceTransformer, PreferenceTransformerConfig


@dataclass(frozen=True)
class EnsembleConfig:
    """Shape of an `Ensemble`.

    Attributes:
        models: configs of its members.
    """

    models: tuple["RewardModelConfig", ...]


RewardModelConfig = (
    MLPRewardConfig
    | CNNRewardConfig
    | LSTMRewardConfig
    | PreferenceTransformerConfig
    | EnsembleConfig
)

KINDS: dict[str, type[Any]] = {
    "mlp": MLPRewardConfig,
    "cnn": CNNRewardConfig,
    "lstm": LSTMRewardConfig,
    "transformer": PreferenceTransformerConfig,
    "ensemble": EnsembleConfig,
}
"""Names of configs in files and on the command line."""


def build_reward_model(
    config: RewardModelConfig,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    seed: int,
) -> RewardModel:
    """Build the model that a config describes.

    Args:
        config: of a known kind.
        observation_space: what observations look like.
        action_space: what actions look like.
        seed: of the initial weights; members of an ensemble use the following numbers.

    Raises:
        ConfigError: a config of an unknown kind.
        SpaceError: a space that has no encoding.
    """
    builders: dict[type[Any], Callable[[Any], RewardModel]] = {
        MLPRewardConfig: lambda c: MLPReward(observation_space, action_space, c, seed=seed),
        CNNRewardConfig: lambda c: CNNReward(observation_space, action_space, c, seed=seed),
        LSTMRewardConfig: lambda c: LSTMReward(observation_space, action_space, c, seed=seed),
        PreferenceTransformerConfig: lambda c: PreferenceTransformer(
            observation_space, action_space, c, seed=seed
        ),
        EnsembleConfig: lambda c: Ensemble(
            [
                build_reward_model(part, observation_space, action_space, seed=seed + index)
                for index, part in enumerate(c.models)
            ]
        ),
    }
    if type(config) not in builders:
        raise ConfigError.mismatch("reward model config", expected=list(KINDS), got=config)
    return builders[type(config)](config)


def members_of(config: RewardModelConfig) -> int:
    """`E` of the model that a config describes.

    >>> members_of(EnsembleConfig((MLPRewardConfig(members=3), LSTMRewardConfig())))
    4
    """
    if isinstance(config, EnsembleConfig):
        return sum(members_of(part) for part in config.models)
    return config.members if isinstance(config, MLPRewardConfig | CNNRewardConfig) else 1


def config_of(model: RewardModel) -> RewardModelConfig:
    """The config from which `build_reward_model` makes a model of the same shape.

    Raises:
        ConfigError: a model of one's own class, which has none.
    """
    if isinstance(model, MLPReward):
        return replace(model.config, members=model.members)
    if isinstance(model, CNNReward | LSTMReward | PreferenceTransformer):
        return model.config
    if isinstance(model, Ensemble):
        return EnsembleConfig(tuple(config_of(part) for part in model.models))
    raise ConfigError.mismatch(
        "reward model",
        expected="a model of this library",
        got=type(model).__name__,
        fix="Save its state_dict with safetensors yourself.",
    )
