"""Trust in each annotator: one number that multiplies the model's log-odds of a person's answers.

Hosseini et al. 2026, "Trust, Don't Trust, or Flip: Robust Preference-Based Reinforcement Learning
with Multi-Expert Feedback" (TriTrust-PBRL, TTP) fit such numbers together with the reward.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from preferl.errors import require_in
from preferl.printing import get_logger
from preferl.shapes import FloatArray, IntArray
from preferl.training.fitted_numbers import FittedNumbers

LOGGER = get_logger(__name__)

NOBODY: Final = -1
"""Marks answers of unknown people, such as fixed comparisons; trust in them is 1."""

PRIOR_DEVIATION: Final = 1.0
"""Standard deviation of the normal prior of each number around 1: people mean what they answer."""

QUANTILE: Final = 1.959964
"""How many standard deviations a 95 % interval reaches to either side."""

LIMIT: Final = 1e6
"""Largest number that is searched. Without a prior, trust in somebody always right is infinite."""


@final
@dataclass(frozen=True)
class Trust:
    """The trust in one annotator, fitted to answers that the reward was not fitted to.

    Attributes:
        annotator: row of the table of people, see `Comparisons.annotator`.
        value: 1 for answers as the reward's probabilities expect, 0 for random answers, and a
            negative number for opposite answers.
        low: lower end of the 95 % interval.
        high: upper end of the 95 % interval.
        answers: number of decided answers behind the value. If it is 0, the value is the prior's.
    """

    annotator: int
    value: float
    low: float
    high: float
    answers: int


@final
class AnnotatorTrust:
    """The trust that is fitted together with a reward, shared by all members.

    An answer of annotator `k` to a pair whose scores differ by `d` prefers the first clip with
    probability `ε/2 + (1 - ε) sigmoid(a_k d)`. Each `a_k` begins at 1 and has a normal prior around
    1. The scale of the scores is free, so the mean of `|a|` is brought back to 1 after each epoch.
    Answers of unknown people fix the scale, since trust in them stays 1, and then the mean stays as
    it is. The reward's sign follows the majority's answers, because every `a_k` begins at 1.

    With answers of fewer than two annotators, nothing is fitted and no number changes.

    Attributes:
        numbers: trust by row of the table of people.
    """

    def __init__(self, device: torch.device) -> None:
        self.numbers = FittedNumbers(torch.ones(0, device=device))
        self._rows: Tensor | None = None  # annotators of this fit; None if nothing is fitted
        self._prior = 0.0
        self._anchored = False

    @property
    def value(self) -> FloatArray:
        """`[K]` trust by row of the table of people; empty until two people have answered."""
        return np.asarray(self._value.detach().cpu(), np.float64)

    @property
    def is_fitted(self) -> bool:
        """Whether this fit changes the numbers."""
        return self._rows is not None

    @property
    def _value(self) -> Tensor:
        return self.numbers.value

    def begin(self, annotator: IntArray | None, members: int, *, wanted: bool = True) -> None:
        """Prepare for a fit to answers by annotators `[P]`; trust in new annotators begins at 1."""
        self._rows = None
        if not wanted:
            return
        if annotator is None:
            LOGGER.warning(
                "No trust is fitted: the answers do not tell who gave them. Read them from a store "
                'with combine="each", or fit without trust.'
            )
            return
        rows = np.unique(annotator)
        people = rows[rows > NOBODY]
        if len(people) < 2:
            return
        missing = max(0, int(people[-1]) + 1 - len(self._value))
        self.numbers.assign(torch.cat([self._value.detach(), self._value.new_ones(missing)]))
        self._rows = torch.from_numpy(people).to(self._value.device)
        self._anchored = len(people) < len(rows)
        # The prior is, like a batch's loss, a mean over answers and a sum over members.
        self._prior = members / (len(annotator) * PRIOR_DEVIATION**2)

    def of(self, annotator: Tensor | None) -> Tensor | None:
        """Return the trust `[B]` in the annotator `[B]` of each answer; None if none was fitted."""
        if annotator is None or not len(self._value):
            return None
        known = (annotator > NOBODY) & (annotator < len(self._value))
        return torch.where(known, self._value[torch.where(known, annotator, 0)], 1.0)

    def step(self) -> None:
        """Make a step along the gradients of a batch and of the prior, and clear them."""
        if self._rows is not None and self._value.grad is not None:
            self._value.grad += self._prior * (self._value.detach() - 1)
            self.numbers.step()
        self._value.grad = None

    def normalise(self) -> None:
        """Bring the mean of `|a|` over this fit's annotators back to 1."""
        if self._rows is not None and not self._anchored:
            size = self._value.detach()[self._rows].abs().mean().clamp(min=1 / LIMIT)
            with torch.no_grad():
                self._value[self._rows] /= size


def fit_trust(
    logits: Tensor,
    preference: Tensor,
    votes: Tensor,
    annotator: Tensor,
    *,
    deviation: float = PRIOR_DEVIATION,
) -> tuple[Trust, ...]:
    """Fit the trust in each annotator to answers that the model was not fitted to.

    Each number maximises the likelihood of the annotator's decided answers times the prior, a
    normal distribution around 1. The interval follows from the Fisher information at the maximum.

    Args:
        logits: `[E, P]` log-odds that the first is preferred.
        preference: `[P]`; ties and declined answers do not count.
        votes: `[E, P]` true for members that did not see an answer. The mean of their logits
            counts.
        annotator: `[P]` rows of the table of people; -1 is an unknown person, and is not fitted.
        deviation: standard deviation of the prior, above 0; infinity means no prior.

    Returns:
        The trust in each annotator with an answer, by rising row.

    Raises:
        ConfigError: a negative deviation.

    >>> logits, votes = torch.ones(1, 4), torch.ones(1, 4, dtype=torch.bool)
    >>> answers, by = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.zeros(4, dtype=torch.int64)
    >>> (ann,) = fit_trust(logits, answers, votes, by, deviation=math.inf)
    >>> round(ann.value, 4), round(ann.high - ann.value, 3), ann.answers  # ln 3, and 1.96 / √0.75
    (1.0986, 2.263, 4)
    """
    require_in("deviation", deviation, 1e-12, math.inf)
    people = torch.unique(annotator[annotator > NOBODY]).cpu().numpy()
    counts = votes.any(0) & (preference != 0.5) & ~preference.isnan() & (annotator > NOBODY)
    shown = logits[:, counts].detach().double()
    seen = votes[:, counts].expand_as(shown).double()
    difference = ((shown * seen).sum(0) / seen.sum(0)).cpu().numpy()  # [P]
    target = preference[counts].double().cpu().numpy()
    person = np.searchsorted(people, annotator[counts].cpu().numpy())
    prior = deviation**-2

    def total(of_answers: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(person, of_answers, len(people)), np.float64)

    def slopes(value: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the first derivatives `[K]` of the log posteriors, and minus the second ones."""
        share = (1 + np.tanh(value[person] * difference / 2)) / 2
        first = total(difference * (target - share)) - prior * (value - 1)
        return first, total(difference**2 * share * (1 - share)) + prior

    low = np.full(len(people), -LIMIT)
    value = np.full(len(people), LIMIT)
    for _ in range(80):  # bisection: Newton's steps may not settle where people contradict
        middle = (low + value) / 2
        rises = slopes(middle)[0] > 0
        low = np.where(rises, middle, low)
        value = np.where(rises, value, middle)
    half = QUANTILE / np.sqrt(np.maximum(slopes(value)[1], 1e-300))
    columns = people, value, value - half, value + half, np.bincount(person, minlength=len(people))
    return tuple(
        Trust(int(row), float(a), float(least), float(most), int(count))
        for row, a, least, most, count in zip(*columns, strict=True)
    )


def trust_by_name(
    trust: Iterable[Trust], names: Sequence[str]
) -> dict[str, dict[str, float]] | None:
    """Return the numbers of each annotator by name; None if the table of people has no names.

    >>> trust_by_name([Trust(1, 0.9, 0.5, 1.3, 40)], ["Ann", "Bo"])
    {'Bo': {'value': 0.9, 'low': 0.5, 'high': 1.3, 'answers': 40}}
    """
    shown = ("value", "low", "high", "answers")
    if not names:
        return None
    return {names[one.annotator]: {name: getattr(one, name) for name in shown} for one in trust}
