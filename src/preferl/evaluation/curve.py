"""Evaluations while a policy learns: its return every so often, and the curve of these.

Returns of the episodes that a policy learns from are those of exploring, and mix many policies.
Here the policy of one moment acts without exploring, in environments and with seeds of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
"""By default in a run: they show its course, at some percent of its time."""


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """A policy's episodes after so many steps, or updates, of learning.

    Attributes:
        step: how many those are.
        report: the episodes.
        means: the mean return of each agent, where several are `pooled`.
    """

    step: int
    report: PolicyReport
    means: tuple[float, ...] = ()

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean return: over agents (Student's t), or over one's episodes.

        Episodes of one agent do not show how much another seed would change the mean, so that an
        interval over the episodes of all agents would be too narrow.
        """
        return mean_interval(np.array(self.means)) or self.report.interval

    def metrics(self, prefix: str = "eval") -> dict[str, float]:
        """Numbers for a metric sink, by the names of stable-baselines3's `EvalCallback`.

        `eval/mean_reward` is the mean return of whole episodes. The ends of its 95 % interval, and
        how many episodes these are, are beside it.
        """
        report, (low, high) = self.report, self.interval
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
        """The mean return, its interval, of which episodes, and how many succeed where known.

        They are the same at each evaluation of a run, and others evaluate it at its end.

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
        """Step, summary and episodes as plain numbers and lists."""
        return {"step": self.step, **self.report.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The evaluation that `to_json` wrote; raises `DataError` if it is none."""
        with reading("evaluation", expected="a step and its episodes", error=DataError):
            return cls(int(data["step"]), PolicyReport.from_json(data))

    @classmethod
    def pooled(cls, several: Iterable[Self]) -> Self:
        """Evaluations of several agents at the same step as one, of all their episodes.

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
class Evaluator:
    """Evaluates a policy while it learns, at its first chance after every so many steps.

    The generators of the program, from which algorithms draw, are left as they were. So a run
    learns the same policy with and without evaluations. Each evaluation has the same episodes, so
    that two differ by the policy alone; to choose by them would favour what suits these episodes.

    Args:
        env: the id of an environment, or a function without arguments that makes one.
        every: steps between two evaluations; 0 makes none.
        episodes: of each evaluation, whole ones.
        seed: of the first episode; choose one that training does not use.
        max_steps: cut episodes off after this many; None leaves it to the environment.

    Raises:
        ConfigError: less than 0 steps, or less than one episode.
    """

    def __init__(
        self,
        env: EnvSource,
        *,
        every: int,
        episodes: int = 10,
        seed: int,
        max_steps: int | None = None,
    ) -> None:
        require_in("eval_every", every, 0, inf)
        require_in("eval_episodes", episodes, 1, inf)
        self.env = env
        self.every = every
        self.episodes = episodes
        self.seed = seed
        self.max_steps = max_steps

    def due(self, step: int, before: int | None, *, over: bool = False) -> bool:
        """Whether an evaluation is due at a step; `before` is the step of the last one, if any.

        The first chance is always taken, and so is the last one, when the run is `over`.

        >>> evaluator = Evaluator("Pendulum-v1", every=100, seed=0)
        >>> [evaluator.due(*steps) for steps in ((0, None), (90, 0), (100, 90), (199, 100))]
        [True, False, True, False]
        """
        if not self.every or step == before:
            return False
        return over or before is None or step // self.every > before // self.every

    def __call__(self, policy: Policy) -> PolicyReport:
        """The report of a policy as it is now; errors are those of `evaluate_policy`."""
        with generators_left_alone():
            return evaluate_policy(
                policy,
                self.env,
                episodes=self.episodes,
                seed=self.seed,
                max_steps=self.max_steps,
            )


def often(every: int | None, steps: int) -> int:
    """Return the steps between two evaluations: `every`, or those of `EVALUATIONS` in all."""
    return max(1, steps // EVALUATIONS) if every is None else every


def in_step(runs: Iterable[Sequence[Evaluation]]) -> list[tuple[Evaluation, ...]]:
    """Evaluations of several agents, by steps at which all of them were evaluated.

    The last one of an agent at a step counts.
    """
    by_step = [{evaluation.step: evaluation for evaluation in run} for run in runs]
    common = set.intersection(*map(set, by_step)) if by_step else set()
    return [tuple(run[step] for run in by_step) for step in sorted(common)]
