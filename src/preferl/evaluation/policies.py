"""The protocol of policies, random policies, and policies for normalised observations.

`VecNormalize` of stable-baselines3 subtracts running means from an observation and divides it by
running deviations before the policy sees it. The policy's own `predict` does not.
`on_raw_observations` lets such a policy act on an environment's own observations, by normalising
them with the same statistics.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from functools import partial
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from gymnasium import spaces

from preferl.errors import SpaceError
from preferl.shapes import FloatArray, leaves
from preferl.threads import is_small, threads_for


@runtime_checkable
class Policy(Protocol):
    """Anything with stable-baselines3's `predict`."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """Return `[V, *act]` actions for `[V, *obs]` observations, and the next `state` to pass."""


@runtime_checkable
class ReturnConditionedPolicy(Policy, Protocol):
    """A policy that depends on its episode's rewards so far, such as a Decision Transformer."""

    def earned(self, state: Any, rewards: FloatArray) -> None:
        """Take the rewards `[V]` of the last actions.

        This is called between two calls of `predict`.
        """


@runtime_checkable
class HasNormaliser(Policy, Protocol):
    """A policy that knows how its observations were normalised, such as an algorithm of SB3."""

    observation_space: spaces.Space[Any]

    def get_vec_normalize_env(self) -> Any:
        """Return the `VecNormalize` of the policy's environment, or None."""


@runtime_checkable
class NetworkPolicy(Policy, Protocol):
    """The network of an SB3 algorithm, which does not know how its observations were normalised."""

    def obs_to_tensor(self, observation: Any) -> Any:
        """Return an observation as the network's input."""


@runtime_checkable
class KeepsOriginal(HasNormaliser, Protocol):
    """An on-policy algorithm of SB3, which keeps a raw observation if it has a `VecNormalize`."""

    rollout_buffer: Any
    _last_original_obs: Any


@runtime_checkable
class HasNetwork(Protocol):
    """An agent that contains a network, such as an algorithm of SB3, or a policy around it."""

    policy: Any


@runtime_checkable
class Network(Protocol):
    """A module of torch."""

    def modules(self) -> Iterator[Any]:
        """Yield the module and all modules in it."""

    def parameters(self) -> Iterator[Any]:
        """Yield the module's parameters."""


@final
class RandomPolicy:
    """Acts at random, whatever it observes. Every policy should be better than this baseline.

    Args:
        action_space: the space from which actions are drawn uniformly; it is not changed.
        seed: seed of the draws.
    """

    def __init__(self, action_space: spaces.Space[Any], seed: int) -> None:
        self._space = deepcopy(action_space)
        self._space.seed(seed)

    def predict(self, observation: Any, state: Any = None, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Return `[V, *act]` actions for `[V, *obs]` observations.

        `deterministic` has no effect.
        """
        return np.stack([self._space.sample() for _ in leaves(observation)[0]]), state


@final
class NormalisedPolicy:
    """Normalises an environment's own observations, and lets a policy act on them.

    Args:
        policy: a policy that learned from normalised observations.
        normaliser: a `VecNormalize`. Its statistics are read, but never changed.
    """

    def __init__(self, policy: Policy, normaliser: Any) -> None:
        self.policy = policy
        self.normaliser = normaliser

    def predict(self, observation: Any, *state: Any, **how: Any) -> tuple[Any, Any]:
        """Return `[V, *act]` actions for raw `[V, *obs]` observations, as SB3's policies do.

        Raises:
            SpaceError: observations have another shape than the statistics.
        """
        fitting = _fitting(observation, self.normaliser.observation_space)
        return self.policy.predict(self.normaliser.normalize_obs(fitting), *state, **how)


def on_raw_observations(policy: Policy) -> Policy:
    """Return a policy that acts on the environment's own observations.

    If the policy is an algorithm of stable-baselines3 and its environment has a `VecNormalize`, it
    gets observations that are normalised with the current statistics. Any other policy is returned
    as it is. `rollout` calls this, so it applies to everything that evaluates, films or records a
    policy.

    Raises:
        SpaceError: the statistics are of observations of another shape than the policy's, or they
            are missing. They are missing if an algorithm learned with a `VecNormalize` and was
            loaded without it, and perhaps if only the network of an algorithm is passed.
    """
    if isinstance(policy, NetworkPolicy):
        raise SpaceError(
            "policy: expected a stable-baselines3 algorithm, such as `agent`, got its network, "
            f"`agent.policy` ({type(policy).__name__}), which does not know whether it learned "
            "from observations that VecNormalize had normalised. Pass `agent`. If you have only "
            "the network, pass `preferl.evaluation.policies.NormalisedPolicy(network, "
            "normaliser)`, or, if its observations were not normalised, an object with its "
            "`predict`: `types.SimpleNamespace(predict=network.predict)`."
        )
    if not isinstance(policy, HasNormaliser):
        return policy
    normaliser = policy.get_vec_normalize_env()
    if normaliser is None and learned_normalised(policy):
        raise SpaceError(
            "policy: expected an algorithm with the VecNormalize that it learned with, got one "
            "that was loaded or set up without it. Load it with its statistics: "
            '`PPO.load(path, env=VecNormalize.load("vecnormalize.pkl", venv))`.'
        )
    if normaliser is None or not normaliser.norm_obs:
        return policy
    seen = shape_of(policy.observation_space)
    normalised = shape_of(normaliser.observation_space)
    if seen != normalised:
        raise SpaceError(
            "observations of the policy: expected those that VecNormalize has statistics of, "
            f"{normalised}, got {seen}. Put VecNormalize outermost, around VecFrameStack, and "
            "train again."
        )
    return NormalisedPolicy(policy, normaliser)


def learned_normalised(policy: Policy) -> bool:
    """Whether an algorithm of stable-baselines3 is known to have learned with a `VecNormalize`.

    Only on-policy algorithms show this: if they have a `VecNormalize`, they keep and save a raw
    observation. Off-policy algorithms always keep one.
    """
    return isinstance(policy, KeepsOriginal) and policy._last_original_obs is not None


def threads_of(policy: Policy) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that makes blocks with as many threads as suit a policy's network.

    If the policy has no torch network, or it is not found, the blocks change nothing.
    """
    network: Any = policy
    if isinstance(network, NormalisedPolicy):
        network = network.policy
    if isinstance(network, HasNetwork):
        network = network.policy
    if not isinstance(network, Network):
        return nullcontext
    return partial(threads_for, small=is_small(network))


def shape_of(space: spaces.Space[Any]) -> Any:
    """Return the shape of a space's values; for a dictionary space, the shape of each key."""
    if isinstance(space, spaces.Dict):
        return {key: shape_of(part) for key, part in space.items()}
    return space.shape


def _fitting(observation: Any, space: spaces.Space[Any]) -> Any:
    """Return the observation; its channels come first if `space` has them first."""
    if isinstance(space, spaces.Dict):
        return {key: _fitting(observation[key], part) for key, part in space.items()}
    array = np.asarray(observation)
    shape = space.shape or ()
    moved = np.moveaxis(array, -1, -3) if len(shape) == 3 <= array.ndim else array
    for way in (array, moved):
        if not isinstance(space, spaces.Box) or way.shape[way.ndim - len(shape) :] == shape:
            return way
    raise SpaceError(
        f"observation: expected shape {shape}, which VecNormalize has statistics of, got "
        f"{array.shape}. Evaluate in the environment that the policy was trained in, with its "
        "wrappers."
    )
