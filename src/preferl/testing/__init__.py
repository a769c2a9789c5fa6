"""Contracts that check parts of your own, and small worlds to try them in.

Names are imported when they are first used, so that contracts of feedback need no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.envs.moving_dot import MovingDot as MovingDot
    from preferl.testing.crowds import (
        Crowd as Crowd,
        CrowdConfig as CrowdConfig,
        simulate_crowd as simulate_crowd,
    )
    from preferl.testing.feedback_contracts import (
        check_feedback as check_feedback,
        check_sampler as check_sampler,
        check_teacher as check_teacher,
        example_segments as example_segments,
    )
    from preferl.testing.loss_contracts import check_loss as check_loss
    from preferl.testing.model_contracts import check_reward_model as check_reward_model
    from preferl.testing.worlds import (
        CountingModel as CountingModel,
        FadingModel as FadingModel,
        PointWorld as PointWorld,
        linear_reward as linear_reward,
        make_comparisons as make_comparisons,
        make_episodes as make_episodes,
        sample_steps as sample_steps,
    )
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
