"""From comparisons to a usable reward (torch).

Names are imported when they are first used, so that settings load no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.training.configs import AdaptivePenalty, RewardTrainerConfig
    from preferl.training.fit import FitCheckpoints
    from preferl.training.fit_report import FitReport
    from preferl.training.learning_rate import CosineSchedule
    from preferl.training.publish import PublishedReward, Publisher
    from preferl.training.return_range import scale_by_return_range
    from preferl.training.reward_function import RewardFunction, relabel
    from preferl.training.reward_presets import RewardPreset, RewardSettings, reward_preset
    from preferl.training.reward_trainer import RewardTrainer
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

__getattr__, __dir__ = lazily(
    __name__,
    {
        "configs": "AdaptivePenalty RewardTrainerConfig",
        "fit": "FitCheckpoints",
        "fit_report": "FitReport",
        "learning_rate": "CosineSchedule",
        "publish": "PublishedReward Publisher",
        "return_range": "scale_by_return_range",
        "reward_function": "RewardFunction relabel",
        "reward_presets": "RewardPreset RewardSettings reward_preset",
        "reward_trainer": "RewardTrainer",
        "saving": "load_reward save_reward",
        "scaling": "RewardScaler",
    },
)
