"""Rewards on a scale that policies like: an affine map per member, fixed with its version."""

from dataclasses import dataclass
from typing import Self, final

import numpy as np

from preferl.errors import ConfigError, DataError
from preferl.shapes import FloatArray


@final
@dataclass(frozen=True, eq=False)
class RewardScaler:
    """Each member's mean to zero and its deviation to `target`, before members are combined.

    Normalising each member before averaging weighs members alike whatever their scale
    (Christiano et al. 2017, section 2.2.2; the DTR paper measured it better than normalising the
    mean). The statistics belong to one version of a reward and never move after.

    Attributes:
        mean: `[E]`
        deviation: `[E]`, more than 0.
        target: deviation of the outcome; 1 as for states in the DRLHP paper, which took 0.05
            for pixels.
    """

    mean: FloatArray
    deviation: FloatArray
    target: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.target < np.inf:
            raise ConfigError.mismatch(
                "target deviation", expected="a finite number above 0", got=self.target
            )
        whole = np.isfinite(self.mean).all() and np.isfinite(self.deviation).all()
        if self.mean.shape != self.deviation.shape or not (whole and (self.deviation > 0).all()):
            raise DataError.mismatch(
                "RewardScaler",
                expected="finite means and deviations above 0, [E] each",
                got=f"{self.mean} and {self.deviation}",
            )

    @classmethod
    def fit(cls, rewards: FloatArray, *, target: float = 1.0, centre: bool = True) -> Self:
        """Statistics of rewards `[E, T]` of reference steps.

        Args:
            rewards: a member's rewards of steps like those that will be paid.
            target: deviation of the outcome.
            centre: whether the mean becomes zero. Where episodes can end early, a shift changes
                what an agent wants; without it only the scale changes.

        A constant reward keeps its scale, since it has none.
        """
        mean = rewards.mean(axis=1, dtype=np.float64)
        deviation = rewards.std(axis=1, dtype=np.float64)
        flat = deviation <= 1e-8 * (1 + np.abs(mean))
        return cls(
            mean if centre else np.zeros_like(mean), np.where(flat, target, deviation), target
        )

    def __call__(self, rewards: FloatArray) -> FloatArray:
        """`[E, ...]` to the same shape."""
        column = (-1,) + (1,) * (rewards.ndim - 1)
        scale = (self.target / self.deviation).reshape(column)
        scaled = (rewards - self.mean.reshape(column)) * scale
        return np.asarray(scaled, np.float32)
