"""What the agents of each arm earn, by seed and together, and whether the differences are real."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self, final

import numpy as np

from preferl.data.tasks import Task, normalised_score
from preferl.evaluation.policy import PolicyReport
from preferl.offline.arms import CLONING, LEARNED, NEGATED, RANDOM, TRUE, ZERO
from preferl.offline.decision_policy import DecisionTransformerPolicy
from preferl.shapes import FloatArray
from preferl.statistics import spearman

WORDS: Final = {
    ZERO: "no reward",
    RANDOM: "a random reward",
    NEGATED: "its opposite",
    CLONING: "cloning the data",
}
"""What the learned reward is held against, in a sentence."""

ASKED: Final = ("q0", "q0.25", "q0.5", "q0.75", "q0.95")
"""Quantiles of the recorded returns that are asked for."""


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


@final
@dataclass(frozen=True)
class Verdict:
    """How the arm that was paid the learned reward compares with the controls.

    An arm is beaten, or beats, where the difference of the means over seeds is larger than its
    95 % interval by Welch's t-test. With a single seed the interval is that of the episodes, which
    says nothing about how much training varies.

    Attributes:
        beaten: controls that did worse.
        unclear: controls from which it cannot be told apart.
        lost_to: controls that did better.
        text: the same in a sentence or two.
    """

    beaten: tuple[str, ...]
    unclear: tuple[str, ...]
    lost_to: tuple[str, ...]
    text: str

    @property
    def passed(self) -> bool:
        """Whether every control was beaten."""
        return bool(self.beaten) and not self.unclear and not self.lost_to

    def to_json(self) -> dict[str, Any]:
        """Its fields, and whether it is passed."""
        return asdict(self) | {"passed": self.passed}


def compare(
    arms: Mapping[str, FloatArray], episodes: Mapping[str, FloatArray] | None = None
) -> Verdict | None:
    """Hold the learned arm against the others; None where there are no others.

    Args:
        arms: names to `[S]` mean returns of its seeds. `true` is a ceiling and no control.
        episodes: names to returns of single episodes, which stand in where there is one seed.

    >>> verdict = compare({"learned": np.array([9.0, 10, 11]), "zero": np.array([0.0, 1, 2])})
    >>> verdict.passed, verdict.text
    (True, 'The learned reward did better than no reward.')
    """
    controls = [name for name in arms if name not in (LEARNED, TRUE)]
    if LEARNED not in arms or not controls:
        return None
    single = len(arms[LEARNED]) == 1
    drawn = episodes if single and episodes is not None else arms
    signs = {name: _clear_sign(drawn[LEARNED], drawn[name]) for name in controls}
    beaten, unclear, lost = (
        tuple(name for name in controls if signs[name] == sign) for sign in (1, 0, -1)
    )
    return Verdict(beaten, unclear, lost, _text(beaten, unclear, lost, single))


def t_quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's t (Abramowitz and Stegun, 26.7.5), good from 2 on.

    >>> round(t_quantile(4), 2), round(t_quantile(1e9), 2)
    (2.78, 1.96)
    """
    z = 1.959964
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**k for k, term in enumerate(terms, start=1))


def _clear_sign(ours: FloatArray, theirs: FloatArray) -> int:
    """1 if ours are clearly higher, -1 if clearly lower, 0 if it cannot be told."""
    difference = float(ours.mean() - theirs.mean())
    if len(ours) < 2 or len(theirs) < 2:
        return 0
    shares = np.array([ours.var(ddof=1) / len(ours), theirs.var(ddof=1) / len(theirs)])
    spread = float(shares.sum())
    if spread == 0:
        return int(np.sign(difference))
    freedom = spread**2 / float((shares**2 / (np.array([len(ours), len(theirs)]) - 1)).sum())
    clear = abs(difference) > t_quantile(freedom) * math.sqrt(spread)
    return int(np.sign(difference)) if clear else 0


def _text(
    beaten: tuple[str, ...], unclear: tuple[str, ...], lost: tuple[str, ...], single: bool
) -> str:
    parts = []
    if beaten:
        parts.append(f"The learned reward did better than {_and(beaten)}.")
    if lost:
        parts.append(f"It did worse than {_and(lost)}.")
    if unclear:
        parts.append(f"It cannot be told apart from {_and(unclear)}.")
    if lost or unclear:
        parts.append("So the comparisons are not shown to have taught these policies.")
    if not beaten:
        parts[0] = parts[0].replace("It ", "The learned reward ", 1)
    if single:
        parts.append("With one seed, how much training varies is not known.")
    return " ".join(parts)


def _and(names: tuple[str, ...]) -> str:
    *first, last = (WORDS.get(name, name) for name in names)
    return f"{', '.join(first)} and {last}" if first else last


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
