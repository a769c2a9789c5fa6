"""Where the reward in use comes from: a folder of published ones, or one that stays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, final

from preferl.feedback.step_rewards import AnyReward
from preferl.online.paying import Reward
from preferl.training.publish import PublishedReward


class RewardSource(Protocol):
    """The reward in use, which changes only when it is told to; `PublishedReward` is one."""

    @property
    def version(self) -> int:
        """Of the reward in use; 0 before the first."""
        ...

    @property
    def reward(self) -> Reward | AnyReward | None:
        """What is paid, or None before the first version."""
        ...

    def take(self) -> bool:
        """Bring what was read in the background into use; whether that changed anything."""
        ...

    def refresh(self) -> bool:
        """The same, read from the disk now."""
        ...

    def snapshot(self) -> dict[str, Any] | None:
        """What is in use, for `restore`; None where that is for a script to say."""
        ...

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """Use what was in use, whatever has been published since."""
        ...


@final
class FixedReward:
    """A reward that stays as it is; with None, none ever comes.

    Attributes:
        reward: what is paid.
        version: its number where it was published, 1 where it was not; 0 without a reward.
    """

    def __init__(self, reward: Reward | AnyReward | None, *, version: int = 1) -> None:
        self.reward = reward
        self.version = 0 if reward is None else version

    def take(self) -> bool:
        """Nothing changes."""
        return False

    def refresh(self) -> bool:
        """Nothing changes."""
        return False

    def snapshot(self) -> dict[str, Any] | None:
        """Nothing: the script says which reward it is."""
        return None

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """It stays what the script says."""


Rewards = Path | str | PublishedReward | FixedReward | Reward | AnyReward | None
"""A folder of published rewards or its reader, one reward that stays (learned, a control, or a
plain function of observations and actions), or none at all."""


def reward_source(rewards: Rewards) -> RewardSource:
    """Where rewards come from; a folder is read now."""
    if isinstance(rewards, Path | str):
        rewards = PublishedReward(rewards)
        rewards.refresh()
    if isinstance(rewards, PublishedReward | FixedReward):
        return rewards
    return FixedReward(rewards)


def watch(source: RewardSource) -> PublishedReward | None:
    """Read published rewards in the background; what to close later, None if others watch it."""
    if isinstance(source, PublishedReward) and not source.watched:
        return source.watch()
    return None
