"""Policies that learned from normalised observations, given those of the environment.

stable-baselines3's `VecNormalize` subtracts running means and divides by running deviations before
a policy sees anything, and the policy's own `predict` knows nothing of it. Whoever shows such a
policy an environment's own observations has to do the same, with the same numbers.
"""

from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from gymnasium import spaces

from preferl.errors import SpaceError
from preferl.evaluation.protocols import Policy
from preferl.shapes import Array


class Normaliser(Protocol):
    """What observations go through; `VecNormalize` is one."""

    norm_obs: bool
    observation_space: spaces.Space[Any]

    def normalize_obs(self, obs: Any) -> Any:
        """Observations `[V, *obs]` as the policy knows them; no statistics change."""
        ...


@runtime_checkable
class HasNormaliser(Policy, Protocol):
    """A policy that knows how its observations were normalised, as SB3's algorithms do."""

    observation_space: spaces.Space[Any]

    def get_vec_normalize_env(self) -> Normaliser | None:
        """What its environment normalises by; None where it does not."""
        ...


@final
class NormalisedPolicy:
    """Normalises an environment's own observations, and lets a policy act on them.

    Args:
        policy: learned from normalised observations.
        normaliser: by which; its statistics are read, and never changed.
    """

    def __init__(self, policy: Policy, normaliser: Normaliser) -> None:
        self.policy = policy
        self.normaliser = normaliser

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """`[V, *obs]` observations of the environment to `[V, *act]` actions, by SB3's convention.

        Raises:
            SpaceError: observations of another shape than the statistics.
        """
        fitting = _fitting(observation, self.normaliser.observation_space)
        normal = self.normaliser.normalize_obs(fitting)
        return self.policy.predict(normal, state, episode_start, deterministic)


def on_raw_observations(policy: Policy) -> Policy:
    """A policy as it acts on the environment's own observations.

    An algorithm of stable-baselines3 whose environment has a `VecNormalize` gets what that makes
    of them, with its statistics as they are when it acts. Every other policy comes back itself.
    `evaluate_policy`, `film` and everything that records call this.

    Args:
        policy: anything with stable-baselines3's `predict`.

    Raises:
        SpaceError: statistics of other observations than the policy's, since something between
            the two changes their shape.
    """
    normaliser = policy.get_vec_normalize_env() if isinstance(policy, HasNormaliser) else None
    if normaliser is None or not normaliser.norm_obs or not isinstance(policy, HasNormaliser):
        return policy
    seen, normalised = policy.observation_space, normaliser.observation_space
    if _shapes(seen) != _shapes(normalised):
        raise SpaceError.mismatch(
            "observations of the policy",
            expected=f"those that VecNormalize has statistics of, {_shapes(normalised)}",
            got=_shapes(seen),
            fix="Put VecNormalize outermost, around VecFrameStack, and train again.",
        )
    return NormalisedPolicy(policy, normaliser)


def _fitting(observation: Any, space: spaces.Space[Any]) -> Any:
    """The same, with pictures turned channels first where the statistics are."""
    if isinstance(space, spaces.Dict):
        return {key: _fitting(observation[key], part) for key, part in space.items()}
    array, shape = np.asarray(observation), space.shape or ()
    if not isinstance(space, spaces.Box) or _ends_in(array, shape):
        return array
    if len(shape) == 3 and array.ndim >= 3 and _ends_in(np.moveaxis(array, -1, -3), shape):
        return np.moveaxis(array, -1, -3)
    raise SpaceError.mismatch(
        "observation",
        expected=f"shape {shape}, which VecNormalize has statistics of",
        got=array.shape,
        fix="Evaluate in the environment that the policy was trained in, with its wrappers.",
    )


def _ends_in(array: Array, shape: tuple[int, ...]) -> bool:
    return array.shape[array.ndim - len(shape) :] == shape


def _shapes(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _shapes(part) for key, part in space.items()}
    return space.shape
