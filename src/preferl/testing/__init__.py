"""For implementers: contracts to check one's own parts with, and small worlds to try them in.

Names are imported when they are first used, so that contracts of feedback need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_MODULES = {
    "preferl.testing.crowds": ("Crowd", "CrowdConfig", "simulate_crowd"),
    "preferl.testing.feedback_contracts": (
        "check_feedback",
        "check_sampler",
        "check_teacher",
        "example_segments",
    ),
    "preferl.testing.model_contracts": ("check_reward_model",),
    "preferl.worlds.moving_dot": ("MovingDot",),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((m for m, names in _MODULES.items() if name in names), f"{__name__}.worlds")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
