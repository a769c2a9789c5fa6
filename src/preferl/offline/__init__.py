"""Learning from recorded experience alone, several agents at once (torch).

Names are imported when they are first used, so that settings load no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.offline.config import OfflineConfig
    from preferl.offline.decision_policy import DecisionTransformerPolicy
    from preferl.offline.decision_transformer import DecisionTransformer
    from preferl.offline.hub import load_decision_transformer
    from preferl.offline.iql import IQL
    from preferl.offline.learner import BehaviourCloning, OfflineLearner
    from preferl.offline.learner_configs import (
        CloningConfig,
        DTConfig,
        DTRConfig,
        IQLConfig,
        PixelEncoderConfig,
    )
    from preferl.offline.pipeline import run_offline
    from preferl.offline.policy import OfflinePolicy
    from preferl.offline.sequences import SequenceCollator, Sequences
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
    "PixelEncoderConfig",
    "SequenceCollator",
    "Sequences",
    "Transitions",
    "load_decision_transformer",
    "run_offline",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "config": "OfflineConfig",
        "decision_policy": "DecisionTransformerPolicy",
        "decision_transformer": "DecisionTransformer",
        "hub": "load_decision_transformer",
        "iql": "IQL",
        "learner": "BehaviourCloning OfflineLearner",
        "learner_configs": "CloningConfig DTConfig DTRConfig IQLConfig PixelEncoderConfig",
        "pipeline": "run_offline",
        "policy": "OfflinePolicy",
        "sequences": "SequenceCollator Sequences",
        "transitions": "Transitions",
    },
)
