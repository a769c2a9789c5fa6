"""From comparisons to a usable reward (torch).

Names are imported when they are first used, so that settings load no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.training.configs import AdaptivePenalty, CosineSchedule, RewardTrainerConfig
    from preferl.training.fit import FitCheckpoints, FitReport
    from preferl.training.publish import PublishedReward, Publisher
    from preferl.training.reward_function import RewardFunction, load_reward, relabel, save_reward
    from preferl.training.reward_presets import RewardPreset, RewardSettings, reward_preset
    from preferl.training.reward_trainer import RewardTrainer
    from preferl.training.scaling import RewardScaler, scale_by_return_range

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

__getattr__, __dir__ = lazily(
    __name__,
    {
        "configs": "AdaptivePenalty CosineSchedule RewardTrainerConfig",
        "fit": "FitCheckpoints FitReport",
        "publish": "PublishedReward Publisher",
        "reward_function": "RewardFunction load_reward relabel save_reward",
        "reward_presets": "RewardPreset RewardSettings reward_preset",
        "reward_trainer": "RewardTrainer",
        "scaling": "RewardScaler scale_by_return_range",
    },
)
