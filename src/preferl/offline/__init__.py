"""Learning from recorded experience alone, several agents at once (torch)."""

from preferl.offline.cloning import BehaviourCloning, CloningConfig
from preferl.offline.iql import IQL, IQLConfig
from preferl.offline.learner import OfflineLearner
from preferl.offline.policy import OfflinePolicy
from preferl.offline.transitions import Transitions

__all__ = [
    "IQL",
    "BehaviourCloning",
    "CloningConfig",
    "IQLConfig",
    "OfflineLearner",
    "OfflinePolicy",
    "Transitions",
]
