"""Reward models: windows of steps to rewards per step and scores per segment (torch).

Names are imported at their first use, so reading settings loads no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.models.base import (
        ConfiguredReward as ConfiguredReward,
        RewardModel as RewardModel,
        RewardOutput as RewardOutput,
    )
    from preferl.models.build import (
        build_reward_model as build_reward_model,
        load_reward_model as load_reward_model,
        save_reward_model as save_reward_model,
    )
    from preferl.models.cnn import CNNReward as CNNReward
    from preferl.models.configs import (
        CNNRewardConfig as CNNRewardConfig,
        EnsembleConfig as EnsembleConfig,
        LSTMRewardConfig as LSTMRewardConfig,
        MLPRewardConfig as MLPRewardConfig,
        PreferenceTransformerConfig as PreferenceTransformerConfig,
        RewardModelConfig as RewardModelConfig,
    )
    from preferl.models.encoders import VectorEncoder as VectorEncoder
    from preferl.models.ensemble import Ensemble as Ensemble
    from preferl.models.flax import load_flax as load_flax
    from preferl.models.frozen_encoder import (
        FrozenEncoder as FrozenEncoder,
        encoded_episodes as encoded_episodes,
        frame_features as frame_features,
    )
    from preferl.models.lstm import LSTMReward as LSTMReward
    from preferl.models.mlp import MLPReward as MLPReward
    from preferl.models.spaces import check_spaces as check_spaces, infer_spaces as infer_spaces
    from preferl.models.transformer import (
        Attention as Attention,
        PreferenceTransformer as PreferenceTransformer,
    )
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
