"""RIME's filter: it leaves out answers that contradict a reward, or turns them round.

Cheng et al., "RIME: Robust Preference-based Reinforcement Learning with Noisy Preferences" (2024),
section 4.1.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from preferl.configs import require_fields
from preferl.data.comparisons import Comparisons
from preferl.feedback.pair_sampling import sigmoid
from preferl.feedback.preparations import FitContext
from preferl.shapes import FloatArray

UPDATES: Final = 50
"""Number of updates of the largest loss of trusted answers; the authors make one per round."""

RATE: Final = 0.1
"""Rate at which an update follows the largest loss."""

MOST_UNCERTAINTY: Final = 3.0
"""The most that the variance of losses adds to the threshold."""


LEAST_TRUSTED: Final = 0.5
"""Least share of answers below the threshold; if it is smaller, the reward only guesses."""


@final
@dataclass(frozen=True)
class AnswerFilter:
    """Trusts answers whose loss under the last fit's reward is below a threshold.

    The loss of an answer is its cross-entropy under the mean probability of the members that were
    not trained on it, if there are any. If trust in annotators is fitted, the probability includes
    it, so that somebody who answers the opposite is not left out. The threshold follows the losses
    of the trusted answers, see `threshold`. An answer with a loss above the threshold gets weight
    0, and is examined again before the next fit. If fewer than half of the answers are below the
    threshold, the reward knows too little, and no answer changes.

    Attributes:
        alpha: weight of the largest loss of trusted answers in the threshold.
        beta: weight of the variance of these losses in the threshold.
        turned_below: answers with a probability below this are turned round instead of left out; 0
            turns none round.

    Raises:
        ConfigError: a number is out of its range.
    """

    alpha: float = 0.5
    beta: float = 1.0
    turned_below: float = 0.001

    def __post_init__(self) -> None:
        require_fields(self, alpha=0, beta=0, turned_below=(0, 0.5))

    def __call__(self, comparisons: Comparisons, context: FitContext) -> Comparisons:
        """Return the answers, some with weight 0 or turned round. Without a reward, none changes.

        Rows beyond those of `context.votes` are pseudo-labels and do not change.
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
    """Compute the cross-entropies `[P]` of answers, in nats, from probabilities of the first.

    >>> losses(np.array([0.5, 0.9]), np.array([1.0, 0.0])).round(4).tolist()
    [0.6931, 2.3026]
    """
    least = 1e-300
    agree = np.log(np.maximum(first, least))
    against = np.log(np.maximum(1 - first, least))
    return np.asarray(-(preference * agree + (1 - preference) * against))


def threshold(loss: FloatArray, *, alpha: float = 0.5, beta: float = 1.0) -> float:
    """Compute the loss above which an answer is not trusted, from losses `[P]` of all answers.

    It is `-ln x + alpha x + min(beta s, 3)`. `x` follows the largest loss of answers below the
    threshold, and `s` is the variance of their losses. At first all answers are below the
    threshold, so `x` begins at 0.

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
    """Compute the threshold from the largest loss of trusted answers and their variance.

    >>> round(bound(0.5, 0.0), 4), round(bound(0.5, 0.04, beta=3.0), 4)
    (0.9431, 1.0631)
    """
    base = -math.log(max(largest, 1e-8)) + alpha * largest
    return base + min(beta * variance, MOST_UNCERTAINTY)
