"""Recorded experience with learned rewards in place of the environment's."""

from dataclasses import replace

import numpy as np

from preferl.data.episodes import Episodes
from preferl.training.reward_function import RewardFunction


def relabel(episodes: Episodes, reward: RewardFunction) -> Episodes:
    """The same episodes, each step paid by `reward` with the history it had.

    A step's reward is the model's output at the last step of the window that ends there, exactly
    as it would be paid while acting.

    Args:
        episodes: what was recorded; not changed.
        reward: what pays.

    Returns:
        Episodes whose `rewards` are `[T]` float32; all other arrays are shared.

    Raises:
        SpaceError: episodes of another shape than the reward was built for.
    """
    rewards = reward.combine(reward.member_rewards(episodes))
    return replace(episodes, rewards=np.asarray(rewards, np.float32))
