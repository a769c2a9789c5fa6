"""Learn policies from recorded experience only, several agents at once (torch).

Names are imported at their first use, so reading settings loads no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.offline.cpl import CPL as CPL
    from preferl.offline.decision_transformer.agent import (
        DecisionTransformer as DecisionTransformer,
    )
    from preferl.offline.decision_transformer.policy import (
        DecisionTransformerPolicy as DecisionTransformerPolicy,
    )
    from preferl.offline.decision_transformer.pretrained import (
        load_decision_transformer as load_decision_transformer,
    )
    from preferl.offline.decision_transformer.sequences import (
        SequenceCollator as SequenceCollator,
        Sequences as Sequences,
    )
    from preferl.offline.experiment.config import (
        OfflineConfig as OfflineConfig,
        OfflineRun as OfflineRun,
    )
    from preferl.offline.experiment.pipeline import (
        run_offline as run_offline,
        train_together as train_together,
    )
    from preferl.offline.ipl import IPL as IPL
    from preferl.offline.iql import IQL as IQL
    from preferl.offline.learner import (
        BehaviourCloning as BehaviourCloning,
        OfflineLearner as OfflineLearner,
    )
    from preferl.offline.learner_configs import (
        CloningConfig as CloningConfig,
        CPLConfig as CPLConfig,
        DTConfig as DTConfig,
        DTRConfig as DTRConfig,
        IPLConfig as IPLConfig,
        IQLConfig as IQLConfig,
        PixelEncoderConfig as PixelEncoderConfig,
    )
    from preferl.offline.policy import OfflinePolicy as OfflinePolicy
    from preferl.offline.transitions import Transitions as Transitions
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
