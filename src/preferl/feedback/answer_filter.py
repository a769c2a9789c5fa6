"""Answers that a reward does not believe are left out of its next fit, or turned round.

Cheng et al., "RIME: Robust Preference-based Reinforcement Learning with Noisy Preferences" (2024),
section 4.1.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.errors import require_in
from preferl.feedback.preparations import FitContext
from preferl.feedback.sampling import sigmoid
from preferl.shapes import FloatArray

UPDATES: Final = 50
"""Of the largest loss of trusted answers; the authors make as many in each round of queries."""

RATE: Final = 0.1
"""At which it follows the largest loss."""

MOST_UNCERTAINTY: Final = 3.0
"""The most by which the variance of losses raises the threshold."""


LEAST_TRUSTED: Final = 0.5
"""The share of answers that has to be trusted: a reward that contradicts more is not better than
guessing."""


@final
@dataclass(frozen=True)
class AnswerFilter:
    """Trusts answers whose loss under the last fit's reward is below a threshold.

    The loss of an answer is its cross-entropy under the mean probability of the members that have
    not been trained on it, where there are such. Where trust in annotators is fitted, that is the
    probability that this annotator answers so: who means the opposite is not left out. The
    threshold follows the losses of the trusted answers, see `threshold`. An answer above it gets
    weight 0, and its turn comes again before the next fit. If fewer than half of the answers are
    below it, the reward knows too little, and all stay as they are.

    Attributes:
        alpha: of the largest loss of trusted answers in the threshold.
        beta: of their variance.
        turned_below: probability of an answer below which it is turned round rather than left out;
            0 turns none.

    Raises:
        ConfigError: a number out of its range.
    """

    alpha: float = 0.5
    beta: float = 1.0
    turned_below: float = 0.001

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            require_in(name, getattr(self, name), 0, math.inf)
        require_in("turned_below", self.turned_below, 0, 0.5)

    def __call__(self, comparisons: Comparisons, context: FitContext) -> Comparisons:
        """The answers, some of them with weight 0 or turned round; all as given without a reward.

        Rows beyond those of `context.votes` are pseudo-labels, and stay as they are.
        """
        given = context.votes.shape[1]
        if context.reward is None or not given:
            return comparisons
        logits = context.logits(comparisons.segments, comparisons.pairs[:given]) * context.trust
        votes = np.broadcast_to(context.votes, logits.shape)
        first = (sigmoid(logits) * votes).sum(0) / votes.sum(0)
        preference = comparisons.preference.copy()
        weight = comparisons.weight.copy()
        loss = losses(first, preference[:given])
        trusted = loss < threshold(loss, alpha=self.alpha, beta=self.beta)
        if trusted.mean() < LEAST_TRUSTED:
            return comparisons
        turned = ~trusted & (loss > -math.log(max(self.turned_below, 1e-300)))
        turned &= preference[:given] != 0.5
        preference[:given][turned] = 1 - preference[:given][turned]
        weight[:given][~trusted & ~turned] = 0
        return replace(comparisons, preference=preference, weight=weight)


def losses(first: FloatArray, preference: FloatArray) -> FloatArray:
    """`[P]` cross-entropies of answers, in nats, by the probability that the first is preferred.

    >>> losses(np.array([0.5, 0.9]), np.array([1.0, 0.0])).round(4).tolist()
    [0.6931, 2.3026]
    """
    least = 1e-300
    agree = np.log(np.maximum(first, least))
    against = np.log(np.maximum(1 - first, least))
    return np.asarray(-(preference * agree + (1 - preference) * against))


def threshold(loss: FloatArray, *, alpha: float = 0.5, beta: float = 1.0) -> float:
    """The loss from which on an answer is not trusted, for losses `[P]` of all answers.

    It is `-ln x + alpha x + min(beta s, 3)`, where `x` follows the largest loss of answers below
    the threshold, and `s` is their variance. At first all are below it, so `x` begins at 0.

    >>> undecided = np.full(9, math.log(2))  # nobody is left out
    >>> threshold(undecided) > math.log(2)
    True
    """
    largest = 0.0
    trusted = loss
    found = math.inf
    for _ in range(UPDATES):
        largest += RATE * (float(trusted.max()) - largest)
        found = bound(largest, float(trusted.var()), alpha=alpha, beta=beta)
        trusted = loss[loss < found]
        if not len(trusted):
            break
    return found


def bound(largest: float, variance: float, *, alpha: float = 0.5, beta: float = 1.0) -> float:
    """The threshold by the largest loss of trusted answers and by their variance.

    >>> round(bound(0.5, 0.0), 4), round(bound(0.5, 0.04, beta=3.0), 4)
    (0.9431, 1.0631)
    """
    base = -math.log(max(largest, 1e-8)) + alpha * largest
    return base + min(beta * variance, MOST_UNCERTAINTY)
