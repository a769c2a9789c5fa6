"""Learning from recorded experience alone, several agents at once (torch)."""

from preferl.offline.cloning import BehaviourCloning, CloningConfig
from preferl.offline.config import OfflineConfig
from preferl.offline.iql import IQL, IQLConfig
from preferl.offline.learner import OfflineLearner
from preferl.offline.pipeline import run_offline
from preferl.offline.policy import OfflinePolicy
from preferl.offline.transitions import Transitions

__all__ = [
    "IQL",
    "BehaviourCloning",
    "CloningConfig",
    "IQLConfig",
    "OfflineConfig",
    "OfflineLearner",
    "OfflinePolicy",
    "Transitions",
    "run_offline",
]
