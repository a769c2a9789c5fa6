"""Reward models: windows of steps to rewards per step and scores per segment (torch)."""

from preferl.models.base import EncodesLate, RewardModel, RewardOutput, TracesEpisodes
from preferl.models.build import EnsembleConfig, RewardModelConfig, build_reward_model
from preferl.models.checkpoint import load_reward_model, save_reward_model
from preferl.models.cnn import CNNReward, CNNRewardConfig
from preferl.models.encoders import VectorEncoder, check_spaces, infer_spaces
from preferl.models.ensemble import Ensemble
from preferl.models.flax import load_flax
from preferl.models.lstm import LSTMReward, LSTMRewardConfig
from preferl.models.mlp import MLPReward, MLPRewardConfig
from preferl.models.transformer import (
    Attention,
    PreferenceTransformer,
    PreferenceTransformerConfig,
)

__all__ = [
    "Attention",
    "CNNReward",
    "CNNRewardConfig",
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
