"""Whether a policy earns more where more is asked of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, final

import numpy as np

from preferl.evaluation.policy import PolicyReport
from preferl.offline.decision_policy import DecisionTransformerPolicy
from preferl.shapes import FloatArray
from preferl.statistics import spearman

ASKED: Final = ("q0", "q0.25", "q0.5", "q0.75", "q0.95")
"""Quantiles of the recorded returns that are asked for."""


@final
@dataclass(frozen=True, eq=False)
class Following:
    """What was asked of the policies of one arm, and what they earned.

    Attributes:
        targets: `Q` as they were asked for, such as `"q0.5"`.
        asked: `[Q]` returns by the reward that the policies were taught by.
        achieved: `[S, Q]` mean returns by the environment's reward, by seed.

    >>> shown = Following(("q0", "q1"), np.array([0.0, 5.0]), np.array([[1.0, 2.0], [1.0, 3.0]]))
    >>> shown.rank_correlation
    1.0
    """

    targets: tuple[str, ...]
    asked: FloatArray
    achieved: FloatArray

    @classmethod
    def of(
        cls,
        reports: Mapping[str, PolicyReport],
        policies: Sequence[DecisionTransformerPolicy],
        names: Sequence[str],
        targets: Sequence[str] = ASKED,
    ) -> Self:
        """Of a report for each name and target, as `asking_names` words them."""
        achieved = [[reports[asking_name(name, t)].mean for t in targets] for name in names]
        asked = [policies[0].conditions.target(target) for target in targets]
        return cls(tuple(targets), np.array(asked), np.array(achieved))

    @property
    def rank_correlation(self) -> float:
        """Of asked and achieved, means over seeds; NaN where either is all the same."""
        return spearman(self.asked, self.achieved.mean(0))

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        correlation = self.rank_correlation
        return {
            "targets": list(self.targets),
            "asked": self.asked.tolist(),
            "achieved": self.achieved.tolist(),
            "rank_correlation": None if np.isnan(correlation) else correlation,
        }


def asking_name(agent: str, target: str) -> str:
    """What an agent that is asked for a target is called."""
    return f"{agent}@{target}"
