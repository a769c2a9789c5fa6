"""Teach agents by comparing clips of behaviour.

The names used most are imported when they are first used, so that `import preferl` costs nothing.
"""

from typing import TYPE_CHECKING

from preferl import _optional

if TYPE_CHECKING:
    from preferl.data import (
        Comparisons,
        Episodes,
        Segments,
        load_comparisons,
        load_episodes,
        normalised_score,
        sample_segments,
        save_comparisons,
        save_episodes,
        split,
    )
    from preferl.data.sources import load_labels, load_source
    from preferl.errors import PreferlError
    from preferl.evaluation import evaluate_policy, evaluate_reward
    from preferl.feedback import (
        InformativePairs,
        InstantFeedback,
        PromptTeacher,
        ScriptedTeacher,
        UniformPairs,
    )
    from preferl.functional import lower_bound
    from preferl.models import (
        CNNReward,
        CNNRewardConfig,
        Ensemble,
        EnsembleConfig,
        LSTMReward,
        LSTMRewardConfig,
        MLPReward,
        MLPRewardConfig,
        PreferenceTransformer,
        PreferenceTransformerConfig,
        RewardModel,
        build_reward_model,
        load_reward_model,
        save_reward_model,
    )
    from preferl.offline import (
        IQL,
        BehaviourCloning,
        CloningConfig,
        IQLConfig,
        OfflineConfig,
        OfflinePolicy,
        Transitions,
        run_offline,
    )
    from preferl.online import (
        OnlineConfig,
        PPOConfig,
        SACConfig,
        SB3Learner,
        learn_from_preferences,
        load_policy,
        save_policy,
    )
    from preferl.training import (
        RewardFunction,
        RewardTrainer,
        RewardTrainerConfig,
        load_reward,
        relabel,
        save_reward,
        scale_by_return_range,
    )

__version__ = "0.1.0"

__all__ = [
    "IQL",
    "BehaviourCloning",
    "CNNReward",
    "CNNRewardConfig",
    "CloningConfig",
    "Comparisons",
    "Ensemble",
    "EnsembleConfig",
    "Episodes",
    "IQLConfig",
    "InformativePairs",
    "InstantFeedback",
    "LSTMReward",
    "LSTMRewardConfig",
    "MLPReward",
    "MLPRewardConfig",
    "OfflineConfig",
    "OfflinePolicy",
    "OnlineConfig",
    "PPOConfig",
    "PreferenceTransformer",
    "PreferenceTransformerConfig",
    "PreferlError",
    "PromptTeacher",
    "RewardFunction",
    "RewardModel",
    "RewardTrainer",
    "RewardTrainerConfig",
    "SACConfig",
    "SB3Learner",
    "ScriptedTeacher",
    "Segments",
    "Transitions",
    "UniformPairs",
    "__version__",
    "build_reward_model",
    "evaluate_policy",
    "evaluate_reward",
    "learn_from_preferences",
    "load_comparisons",
    "load_episodes",
    "load_labels",
    "load_policy",
    "load_reward",
    "load_reward_model",
    "load_source",
    "lower_bound",
    "normalised_score",
    "relabel",
    "run_offline",
    "sample_segments",
    "save_comparisons",
    "save_episodes",
    "save_policy",
    "save_reward",
    "save_reward_model",
    "scale_by_return_range",
    "split",
]

__getattr__, __dir__ = _optional.lazily(
    __name__,
    {
        "data": (
            "Comparisons Episodes Segments load_comparisons load_episodes "
            "normalised_score sample_segments save_comparisons save_episodes split"
        ),
        "data.sources": "load_labels load_source",
        "errors": "PreferlError",
        "evaluation": "evaluate_policy evaluate_reward",
        "feedback": "InformativePairs InstantFeedback PromptTeacher ScriptedTeacher UniformPairs",
        "functional": "lower_bound",
        "models": (
            "CNNReward CNNRewardConfig Ensemble EnsembleConfig LSTMReward LSTMRewardConfig "
            "MLPReward MLPRewardConfig PreferenceTransformer PreferenceTransformerConfig "
            "RewardModel build_reward_model load_reward_model save_reward_model"
        ),
        "offline": (
            "IQL BehaviourCloning CloningConfig IQLConfig OfflineConfig OfflinePolicy Transitions "
            "run_offline"
        ),
        "online": (
            "OnlineConfig PPOConfig SACConfig SB3Learner learn_from_preferences load_policy "
            "save_policy"
        ),
        "training": (
            "RewardFunction RewardTrainer RewardTrainerConfig load_reward relabel save_reward "
            "scale_by_return_range"
        ),
    },
)
