"""For implementers: contracts to check one's own parts with, and small worlds to try them in.

Names are imported when they are first used, so that contracts of feedback need no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.envs.moving_dot import MovingDot as MovingDot
    from preferl.testing.crowds import Crowd as Crowd
    from preferl.testing.crowds import CrowdConfig as CrowdConfig
    from preferl.testing.crowds import simulate_crowd as simulate_crowd
    from preferl.testing.feedback_contracts import check_feedback as check_feedback
    from preferl.testing.feedback_contracts import check_sampler as check_sampler
    from preferl.testing.feedback_contracts import check_teacher as check_teacher
    from preferl.testing.feedback_contracts import example_segments as example_segments
    from preferl.testing.loss_contracts import check_loss as check_loss
    from preferl.testing.model_contracts import check_reward_model as check_reward_model
    from preferl.testing.worlds import CountingModel as CountingModel
    from preferl.testing.worlds import FadingModel as FadingModel
    from preferl.testing.worlds import PointWorld as PointWorld
    from preferl.testing.worlds import linear_reward as linear_reward
    from preferl.testing.worlds import make_comparisons as make_comparisons
    from preferl.testing.worlds import make_episodes as make_episodes
    from preferl.testing.worlds import sample_steps as sample_steps
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
