"""From comparisons to a usable reward (torch).

Names are imported at their first use, so reading settings loads no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.training.annotator_trust import Trust as Trust, fit_trust as fit_trust
    from preferl.training.checkpoint_folder import has_run as has_run
    from preferl.training.configs import (
        AdaptivePenalty as AdaptivePenalty,
        CosineSchedule as CosineSchedule,
        RewardTrainerConfig as RewardTrainerConfig,
    )
    from preferl.training.distributed import World as World
    from preferl.training.fit_report import FitReport as FitReport, RatingFit as RatingFit
    from preferl.training.publish import PublishedReward as PublishedReward, Publisher as Publisher
    from preferl.training.regret import (
        LinearTask as LinearTask,
        fit_by_regret as fit_by_regret,
        fit_by_return as fit_by_return,
    )
    from preferl.training.reward_function import (
        RewardFunction as RewardFunction,
        agent_reward as agent_reward,
        load_reward as load_reward,
        relabel as relabel,
        reward_version as reward_version,
        save_reward as save_reward,
    )
    from preferl.training.reward_presets import (
        RewardPreset as RewardPreset,
        RewardSettings as RewardSettings,
        reward_preset as reward_preset,
    )
    from preferl.training.reward_trainer import (
        FitCheckpoints as FitCheckpoints,
        RewardTrainer as RewardTrainer,
    )
    from preferl.training.scaling import (
        RewardScaler as RewardScaler,
        scale_by_return_range as scale_by_return_range,
    )
    from preferl.training.self_prediction import predict_next_steps as predict_next_steps
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
