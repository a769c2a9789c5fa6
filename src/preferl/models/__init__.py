"""Reward models: windows of steps to rewards per step and scores per segment (torch).

Names are imported when they are first used, so that settings load no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.models.base import (
        ConfiguredReward,
        EncodesLate,
        RewardModel,
        RewardOutput,
        TracesEpisodes,
    )
    from preferl.models.build import build_reward_model, load_reward_model, save_reward_model
    from preferl.models.cnn import CNNReward
    from preferl.models.configs import (
        CNNRewardConfig,
        EnsembleConfig,
        LSTMRewardConfig,
        MLPRewardConfig,
        PreferenceTransformerConfig,
        RewardModelConfig,
    )
    from preferl.models.encoders import VectorEncoder
    from preferl.models.ensemble import Ensemble
    from preferl.models.flax import load_flax
    from preferl.models.lstm import LSTMReward
    from preferl.models.mlp import MLPReward
    from preferl.models.spaces import check_spaces, infer_spaces
    from preferl.models.transformer import Attention, PreferenceTransformer

__all__ = [
    "Attention",
    "CNNReward",
    "CNNRewardConfig",
    "ConfiguredReward",
    "EncodesLate",
    "Ensemble",
    "EnsembleConfig",
    "LSTMReward",
    "LSTMRewardConfig",
    "MLPReward",
    "MLPRewardConfig",
    "PreferenceTransformer",
    "PreferenceTransformerConfig",
    "RewardModel",
    "RewardModelConfig",
    "RewardOutput",
    "TracesEpisodes",
    "VectorEncoder",
    "build_reward_model",
    "check_spaces",
    "infer_spaces",
    "load_flax",
    "load_reward_model",
    "save_reward_model",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "base": "ConfiguredReward EncodesLate RewardModel RewardOutput TracesEpisodes",
        "build": "build_reward_model load_reward_model save_reward_model",
        "cnn": "CNNReward",
        "configs": (
            "CNNRewardConfig EnsembleConfig LSTMRewardConfig MLPRewardConfig "
            "PreferenceTransformerConfig RewardModelConfig"
        ),
        "encoders": "VectorEncoder",
        "ensemble": "Ensemble",
        "flax": "load_flax",
        "lstm": "LSTMReward",
        "mlp": "MLPReward",
        "spaces": "check_spaces infer_spaces",
        "transformer": "Attention PreferenceTransformer",
    },
)
