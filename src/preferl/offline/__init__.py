"""Learning from recorded experience alone, several agents at once (torch)."""

from preferl.offline.cloning import BehaviourCloning, CloningConfig
from preferl.offline.config import OfflineConfig
from preferl.offline.decision_policy import DecisionTransformerPolicy
from preferl.offline.decision_transformer import DecisionTransformer
from preferl.offline.dt_config import DTConfig
from preferl.offline.dtr import DTRConfig
from preferl.offline.hub_layout import load_decision_transformer
from preferl.offline.iql import IQL, IQLConfig
from preferl.offline.learner import OfflineLearner
from preferl.offline.pipeline import run_offline
from preferl.offline.policy import OfflinePolicy
from preferl.offline.sequences import SequenceCollator, Sequences
from preferl.offline.sight import SightConfig
from preferl.offline.transitions import Transitions

__all__ = [
    "IQL",
    "BehaviourCloning",
    "CloningConfig",
    "DTConfig",
    "DTRConfig",
    "DecisionTransformer",
    "DecisionTransformerPolicy",
    "IQLConfig",
    "OfflineConfig",
    "OfflineLearner",
    "OfflinePolicy",
    "SequenceCollator",
    "Sequences",
    "SightConfig",
    "Transitions",
    "load_decision_transformer",
    "run_offline",
]
