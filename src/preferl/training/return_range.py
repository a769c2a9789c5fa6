"""Rewards on the scale that offline policies are tuned for: by the range of episode returns.

Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning", divides rewards by
the range of returns; Kim et al. 2023, "Preference Transformer", adds a shift per kind of task.
"""

import warnings
from dataclasses import replace

import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.tasks import Task, find_task
from preferl.errors import ConfigError, mismatch
from preferl.shapes import FloatArray


def scale_by_return_range(
    episodes: Episodes, task: str | Task | float | None = None, *, learned: bool = True
) -> Episodes:
    """The same episodes with rewards `r * M / (R_max - R_min)`, and the shifts of their task.

    `R_max` and `R_min` are the highest and the lowest return of the episodes. Where all returns
    are the same there is no range to divide by: rewards then keep their scale, with a warning.

    Args:
        episodes: relabelled experience; not changed.
        task: a name or row of `preferl.data.TASKS`, which says `M` and the shifts; or `M`
            itself; or None for `M` = steps of the longest episode, the nearest to a horizon
            that the data show. Without a task nothing is shifted.
        learned: whether the rewards are learned ones (the default). False scales the
            environment's own as the same papers do: some tasks only shift them.

    Returns:
        Episodes whose `rewards` are `[T]` in the precision they had; all else is shared.

    Raises:
        ConfigError: an unknown task, or an `M` that is not above 0.

    >>> episodes = Episodes(np.zeros((4, 1)), np.zeros((4, 1)), np.array([1.0, 2, 3, 4]),
    ...                     np.zeros(4, bool), np.zeros((2, 1)), np.array([2, 2]))
    >>> scale_by_return_range(episodes, 8).rewards.tolist()  # returns 3 and 7
    [2.0, 4.0, 6.0, 8.0]
    """
    if not len(episodes):
        return episodes
    row = find_task(task) if isinstance(task, str | Task) else None
    horizon = _horizon(episodes, row or task)
    rewards = np.asarray(episodes.rewards, np.float64)
    if row is not None and not learned:
        scale = _scale(episodes.returns, horizon) if row.scales_own_reward else 1.0
        return _paying(episodes, rewards * scale + row.own_shift)
    if row is not None and row.from_lowest:
        rewards = rewards - np.repeat(episodes.returns.min() / episodes.lengths, episodes.lengths)
    shift = 0.0 if row is None else row.shift_after
    return _paying(episodes, rewards * _scale(episodes.returns, horizon) + shift)


def _horizon(episodes: Episodes, task: Task | str | float | None) -> float:
    """`M`."""
    if isinstance(task, Task):
        return task.max_episode_steps
    horizon = float(episodes.lengths.max() if task is None else task)
    if not 0 < horizon < float("inf"):
        raise ConfigError.mismatch("task", expected="a task, or steps above 0", got=horizon)
    return horizon


def _scale(returns: FloatArray, horizon: float) -> float:
    span = float(returns.max() - returns.min())
    if span <= 1e-8 * float(np.abs(returns).max()):  # a range made of rounding, or none
        warnings.warn(
            mismatch(
                "returns to scale by",
                expected="a highest and a lowest",
                got=f"{returns[0]:g} for all {len(returns)} episodes",
                fix="Rewards keep their scale.",
            ),
            stacklevel=3,
        )
        return 1.0
    return horizon / span


def _paying(episodes: Episodes, rewards: FloatArray) -> Episodes:
    precision = np.result_type(episodes.rewards, np.float32)  # rewards in whole numbers exist
    return replace(episodes, rewards=rewards.astype(precision))
