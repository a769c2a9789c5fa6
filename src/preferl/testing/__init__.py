"""For implementers: contracts to check one's own parts with, and small worlds to try them in.

Names are imported when they are first used, so that contracts of feedback need no torch.
"""

from typing import TYPE_CHECKING, Any

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.testing.crowds import Crowd, CrowdConfig, simulate_crowd
    from preferl.testing.feedback_contracts import (
        check_feedback,
        check_sampler,
        check_teacher,
        example_segments,
    )
    from preferl.testing.model_contracts import check_reward_model
    from preferl.testing.worlds import (
        CountingModel,
        FadingModel,
        PointWorld,
        linear_reward,
        make_comparisons,
        make_episodes,
        sample_steps,
    )
    from preferl.worlds.moving_dot import MovingDot

__all__ = [
    "CountingModel",
    "Crowd",
    "CrowdConfig",
    "FadingModel",
    "MovingDot",
    "PointWorld",
    "check_feedback",
    "check_reward_model",
    "check_sampler",
    "check_teacher",
    "example_segments",
    "linear_reward",
    "make_comparisons",
    "make_episodes",
    "sample_steps",
    "simulate_crowd",
]

_find, __dir__ = lazily(
    __name__,
    {
        "crowds": "Crowd CrowdConfig simulate_crowd",
        "feedback_contracts": "check_feedback check_sampler check_teacher example_segments",
        "model_contracts": "check_reward_model",
        "worlds": "CountingModel FadingModel PointWorld linear_reward make_comparisons "
        "make_episodes sample_steps",
    },
)


def __getattr__(name: str) -> Any:
    if name != "MovingDot":
        return _find(name)
    from preferl.worlds.moving_dot import MovingDot

    return MovingDot
