"""Reports of an iteration and of a run, and warnings about their numbers."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.evaluation.curve import Evaluation
from preferl.evaluation.findings import Course
from preferl.evaluation.policy import PolicyReport
from preferl.online.configs import OnlineConfig
from preferl.runs.summary import Finding
from preferl.statistics import share_in_words
from preferl.training.annotator_trust import trust_by_name
from preferl.training.checkpoint_folder import saved_in_states
from preferl.training.fit_report import FitReport, Validation
from preferl.training.reward_function import RewardFunction

PARTS: Final = ("acting", "fitting", "relabelling", "asking")
"""Parts of an iteration whose seconds are counted."""

for _struct in (Evaluation, PolicyReport):
    saved_in_states(_struct)


@final
@saved_in_states
@dataclass(frozen=True)
class IterationReport:
    """The report of one iteration of act, ask and fit.

    Attributes:
        iteration: number of this iteration; in number 0, the policy has not learned yet.
        iterations: number of the last iteration.
        env_steps: environment steps used so far.
        comparisons: answers so far.
        fit: report of the fit of the reward model; None if nothing was asked.
        mean_return: mean return, by the environment's reward, of the whole episodes that the agent
            learned from; NaN without any. The agent explored in them: `evaluation` shows what it
            has learned.
        episodes: number of those episodes.
        validation: validation of the reward on the answers that are held out of every fit; None if
            none are held out, or nothing was fitted.
        query_entropy: how uncertain the reward in use was about the new queries: entropy of the
            predicted preferences in nats, mean over queries and members, without the noise of
            answers. NaN without queries or without a reward.
        query_deviation: how much the members disagreed: standard deviation of their log-odds, mean
            over the queries. NaN without queries or a reward, and with one member.
        evaluation: latest evaluation of the policy, without exploration; None before the first.
        ties: share of ties among the answers so far; NaN without queries.
        contradicted: share of contradicted pairs among the pairs with several answers; pairs of
            equal clips are the same pair. NaN without such pairs.
        has_true_reward: whether the environment gave any reward in the steps so far, see
            `Episodes.has_true_reward`. If it gave none, returns mean nothing.
            `Episodes.has_true_reward`; returns tell nothing otherwise.
        seconds: wall time of each of `PARTS`: acting and learning, including evaluations and the
            learned rewards of its steps; fitting the reward; relabelling experience with it;
            choosing queries and having them answered. Comparisons of reports leave it out.
    """

    iteration: int
    iterations: int
    env_steps: int
    comparisons: int
    fit: FitReport | None
    mean_return: float
    episodes: int
    validation: Validation | None = None
    query_entropy: float = float("nan")
    query_deviation: float = float("nan")
    evaluation: Evaluation | None = None
    ties: float = float("nan")
    contradicted: float = float("nan")
    has_true_reward: bool = True
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def accuracy_in_words(self) -> str:
        """Say how accurate the reward is on held-out answers, or else on out-of-bag answers."""
        held_out = self.validation
        if held_out is not None and held_out.accuracy is not None and held_out.interval is not None:
            return share_in_words(
                held_out.accuracy, held_out.interval, held_out.decided, "held-out answers"
            )
        return "unknown" if self.fit is None else self.fit.held_out_in_words

    @property
    def unseen_accuracy(self) -> tuple[float, int]:
        """Return the reward's accuracy on decided answers outside of its fit, and their number.

        These are the held-out or the out-of-bag answers, whichever are more; NaN and 0 if there are
        none.
        """
        unseen = [(0, math.nan)]
        if self.fit is not None and self.fit.held_out_accuracy is not None:
            unseen.append((self.fit.decided, self.fit.held_out_accuracy))
        if self.validation is not None and self.validation.accuracy is not None:
            unseen.append((self.validation.decided, self.validation.accuracy))
        decided, accuracy = max(unseen)
        return accuracy, decided

    def metrics(self) -> dict[str, float]:
        """Return the numbers of this iteration for a metric sink."""
        values = {"policy/true_return": self.mean_return, "feedback/answers": self.comparisons}
        if self.fit is not None:
            values |= self.fit.metrics()
        if (held_out := self.validation) is not None and held_out.accuracy is not None:
            low, high = held_out.interval or (math.nan, math.nan)
            values["reward/held_out_accuracy"] = held_out.accuracy
            values |= {"reward/held_out_accuracy_low": low, "reward/held_out_accuracy_high": high}
            values["reward/held_out_answers"] = held_out.decided
        for name in ("entropy", "deviation"):
            if not math.isnan(value := getattr(self, f"query_{name}")):
                values[f"feedback/{name}"] = value
        return values | {f"time/{part}": seconds for part, seconds in self.seconds.items()}


@final
@dataclass(frozen=True, eq=False)
class OnlineReport:
    """The result of a run.

    Attributes:
        iterations: report of each iteration.
        reward: the last learned reward; None if the run ended before there was one.
        comparisons: all answers kept; None if there are none.
        env_steps: environment steps used in all, including exploration.
        seconds: wall time.
        interrupted: whether somebody stopped the run early.
        learner: the agent that learned; None if the run made no steps.
        experience: the latest episodes, up to `buffer_steps` steps.
        evaluations: evaluations of the policy while it learned, in order.
        findings: faults that the numbers of the iterations show.
    """

    iterations: tuple[IterationReport, ...]
    reward: RewardFunction | None
    comparisons: Comparisons | None
    env_steps: int
    seconds: float
    interrupted: bool
    learner: Any
    experience: Episodes | None
    evaluations: tuple[Evaluation, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def last_fitted(self) -> IterationReport | None:
        """Return the last iteration that fitted the reward; None if there is none.

        By default, this is not the last iteration of the run, which asks and fits nothing.
        """
        with_fit = [iteration for iteration in self.iterations if iteration.fit is not None]
        return with_fit[-1] if with_fit else None

    @property
    def accuracy_in_words(self) -> str:
        """Say how accurate the last fit is on answers that it left out; "" without a fit."""
        return "" if self.last_fitted is None else self.last_fitted.accuracy_in_words

    @property
    def has_true_reward(self) -> bool:
        """Return whether the environment gave any reward in the steps of any iteration."""
        return any(iteration.has_true_reward for iteration in self.iterations)

    @property
    def part_seconds(self) -> dict[str, float]:
        """Return the wall time of each of `PARTS`, summed over all iterations."""
        return {
            part: sum(report.seconds.get(part, 0.0) for report in self.iterations) for part in PARTS
        }

    @property
    def time_in_words(self) -> str:
        """Say how long the run took, and which share of that the reward took."""
        parts = self.part_seconds
        share = (parts["fitting"] + parts["relabelling"]) / self.seconds if self.seconds else 0.0
        return f"{self.seconds:,.0f} s, {100 * share:.0f} % of them for fits and relabelling"


def trust_of(report: OnlineReport, names: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """Return the trust in each annotator after the last fit, by name.

    The result is empty if no annotator is known. `names` are those of the table of people.
    Annotators who are not in the table, such as those of a warm start, are named by their row.
    """
    last = report.last_fitted
    trust = () if last is None or last.fit is None else last.fit.trust
    rows = range(len(names), 1 + max((annotator.annotator for annotator in trust), default=-1))
    return trust_by_name(trust, [*names, *(f"annotator {row}" for row in rows)]) or {}


@final
class Stopwatch:
    """Adds up the seconds of each of `PARTS`. An inner part does not count for the outer one.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(PARTS, 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time of a block for a part, even if the block raises an error."""
        started_at = self._clock()
        counted_seconds = sum(self._seconds.values())
        try:
            yield
        finally:
            within = sum(self._seconds.values()) - counted_seconds
            self._seconds[name] += self._clock() - started_at - within

    def take(self) -> dict[str, float]:
        """Return the seconds so far, and start again at 0."""
        seconds = self._seconds
        self._seconds = dict.fromkeys(PARTS, 0.0)
        return seconds


def course_of(iterations: Sequence[IterationReport], config: OnlineConfig) -> Course:
    """Return the numbers of all iterations, in which `findings` looks for faults.

    The number of answers is unknown once the oldest are dropped (`max_comparisons`). The noise is
    unknown if it was not fitted: because of the settings, or because there were no decided unseen
    answers.
    """
    rows = []
    evaluated_at = None
    max_comparisons = config.max_comparisons or math.inf
    for iteration in iterations:
        true_return = low = high = math.nan
        evaluation = iteration.evaluation
        if evaluation is not None and evaluation.step != evaluated_at and iteration.has_true_reward:
            evaluated_at = evaluation.step
            true_return = evaluation.report.mean
            low, high = evaluation.interval
        noise = math.nan
        if iteration.fit is not None and iteration.fit.decided and config.trainer.calibrate:
            noise = iteration.fit.likelihood.noise
        accuracy, decided = iteration.unseen_accuracy
        answers = iteration.comparisons if iteration.comparisons < max_comparisons else math.nan
        accuracy, decided = iteration.unseen_accuracy
        uncertainty = (iteration.query_entropy, iteration.query_deviation)
        answer_shares = (iteration.ties, iteration.contradicted)
        fit_numbers = (accuracy, decided, true_return, low, high, noise)
        rows.append((iteration.env_steps, answers, *fit_numbers, *uncertainty, *answer_shares))
    columns = np.array(rows, float).reshape(-1, len(Course._fields) - 1).T
    return Course._make([*columns, config.steps])
