"""Environments that policies of recorded data are judged in, with known faults put right.

Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning", whose scores are
meant for the rewards of the original simulators.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, SupportsFloat, final

import gymnasium
import numpy as np

from preferl.shapes import Array, FloatArray
from preferl.simulators import Environment, make_registered

REACH_WEIGHT = 0.1
"""What a metre between palm and object costs in the original hand environments."""


@final
class ReachTermCorrected(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A hand environment that charges for the distance to its object, where it paid for it.

    The dense rewards of gymnasium-robotics' door, hammer and relocate environments add 0.1 times
    the distance from the palm to the object, where the original environments (Rajeswaran et al.
    2018), and so the reference scores of D4RL, subtract it. Twice that term is taken off again,
    from the observation after the step. The random policy then returns what D4RL says it does:
    -56.6 in the door environment instead of -45.9 (D4RL: -56.5), -275.2 with the hammer instead
    of -267.8 (-274.9), -5.7 in relocate instead of 10.9 (-6.4).

    Args:
        env: one of the three.
        reach: an observation `[O]` to the vector `[3]` from the object to the palm, in metres.
    """

    def __init__(self, env: Environment, reach: Callable[[Array], FloatArray]) -> None:
        super().__init__(env)
        self._reach = reach

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step; everything but the reward is the environment's."""
        observation, reward, *ends = self.env.step(action)
        distance = float(np.linalg.norm(self._reach(observation)))
        return observation, float(reward) - 2 * REACH_WEIGHT * distance, *ends


CORRECTIONS: Mapping[str, Callable[[Environment], Environment]] = MappingProxyType(
    {
        "AdroitHandDoor-v1": partial(ReachTermCorrected, reach=lambda seen: seen[35:38]),
        "AdroitHandHammer-v1": partial(
            ReachTermCorrected, reach=lambda seen: seen[33:36] - seen[36:39]
        ),
        "AdroitHandRelocate-v1": partial(ReachTermCorrected, reach=lambda seen: seen[30:33]),
    }
)
"""Ids to what puts their environment right; others are taken as they are."""


def make_task_env(env_id: str, **options: Any) -> Environment:
    """The environment of an id as the scores of its task are defined.

    Args:
        env_id: known to gymnasium, or to gymnasium-robotics (extra `robotics`).
        **options: passed to `gymnasium.make`, such as `render_mode`.

    Raises:
        ConfigError: no such environment; the message lists ids that look alike.
        MissingExtraError: the package that has it is not installed.

    >>> make_task_env("Pendulum-v1").spec.max_episode_steps
    200
    """
    env = make_registered(env_id, **options)
    return CORRECTIONS[env_id](env) if env_id in CORRECTIONS else env


def task_env(env_id: str) -> Callable[..., Environment]:
    """What makes the environment of an id, as evaluation takes it and other processes, too."""
    return partial(make_task_env, env_id)
