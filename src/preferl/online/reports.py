"""What an iteration of the loop did, and what a run came to."""

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, final

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.evaluation.curve import Evaluation
from preferl.statistics import share_in_words
from preferl.training.fit_report import FitReport, Validation
from preferl.training.reward_function import RewardFunction


@final
@dataclass(frozen=True)
class IterationReport:
    """What one round of act, ask and fit did.

    Attributes:
        iteration: its number; 0 came before the policy learned.
        iterations: number of the last one.
        env_steps: used so far.
        comparisons: answered so far.
        fit: of the reward model; None where nothing was asked.
        mean_return: of the whole episodes that the agent learned from, by the environment's reward;
            NaN without any. The agent explored in them: `evaluation` shows what it has learned.
        episodes: how many those were.
        validation: of the reward on the answers that are held out of every fit; None where none
            are, or nothing was fitted.
        query_entropy: of the answers that the reward in use predicted for new queries, mean over
            these and over members, in nats; NaN without queries or without a reward.
        query_deviation: of the members' log-odds of these answers, mean over the queries; NaN
            likewise, and with one member.
        evaluation: the latest one of the policy, without exploring; None before the first.
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

    turn = property(attrgetter("iteration"), doc="Former name of `iteration`.")

    @property
    def accuracy_in_words(self) -> str:
        """Of the reward on answers that it was not fitted to: those held out, or else the fit's."""
        held_out = self.validation
        if held_out is not None and held_out.accuracy is not None and held_out.interval is not None:
            shown = held_out.accuracy, held_out.interval, held_out.judged
            return share_in_words(*shown, "held-out answers")
        return "unknown" if self.fit is None else self.fit.held_out_in_words

    def metrics(self) -> dict[str, float]:
        """The numbers of this iteration for a metric sink."""
        values = {"policy/true_return": self.mean_return, "feedback/answers": self.comparisons}
        if self.fit is not None:
            values |= self.fit.metrics()
        if (held_out := self.validation) is not None and held_out.accuracy is not None:
            low, high = held_out.interval or (math.nan, math.nan)
            values["reward/held_out_accuracy"] = held_out.accuracy
            values |= {"reward/held_out_accuracy_low": low, "reward/held_out_accuracy_high": high}
            values["reward/held_out_answers"] = held_out.judged
        for name in ("entropy", "deviation"):
            if not math.isnan(value := getattr(self, f"query_{name}")):
                values[f"feedback/{name}"] = value
        return values


@final
@dataclass(frozen=True, eq=False)
class OnlineReport:
    """What a run came to.

    Attributes:
        iterations: what each iteration did.
        reward: the last learned reward; None if the run ended before there was one.
        comparisons: all answers kept; None if there are none.
        env_steps: used in all, exploration included.
        seconds: wall time.
        interrupted: whether somebody stopped it early.
        learner: the agent that learned.
        experience: the latest episodes, as far as `buffer_steps` reaches.
        evaluations: of the policy while it learned, in their order.
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

    @property
    def last_fitted(self) -> IterationReport | None:
        """The last iteration that fitted the reward; None without one.

        It is seldom the last of all, which by default asks nothing.
        """
        return next((one for one in reversed(self.iterations) if one.fit is not None), None)

    turns = property(attrgetter("iterations"), doc="Former name of `iterations`.")
