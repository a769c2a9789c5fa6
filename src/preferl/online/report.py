"""What an online run reports after each iteration and at its end."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, final

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.training.fit import FitReport
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
        mean_return: of the iteration's whole episodes by the environment's reward, NaN without any.
        episodes: how many those were.
    """

    iteration: int
    iterations: int
    env_steps: int
    comparisons: int
    fit: FitReport | None
    mean_return: float
    episodes: int

    turn = property(attrgetter("iteration"), doc="Former name of `iteration`.")

    def metrics(self) -> dict[str, float]:
        """The numbers of this iteration for a metric sink."""
        values = {"policy/true_return": self.mean_return, "feedback/answers": self.comparisons}
        if self.fit is not None:
            last = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy")
            values |= {f"reward/{name}": getattr(self.fit, name)[-1] for name in last}
            values["reward/seconds"] = self.fit.seconds
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
    """

    iterations: tuple[IterationReport, ...]
    reward: RewardFunction | None
    comparisons: Comparisons | None
    env_steps: int
    seconds: float
    interrupted: bool
    learner: Any
    experience: Episodes | None

    turns = property(attrgetter("iterations"), doc="Former name of `iterations`.")
