"""From comparisons to a usable reward (torch)."""

from preferl.training.fit_checkpoints import FitCheckpoints
from preferl.training.fit_report import FitReport
from preferl.training.learning_rate import CosineSchedule
from preferl.training.publish import PublishedReward, Publisher
from preferl.training.regularisation import AdaptivePenalty
from preferl.training.relabel import relabel
from preferl.training.return_range import scale_by_return_range
from preferl.training.reward_function import RewardFunction
from preferl.training.reward_presets import RewardPreset, RewardSettings, reward_preset
from preferl.training.reward_trainer import RewardTrainer, RewardTrainerConfig
from preferl.training.saving import load_reward, save_reward
from preferl.training.scaling import RewardScaler

__all__ = [
    "AdaptivePenalty",
    "CosineSchedule",
    "FitCheckpoints",
    "FitReport",
    "PublishedReward",
    "Publisher",
    "RewardFunction",
    "RewardPreset",
    "RewardScaler",
    "RewardSettings",
    "RewardTrainer",
    "RewardTrainerConfig",
    "load_reward",
    "relabel",
    "reward_preset",
    "save_reward",
    "scale_by_return_range",
]
