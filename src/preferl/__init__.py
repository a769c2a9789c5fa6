"""Teach agents by comparing clips of behaviour.

The names used most are imported when they are first used, so that `import preferl` costs nothing.
"""

import os
from typing import TYPE_CHECKING

from preferl import _optional

__version__ = "0.1.0"

# On some processors, products of MKL depend in the last bit on where their arrays lie in memory.
# Two runs with one seed agree only without that. It takes effect before torch's first product.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

if TYPE_CHECKING:
    from preferl.data import Comparisons as Comparisons
    from preferl.data import Episodes as Episodes
    from preferl.data import Segments as Segments
    from preferl.data import load_comparisons as load_comparisons
    from preferl.data import load_episodes as load_episodes
    from preferl.data import normalised_score as normalised_score
    from preferl.data import sample_segments as sample_segments
    from preferl.data import save_comparisons as save_comparisons
    from preferl.data import save_episodes as save_episodes
    from preferl.data import split as split
    from preferl.data.sources import load_labels as load_labels
    from preferl.data.sources import load_source as load_source
    from preferl.errors import PreferlError as PreferlError
    from preferl.evaluation import evaluate_policy as evaluate_policy
    from preferl.evaluation import evaluate_reward as evaluate_reward
    from preferl.feedback import InformativePairs as InformativePairs
    from preferl.feedback import InstantFeedback as InstantFeedback
    from preferl.feedback import PromptTeacher as PromptTeacher
    from preferl.feedback import ScriptedTeacher as ScriptedTeacher
    from preferl.feedback import UniformPairs as UniformPairs
    from preferl.functional import lower_bound as lower_bound
    from preferl.models import CNNReward as CNNReward
    from preferl.models import CNNRewardConfig as CNNRewardConfig
    from preferl.models import Ensemble as Ensemble
    from preferl.models import EnsembleConfig as EnsembleConfig
    from preferl.models import LSTMReward as LSTMReward
    from preferl.models import LSTMRewardConfig as LSTMRewardConfig
    from preferl.models import MLPReward as MLPReward
    from preferl.models import MLPRewardConfig as MLPRewardConfig
    from preferl.models import PreferenceTransformer as PreferenceTransformer
    from preferl.models import PreferenceTransformerConfig as PreferenceTransformerConfig
    from preferl.models import RewardModel as RewardModel
    from preferl.models import build_reward_model as build_reward_model
    from preferl.models import load_reward_model as load_reward_model
    from preferl.models import save_reward_model as save_reward_model
    from preferl.offline import IQL as IQL
    from preferl.offline import BehaviourCloning as BehaviourCloning
    from preferl.offline import CloningConfig as CloningConfig
    from preferl.offline import DecisionTransformer as DecisionTransformer
    from preferl.offline import DTConfig as DTConfig
    from preferl.offline import IQLConfig as IQLConfig
    from preferl.offline import OfflineConfig as OfflineConfig
    from preferl.offline import OfflinePolicy as OfflinePolicy
    from preferl.offline import Transitions as Transitions
    from preferl.offline import run_offline as run_offline
    from preferl.online import FeedbackCallback as FeedbackCallback
    from preferl.online import FeedbackConfig as FeedbackConfig
    from preferl.online import FeedbackVecEnv as FeedbackVecEnv
    from preferl.online import FeedbackVectorEnv as FeedbackVectorEnv
    from preferl.online import HumanPreferencesEnvWrapper as HumanPreferencesEnvWrapper
    from preferl.online import OnlineConfig as OnlineConfig
    from preferl.online import PPOConfig as PPOConfig
    from preferl.online import SACConfig as SACConfig
    from preferl.online import SB3Config as SB3Config
    from preferl.online import SB3Learner as SB3Learner
    from preferl.online import launch as launch
    from preferl.online import learn_from_preferences as learn_from_preferences
    from preferl.online import load_policy as load_policy
    from preferl.online import run_online as run_online
    from preferl.online import save_policy as save_policy
    from preferl.store import Store as Store
    from preferl.store import StoredFeedback as StoredFeedback
    from preferl.training import RewardFunction as RewardFunction
    from preferl.training import RewardTrainer as RewardTrainer
    from preferl.training import RewardTrainerConfig as RewardTrainerConfig
    from preferl.training import load_reward as load_reward
    from preferl.training import relabel as relabel
    from preferl.training import save_reward as save_reward
    from preferl.training import scale_by_return_range as scale_by_return_range
else:
    __getattr__, __dir__, __all__ = _optional.lazily(__name__)
    __all__ += ["__version__"]
