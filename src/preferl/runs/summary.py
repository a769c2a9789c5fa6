"""The summary of a run: a few numbers that all kinds of runs have, for lists and comparisons.

`open_run` writes the file with the run's subject, and `RunFolder.result` adds its numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np

from preferl.shapes import FloatArray
from preferl.statistics import bootstrap_interval, mean_interval, wilson_interval

SUMMARY: Final = "summary.json"
"""File of a run's summary."""

UNSEEN: Final = {"held_out": "held-out", "validation": "left-out", "out_of_bag": "out-of-bag"}
"""Words for answers outside of a reward's fit, by their names in metrics."""

EVALUATED: Final = "Evaluated return while learning"
"""Title of the curve that every kind of agent has."""


@final
@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval.

    Attributes:
        mean: mean of `values`, or a mean that was reported.
        count: number of values behind the mean; 0 if it is not known.
        of: what the values are: "episodes", "seeds", or "answers", perhaps with a word for which
            answers.
        interval: 95 % interval; None if it is not known.
        values: the single values, if they were kept.
        success: share of the episodes that succeeded; None if it is not known.
    """

    mean: float
    count: int = 0
    of: str = ""
    interval: tuple[float, float] | None = None
    values: tuple[float, ...] = field(default=(), repr=False)
    success: float | None = None

    @classmethod
    def of_episodes(cls, returns: FloatArray, success: float | None = None) -> "Estimate":
        """Estimate a mean return by the episodes of one agent, with a bootstrap interval."""
        interval = bootstrap_interval(returns, np.random.default_rng(0))
        values = tuple(returns.tolist())
        return cls(float(returns.mean()), len(values), "episodes", interval, values, success)

    @classmethod
    def of_seeds(cls, scores: FloatArray, success: float | None = None) -> "Estimate":
        """Estimate a mean score by several seeds, with Student's t interval."""
        values = tuple(scores.tolist())
        interval = mean_interval(scores)
        return cls(float(scores.mean()), len(values), "seeds", interval, values, success)

    @classmethod
    def of_answers(cls, accuracy: float, count: int, which: str = "") -> "Estimate":
        """Estimate an accuracy by `count` decided answers, with Wilson's interval."""
        right = round(2 * accuracy * count) / 2  # equal scores count as half right
        return cls(accuracy, count, f"{which} answers".strip(), wilson_interval(right, count))


@final
@dataclass(frozen=True)
class Finding:
    """Something that is probably wrong with a run.

    Attributes:
        name: its name on the page "Is it working?", which explains it.
        text: what was seen, in numbers, and why it matters.
        tries: what to try, likeliest first.
    """

    name: str
    text: str
    tries: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """Return the text, and what to try.

        >>> Finding("at_chance", "It guesses.", ("ask somebody else", "ask more")).in_words
        'It guesses. What to try: (1) ask somebody else; (2) ask more.'
        """
        numbered = (f"({number}) {words}" for number, words in enumerate(self.tries, start=1))
        return f"{self.text} What to try: {'; '.join(numbered)}."


@final
@dataclass(frozen=True)
class MetricCurve:
    """A curve that a run's `metrics.jsonl` has, or will have.

    Attributes:
        title: name of the curve for people.
        unit: unit of the values.
        metrics: names of its metrics in the file, one for each agent. Metrics that were never
            logged are left out.
        x_unit: unit of the steps.
    """

    title: str
    unit: str
    metrics: tuple[str, ...]
    x_unit: str = "environment steps"


@final
@dataclass(frozen=True)
class RunSummary:
    """The subject and the results of a run, as in its `summary.json`.

    Attributes:
        kind: "online", "offline", "reward" (a fit) or "data" (a recorded data set).
        subject: its environment or data.
        curves: metrics to draw.
        finished: whether the run reached its end. Until then, the numbers below are None; an
            interrupted run has those that are known.
        seconds: seconds of work.
        steps: number of environment steps, updates, epochs or recorded steps; `steps_of` says
            which.
        answers: number of comparisons that the run learned from.
        score: score of the run's policy by the environment's reward, in `unit`.
        beside: scores of policies for comparison, such as random actions.
        accuracy: accuracy of the reward on answers outside of its fit.
        reward: further numbers of the reward by name, such as its log loss.
        findings: what is probably wrong.
    """

    kind: str = "other"
    subject: str = ""
    curves: tuple[MetricCurve, ...] = field(default=(), repr=False)
    finished: bool = False
    seconds: float | None = None
    steps: int | None = None
    steps_of: str = "environment steps"
    answers: int | None = None
    score: Estimate | None = None
    unit: str = "return"
    beside: Mapping[str, Estimate] = field(default_factory=dict)
    accuracy: Estimate | None = None
    reward: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
