"""Rollouts of stable-baselines3's on-policy algorithms, paid once they are over."""

from typing import Final

import numpy as np
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)

from preferl.errors import ConfigError
from preferl.online.feedback_env import FeedbackVecEnv
from preferl.shapes import FloatArray

PASS_ON: Final = (VecCheckNan, VecFrameStack, VecTransposeImage, VecVideoRecorder)
"""Wrappers that hand on rewards as they are and look no further at them."""


def rewards_reach(venv: VecEnv) -> bool:
    """Whether nothing between a `FeedbackVecEnv` and its algorithm looks at rewards."""
    inner = venv
    while not isinstance(inner, FeedbackVecEnv):
        unmoved = isinstance(inner, VecNormalize) and not inner.norm_reward
        if not isinstance(inner, VecEnvWrapper) or not (unmoved or isinstance(inner, PASS_ON)):
            return False
        inner = inner.venv
    return True


def pay_rollout(algorithm: OnPolicyAlgorithm, more: FloatArray) -> None:
    """Add to the rewards of a full rollout, and to its advantages and returns what follows.

    Generalised advantage estimates (Schulman et al. 2016, equation 16) are linear in the rewards,
    so that what is added needs neither values nor what was seen last.

    Args:
        algorithm: whose rollout has just ended.
        more: `[T, V]`

    Raises:
        ConfigError: another number of steps, or of environments, than the rollout has.
    """
    buffer = algorithm.rollout_buffer
    if not buffer.full or buffer.rewards.shape != more.shape:
        raise ConfigError.mismatch(
            "rollout",
            expected=f"{more.shape} steps of environments, as were acted",
            got=f"{buffer.rewards.shape}{'' if buffer.full else ', not full'}",
            fix='Steps of other programs in between? `FeedbackCallback(pay="step")`.',
        )
    kept = buffer.gamma * buffer.gae_lambda
    advantages, following = np.zeros_like(more), np.zeros(more.shape[1], more.dtype)
    goes_on = np.zeros(more.shape[1], more.dtype)  # nothing is known after the last step
    for step in reversed(range(len(more))):
        following = advantages[step] = more[step] + kept * goes_on * following
        goes_on = 1.0 - buffer.episode_starts[step]
    buffer.rewards += more
    buffer.advantages += advantages
    buffer.returns += advantages
