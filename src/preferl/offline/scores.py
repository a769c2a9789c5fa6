"""What the agents of each arm earn in the environment, by seed and taken together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np

from preferl.data.tasks import Task, normalised_score
from preferl.evaluation.policy import PolicyReport
from preferl.shapes import FloatArray


@final
@dataclass(frozen=True, eq=False)
class ArmScore:
    """One arm's policies after their last update; means over episodes, by seed.

    Attributes:
        returns: `[S]` undiscounted sums of the environment's reward.
        episodes: `[S * K]` the same of single episodes.
        scores: `[S]` on D4RL's scale, 0 random and 100 expert; None without a task.
        success: `[S]` share of episodes that succeeded; None where the environment does not say.
    """

    returns: FloatArray
    episodes: FloatArray
    scores: FloatArray | None
    success: FloatArray | None

    @classmethod
    def of(cls, reports: Sequence[PolicyReport], task: Task | None) -> Self:
        """Of one report per seed."""
        returns = np.array([report.mean for report in reports])
        rates = [report.success_rate for report in reports]
        return cls(
            returns=returns,
            episodes=np.concatenate([report.returns for report in reports]),
            scores=None if task is None else normalised_score(task, returns),
            success=None if None in rates else np.array(rates, float),
        )

    @property
    def shown(self) -> FloatArray:
        """`[S]` scores, or returns where there are none."""
        return self.returns if self.scores is None else self.scores

    def to_json(self) -> dict[str, Any]:
        """Each number by seed, with its mean and, over seeds, deviation (with `S - 1`)."""
        named = {
            "return": self.returns,
            "normalised_score": self.scores,
            "success_rate": self.success,
        }
        return {
            name: None
            if values is None
            else {
                "mean": float(values.mean()),
                "std": float(values.std(ddof=1)) if len(values) > 1 else None,
                "seeds": values.tolist(),
            }
            for name, values in named.items()
        }


def score_arms(
    reports: Mapping[str, PolicyReport], agents: Mapping[str, Sequence[str]], task: Task | None
) -> dict[str, ArmScore]:
    """Scores by arm.

    Args:
        reports: by agent.
        agents: arms to the names of their agents, one per seed.
        task: whose reference returns normalise.
    """
    return {
        arm: ArmScore.of([reports[name] for name in names], task) for arm, names in agents.items()
    }
