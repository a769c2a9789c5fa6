"""Learned rewards of an on-policy rollout, computed in one batch at its end."""

from typing import Any, Final, final

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
    unwrap_vec_wrapper,
)

from preferl.errors import ConfigError
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.shapes import FloatArray

PASS_ON: Final = (VecCheckNan, VecFrameStack, VecTransposeImage, VecVideoRecorder)
"""Wrappers that pass rewards on unchanged and do not use them."""


@final
class RolloutRewards:
    """Computes the rewards of a rollout at its end, for an algorithm that learns only then.

    Until then, steps have zeros. Off-policy algorithms get rewards at each step. So do algorithms
    whose environment has a wrapper that uses rewards.
    """

    def __init__(self, algorithm: BaseAlgorithm) -> None:
        self._algorithm: Any = algorithm
        self._env: FeedbackVecEnv | None = None  # set during a rollout whose rewards are deferred

    def begin(self) -> None:
        """Defer the rewards of the rollout that now begins."""
        venv = self._algorithm.get_env()
        self._env = None
        if isinstance(self._algorithm, OnPolicyAlgorithm) and rewards_reach(venv):
            self._env = unwrap_vec_wrapper(venv, FeedbackVecEnv)
        if self._env is not None:
            self._env.defer_rewards()

    def add(self) -> None:
        """Compute the rewards of a rollout that has ended, and add them to it."""
        if self._env is not None:
            add_rewards(self._algorithm, self._env.settle_rewards())
            self._env = None


def rewards_reach(venv: VecEnv) -> bool:
    """Whether no wrapper between a `FeedbackVecEnv` and its algorithm uses rewards."""
    while not isinstance(venv, FeedbackVecEnv):
        unchanged = isinstance(venv, VecNormalize) and not venv.norm_reward
        if not isinstance(venv, VecEnvWrapper) or not (unchanged or isinstance(venv, PASS_ON)):
            return False
        venv = venv.venv
    return True


def add_rewards(algorithm: OnPolicyAlgorithm, more: FloatArray) -> None:
    """Add `more` `[T, V]` to the rewards of a full rollout, and update advantages and returns.

    Generalised advantage estimates (Schulman et al. 2016, equation 16) are linear in the rewards.
    The update therefore needs neither values nor the last observations. If `more` has another shape
    than the rollout, `ConfigError` is raised.
    """
    buffer = algorithm.rollout_buffer
    if not buffer.full or buffer.rewards.shape != more.shape:
        raise ConfigError(
            f"rollout: expected {more.shape} steps of environments, as were acted, got "
            f"{buffer.rewards.shape}{'' if buffer.full else ', not full'}. Steps of other "
            'programs in between? `FeedbackCallback(compute_rewards="step")`.'
        )
    kept = buffer.gamma * buffer.gae_lambda
    advantages = np.zeros_like(more)
    following = np.zeros(more.shape[1], more.dtype)
    goes_on = np.zeros(more.shape[1], more.dtype)  # `more` ends with the rollout
    for step in reversed(range(len(more))):
        following = advantages[step] = more[step] + kept * goes_on * following
        goes_on = 1.0 - buffer.episode_starts[step]
    buffer.rewards += more
    buffer.advantages += advantages
    buffer.returns += advantages
