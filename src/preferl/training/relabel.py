"""Recorded experience with learned rewards in place of the environment's."""

from dataclasses import replace

import numpy as np

from preferl.data.episodes import Episodes
from preferl.feedback.step_rewards import AnyReward, step_rewards
from preferl.training.reward_function import RewardFunction


def relabel(episodes: Episodes, reward: AnyReward) -> Episodes:
    """The same episodes, each step paid by `reward` with the history it had.

    A step's reward is the model's output at the last step of the window that ends there, exactly
    as it would be paid while acting.

    Args:
        episodes: what was recorded; not changed.
        reward: what pays: a `RewardFunction`, a control, or a plain function of observations and
            actions.

    Returns:
        Episodes whose `rewards` are `[T]` float32; all other arrays are shared.

    Raises:
        SpaceError: episodes of another shape than the reward was built for.
    """
    if isinstance(reward, RewardFunction):
        rewards = reward.combine(reward.member_rewards(episodes))
    else:
        rewards = step_rewards(reward, episodes)
    return replace(episodes, rewards=np.asarray(rewards, np.float32))
