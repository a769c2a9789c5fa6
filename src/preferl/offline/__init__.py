"""Learning from recorded experience alone, several agents at once (torch).

Names are imported when they are first used, so that settings load no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.offline.cpl import CPL as CPL
    from preferl.offline.decision_transformer.agent import (
        DecisionTransformer as DecisionTransformer,
    )
    from preferl.offline.decision_transformer.hub import (
        load_decision_transformer as load_decision_transformer,
    )
    from preferl.offline.decision_transformer.policy import (
        DecisionTransformerPolicy as DecisionTransformerPolicy,
    )
    from preferl.offline.decision_transformer.sequences import SequenceCollator as SequenceCollator
    from preferl.offline.decision_transformer.sequences import Sequences as Sequences
    from preferl.offline.experiment.config import OfflineConfig as OfflineConfig
    from preferl.offline.experiment.config import OfflineRun as OfflineRun
    from preferl.offline.experiment.pipeline import run_offline as run_offline
    from preferl.offline.experiment.pipeline import train_together as train_together
    from preferl.offline.ipl import IPL as IPL
    from preferl.offline.iql import IQL as IQL
    from preferl.offline.learner import BehaviourCloning as BehaviourCloning
    from preferl.offline.learner import OfflineLearner as OfflineLearner
    from preferl.offline.learner_configs import CloningConfig as CloningConfig
    from preferl.offline.learner_configs import CPLConfig as CPLConfig
    from preferl.offline.learner_configs import DTConfig as DTConfig
    from preferl.offline.learner_configs import DTRConfig as DTRConfig
    from preferl.offline.learner_configs import IPLConfig as IPLConfig
    from preferl.offline.learner_configs import IQLConfig as IQLConfig
    from preferl.offline.learner_configs import PixelEncoderConfig as PixelEncoderConfig
    from preferl.offline.policy import OfflinePolicy as OfflinePolicy
    from preferl.offline.transitions import Transitions as Transitions
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
