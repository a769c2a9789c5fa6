"""Evaluations while a policy learns: its return at regular steps, and the learning curve.

The episodes that a policy learns from include exploration and come from many versions of the
policy. An evaluation lets one version act without exploring, in separate environments with separate
seeds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Self, final

import numpy as np

from preferl.envs.config import EnvSource
from preferl.errors import DataError, require_in
from preferl.evaluation.policies import Policy
from preferl.evaluation.policy import PolicyReport, evaluate_policy
from preferl.reading import reading
from preferl.statistics import mean_interval
from preferl.training.generators import generators_left_alone

EVALUATIONS: Final = 10
"""How many evaluations a run has by default; they take a few percent of its time."""


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """The evaluation of a policy after a number of steps, or updates, of learning.

    Attributes:
        step: the number of steps or updates.
        report: the evaluated episodes.
        means: the mean return of each agent, if several are `pooled`.
    """

    step: int
    report: PolicyReport
    means: tuple[float, ...] = ()

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean return, over agents (Student's t) or over one agent's episodes.

        Episodes of one agent do not show how much another seed would change the mean. An interval
        over the episodes of all agents would therefore be too narrow.
        """
        return mean_interval(np.array(self.means)) or self.report.interval

    def metrics(self, prefix: str = "eval") -> dict[str, float]:
        """Return numbers for a metric sink, named as in stable-baselines3's `EvalCallback`.

        `eval/mean_reward` is the mean return of whole episodes. Further entries are the ends of its
        95 % interval and the number of episodes.
        """
        report = self.report
        low, high = self.interval
        values = {
            "mean_reward": report.mean,
            "mean_reward_low": low,
            "mean_reward_high": high,
            "mean_ep_length": float(report.lengths.mean()),
            "episodes": report.episodes,
            "success_rate": report.success_rate,
        }
        return {f"{prefix}/{name}": value for name, value in values.items() if value is not None}

    @property
    def in_words(self) -> str:
        """The mean return in words, with its interval, the episodes, and successes if known.

        All evaluations during a run use the same episodes; the evaluation at its end uses others.

        >>> report = PolicyReport(np.array([-15.0, -13.0, -11.0]), np.array([5, 5, 5]))
        >>> Evaluation(100, report).in_words
        'return -13.0 (95 % interval -15.0 to -11.0, the same 3 episodes each time)'
        """
        returned = self.report.mean
        rate = self.report.success_rate
        success = "" if rate is None else f", success {100 * rate:.0f} %"
        agents = max(1, len(self.means))
        count = f"the same {self.report.episodes // agents:,} episodes each time"
        count += f" for each of {agents} agents" if agents > 1 else ""
        digits = 1 if abs(returned) >= 10 else 2
        mean, low, high = (f"{value:,.{digits}f}" for value in (returned, *self.interval))
        return f"return {mean} (95 % interval {low} to {high}, {count}){success}"

    def to_json(self) -> dict[str, Any]:
        """Return step, summary and episodes as plain numbers and lists."""
        return {"step": self.step, **self.report.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the evaluation that `to_json` wrote; raise `DataError` for anything else."""
        with reading("evaluation", expected="a step and its episodes", error=DataError):
            return cls(int(data["step"]), PolicyReport.from_json(data))

    @classmethod
    def pooled(cls, several: Iterable[Self]) -> Self:
        """Join evaluations of several agents at the same step into one, with all their episodes.

        >>> low, high = (Evaluation(9, PolicyReport(np.full(2, m), np.full(2, 5))) for m in (1, 3))
        >>> Evaluation.pooled([low, high]).in_words.partition("14.71, ")[2]
        'the same 2 episodes each time for each of 2 agents)'
        """
        steps, reports = zip(
            *((evaluation.step, evaluation.report) for evaluation in several), strict=True
        )
        success = [report.success for report in reports if report.success is not None]
        return cls(
            steps[0],
            PolicyReport(
                np.concatenate([report.returns for report in reports]),
                np.concatenate([report.lengths for report in reports]),
                np.concatenate(success) if len(success) == len(reports) else None,
            ),
            tuple(report.mean for report in reports),
        )


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluator:
    """Evaluates a policy while it learns, at the first chance after every `every` steps.

    The program's global generators, from which algorithms draw, are left unchanged. A run therefore
    learns the same policy with and without evaluations. All evaluations have the same episodes, so
    two evaluations differ only by the policy. Choosing a policy by them would favour one that
    happens to suit these episodes.

    Args:
        env: the id of an environment, or a function without arguments that makes one.
        every: steps between two evaluations; 0 makes none.
        episodes: number of whole episodes in each evaluation.
        seed: seed of the first episode; choose one that training does not use.
        max_steps: steps after which episodes are cut off; None leaves this to the environment.

    Raises:
        ConfigError: `every` is negative, or `episodes` is less than one.
    """

    env: EnvSource = field(kw_only=False)
    every: int
    episodes: int = 10
    seed: int
    max_steps: int | None = None

    def __post_init__(self) -> None:
        require_in("eval_every", self.every, 0, inf)
        require_in("eval_episodes", self.episodes, 1, inf)

    def due(self, step: int, before: int | None, *, over: bool = False) -> bool:
        """Whether an evaluation is due at a step; `before` is the step of the last one, if any.

        The first evaluation is always due, and so is the last one, when the run is `over`.

        >>> evaluator = Evaluator("Pendulum-v1", every=100, seed=0)
        >>> [evaluator.due(*steps) for steps in ((0, None), (90, 0), (100, 90), (199, 100))]
        [True, False, True, False]
        """
        if not self.every or step == before:
            return False
        return over or before is None or step // self.every > before // self.every

    def __call__(self, policy: Policy) -> PolicyReport:
        """Evaluate a policy as it is now; for errors, see `evaluate_policy`."""
        with generators_left_alone():
            return evaluate_policy(
                policy,
                self.env,
                episodes=self.episodes,
                seed=self.seed,
                max_steps=self.max_steps,
            )


def evaluation_interval(eval_every: int | None, steps: int) -> int:
    """Return the steps between two evaluations: `eval_every`, or enough for `EVALUATIONS`."""
    return max(1, steps // EVALUATIONS) if eval_every is None else eval_every


def in_step(runs: Iterable[Sequence[Evaluation]]) -> list[tuple[Evaluation, ...]]:
    """Group evaluations of several agents by the steps at which all of them were evaluated.

    An agent's last evaluation at a step counts.
    """
    by_step = [{evaluation.step: evaluation for evaluation in run} for run in runs]
    common = set.intersection(*map(set, by_step)) if by_step else set()
    return [tuple(run[step] for run in by_step) for step in sorted(common)]
