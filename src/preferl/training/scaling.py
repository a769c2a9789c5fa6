"""Scales of rewards: an affine map per member for policies, and the range of episode returns.

Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning", divides rewards by
the range of returns; Kim et al. 2023, "Preference Transformer", adds a shift per kind of task.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.tasks import Task, find_task
from preferl.errors import ConfigError, DataError
from preferl.shapes import FloatArray


@final
@dataclass(frozen=True, eq=False)
class RewardScaler:
    """Maps each member's rewards to mean zero and deviation `target`, before they are combined.

    Members that are scaled in this way count equally in their average, whatever their own scale
    (Christiano et al. 2017, section 2.2.2). The DTR paper found this better than normalising the
    average. The statistics belong to one version of a reward and never change.

    Attributes:
        mean: `[E]` mean of each member's rewards.
        deviation: `[E]` standard deviation of each member's rewards, above 0.
        target: standard deviation of the scaled rewards; 1 as in the DRLHP paper for states, which
            uses 0.05 for pixels.
    """

    mean: FloatArray
    deviation: FloatArray
    target: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.target < np.inf:
            raise ConfigError(
                f"target deviation: expected a finite number above 0, got {self.target}."
            )
        mean = self.mean
        deviation = self.deviation
        is_finite = np.isfinite(mean).all() and np.isfinite(deviation).all()
        if mean.shape != deviation.shape or not is_finite or (deviation <= 0).any():
            raise DataError(
                "RewardScaler: expected finite means and deviations above 0, [E] each, got "
                f"{mean} and {deviation}."
            )

    @classmethod
    def fit(cls, rewards: FloatArray, *, target: float = 1.0, centre: bool = True) -> Self:
        """Compute the statistics of members' rewards `[E, T]`. A constant reward keeps its scale.

        Args:
            rewards: rewards of steps similar to those that a policy will make.
            target: standard deviation of the scaled rewards.
            centre: whether the mean becomes zero; if false, only the scale changes. If episodes can
                end early, a shift changes what an agent wants.
        """
        mean = rewards.mean(axis=1, dtype=np.float64)
        deviation = rewards.std(axis=1, dtype=np.float64)
        flat = deviation <= 1e-8 * (1 + np.abs(mean))
        deviation = np.where(flat, target, deviation)
        return cls(mean if centre else np.zeros_like(mean), deviation, target)

    def __call__(self, rewards: FloatArray) -> FloatArray:
        """Scale members' rewards `[E, ...]`; the shape stays."""
        column = (-1,) + (1,) * (rewards.ndim - 1)
        scale = (self.target / self.deviation).reshape(column)
        return np.asarray((rewards - self.mean.reshape(column)) * scale, np.float32)


def scale_by_return_range(
    episodes: Episodes, task: str | Task | float | None = None, *, learned: bool = True
) -> Episodes:
    """Return the episodes with rewards `r * M / (R_max - R_min)`, and the shifts of their task.

    `R_max` and `R_min` are the highest and the lowest return of the episodes. If all returns are
    the same, there is no range to divide by. Rewards then keep their scale, and there is a warning.
    Rewards keep their precision, too. All other arrays are shared.

    Args:
        episodes: relabelled experience; it is not changed.
        task: a name or row of `preferl.data.TASKS`, which has `M` and the shifts; or `M` itself; or
            None. None takes the length of the longest episode for `M`, since the data show no
            better horizon. Without a task, nothing is shifted.
        learned: whether the rewards are learned (the default). False scales the environment's own
            rewards as the same papers do; in some tasks they are only shifted.

    Raises:
        ConfigError: the task is unknown, or `M` is not above 0.

    >>> episodes = Episodes(np.zeros((4, 1)), np.zeros((4, 1)), np.array([1.0, 2, 3, 4]),
    ...                     np.zeros(4, bool), np.zeros((2, 1)), np.array([2, 2]))
    >>> scale_by_return_range(episodes, 8).rewards.tolist()  # returns 3 and 7
    [2.0, 4.0, 6.0, 8.0]
    """
    if not len(episodes):
        return episodes
    rewards = np.asarray(episodes.rewards, np.float64)
    shift = 0.0
    scaled = True
    if isinstance(task, str | Task):
        row = find_task(task)
        horizon = float(row.max_episode_steps)
        shift = row.shift_after if learned else row.own_shift
        scaled = learned or row.scales_own_reward
        if learned and row.from_lowest:
            lowest = episodes.returns.min() / episodes.lengths
            rewards = rewards - np.repeat(lowest, episodes.lengths)
    else:
        horizon = float(episodes.lengths.max() if task is None else task)
        if not 0 < horizon < float("inf"):
            raise ConfigError(f"task: expected a task, or steps above 0, got {horizon}.")
    rewards = rewards * (_scale(episodes.returns, horizon) if scaled else 1.0) + shift
    precision = np.result_type(episodes.rewards, np.float32)  # rewards may be whole numbers
    return replace(episodes, rewards=rewards.astype(precision))


def _scale(returns: FloatArray, horizon: float) -> float:
    span = float(returns.max() - returns.min())
    if span <= 1e-8 * float(np.abs(returns).max()):  # no range, or only rounding errors
        warnings.warn(
            "returns to scale by: expected a highest and a lowest, got "
            f"{returns[0]:g} for all {len(returns)} episodes. Rewards keep their scale.",
            stacklevel=3,
        )
        return 1.0
    return horizon / span
