"""Reward models: windows of steps to rewards per step and scores per segment (torch).

Names are imported when they are first used, so that settings load no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.models.base import ConfiguredReward as ConfiguredReward
    from preferl.models.base import RewardModel as RewardModel
    from preferl.models.base import RewardOutput as RewardOutput
    from preferl.models.build import build_reward_model as build_reward_model
    from preferl.models.build import load_reward_model as load_reward_model
    from preferl.models.build import save_reward_model as save_reward_model
    from preferl.models.cnn import CNNReward as CNNReward
    from preferl.models.configs import CNNRewardConfig as CNNRewardConfig
    from preferl.models.configs import EnsembleConfig as EnsembleConfig
    from preferl.models.configs import LSTMRewardConfig as LSTMRewardConfig
    from preferl.models.configs import MLPRewardConfig as MLPRewardConfig
    from preferl.models.configs import PreferenceTransformerConfig as PreferenceTransformerConfig
    from preferl.models.configs import RewardModelConfig as RewardModelConfig
    from preferl.models.encoders import VectorEncoder as VectorEncoder
    from preferl.models.ensemble import Ensemble as Ensemble
    from preferl.models.flax import load_flax as load_flax
    from preferl.models.lstm import LSTMReward as LSTMReward
    from preferl.models.mlp import MLPReward as MLPReward
    from preferl.models.spaces import check_spaces as check_spaces
    from preferl.models.spaces import infer_spaces as infer_spaces
    from preferl.models.transformer import Attention as Attention
    from preferl.models.transformer import PreferenceTransformer as PreferenceTransformer
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
