"""Teach agents by comparing clips of behaviour.

Frequently used names are imported when they are first used, so `import preferl` takes no time.
"""

import os
from typing import TYPE_CHECKING

from preferl import _optional

__version__ = "0.1.0"

# On some processors, the last bit of MKL's products depends on where arrays lie in memory. Two runs
# with one seed agree only if MKL is told to avoid this before torch's first product.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

if TYPE_CHECKING:
    from preferl.data import (
        Comparisons as Comparisons,
        Episodes as Episodes,
        Segments as Segments,
        load_comparisons as load_comparisons,
        load_episodes as load_episodes,
        normalised_score as normalised_score,
        sample_segments as sample_segments,
        save_comparisons as save_comparisons,
        save_episodes as save_episodes,
        split as split,
    )
    from preferl.data.sources import load_labels as load_labels, load_source as load_source
    from preferl.errors import PreferlError as PreferlError
    from preferl.evaluation import (
        evaluate_policy as evaluate_policy,
        evaluate_reward as evaluate_reward,
    )
    from preferl.feedback import (
        InformativePairs as InformativePairs,
        InstantFeedback as InstantFeedback,
        PromptTeacher as PromptTeacher,
        ScriptedTeacher as ScriptedTeacher,
        UniformPairs as UniformPairs,
    )
    from preferl.functional import lower_bound as lower_bound
    from preferl.models import (
        CNNReward as CNNReward,
        CNNRewardConfig as CNNRewardConfig,
        Ensemble as Ensemble,
        EnsembleConfig as EnsembleConfig,
        LSTMReward as LSTMReward,
        LSTMRewardConfig as LSTMRewardConfig,
        MLPReward as MLPReward,
        MLPRewardConfig as MLPRewardConfig,
        PreferenceTransformer as PreferenceTransformer,
        PreferenceTransformerConfig as PreferenceTransformerConfig,
        RewardModel as RewardModel,
        build_reward_model as build_reward_model,
        load_reward_model as load_reward_model,
        save_reward_model as save_reward_model,
    )
    from preferl.offline import (
        IQL as IQL,
        BehaviourCloning as BehaviourCloning,
        CloningConfig as CloningConfig,
        DecisionTransformer as DecisionTransformer,
        DTConfig as DTConfig,
        IQLConfig as IQLConfig,
        OfflineConfig as OfflineConfig,
        OfflinePolicy as OfflinePolicy,
        Transitions as Transitions,
        run_offline as run_offline,
    )
    from preferl.online import (
        FeedbackCallback as FeedbackCallback,
        FeedbackConfig as FeedbackConfig,
        FeedbackVecEnv as FeedbackVecEnv,
        FeedbackVectorEnv as FeedbackVectorEnv,
        HumanPreferencesEnvWrapper as HumanPreferencesEnvWrapper,
        OnlineConfig as OnlineConfig,
        PPOConfig as PPOConfig,
        SACConfig as SACConfig,
        SB3Config as SB3Config,
        SB3Learner as SB3Learner,
        launch as launch,
        learn_from_preferences as learn_from_preferences,
        load_policy as load_policy,
        run_online as run_online,
        save_policy as save_policy,
    )
    from preferl.store import Store as Store, StoredFeedback as StoredFeedback
    from preferl.training import (
        RewardFunction as RewardFunction,
        RewardTrainer as RewardTrainer,
        RewardTrainerConfig as RewardTrainerConfig,
        load_reward as load_reward,
        relabel as relabel,
        save_reward as save_reward,
        scale_by_return_range as scale_by_return_range,
    )
else:
    __getattr__, __dir__, __all__ = _optional.lazily(__name__)
    __all__ += ["__version__"]
