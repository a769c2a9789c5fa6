"""How much an answer would tell: functions `[E, P] → [P]` of what the members of an ensemble say.

Preference logits come in, one row per member; the larger the result, the sooner a pair is asked.
They are the log-odds of the probabilities that the fitted likelihood gives.
Christiano et al., "Deep RL from human preferences" (2017), section 2.2.4, asks where the predicted
preferences disagree; Lee et al., "B-Pref" (2021), section 4, adds the entropy.
"""

from collections.abc import Callable

import numpy as np

from preferl.errors import FeedbackError
from preferl.shapes import FloatArray

Acquisition = Callable[[FloatArray], FloatArray]
"""`[E, P]` preference logits to `[P]` values, the largest of which are asked first."""


def logit_variance(logits: FloatArray) -> FloatArray:
    """Unbiased variance of the logits over members.

    Without noise in the likelihood it keeps growing with the size of the scores, so it favours
    pairs of which every member is sure, but not equally sure.

    Raises:
        FeedbackError: fewer than two members.

    >>> logit_variance(np.array([[1.0, 2.0], [3.0, 2.0]])).tolist()
    [2.0, 0.0]
    """
    return np.asarray(_members(logits).var(axis=0, ddof=1))


def probability_variance(logits: FloatArray) -> FloatArray:
    """Population variance of the predicted preferences over members, at most 0.25.

    Raises:
        FeedbackError: fewer than two members.

    >>> probability_variance(np.array([[-1000.0, 0.0], [1000.0, 0.0]])).tolist()
    [0.25, 0.0]
    """
    return np.asarray(sigmoid(_members(logits)).var(axis=0))


def label_variance(logits: FloatArray) -> FloatArray:
    """`p (1 - p)` for the share `p` of members that prefer the first; an undecided one is half.

    Raises:
        FeedbackError: fewer than two members.

    >>> label_variance(np.array([[0.1, 5.0], [-9.0, 5.0]])).tolist()
    [0.25, 0.0]
    """
    share = np.heaviside(_members(logits), 0.5).mean(axis=0)
    return np.asarray(share * (1 - share))


def entropy(logits: FloatArray) -> FloatArray:
    """Mean over members of the entropy of each one's preference, in nats, at most log 2.

    It asks where members are unsure rather than where they disagree, so one member is enough.

    >>> entropy(np.array([[0.0, 1000.0]])).round(4).tolist()
    [0.6931, 0.0]
    """
    size = np.minimum(np.abs(np.asarray(logits, np.float64)), 700.0)  # exp(-700) is not yet 0
    against = np.exp(-size)
    return np.asarray((np.log1p(against) + size * against / (1 + against)).mean(axis=0))


def sigmoid(logits: FloatArray) -> FloatArray:
    """The probability behind a logit, without overflow.

    >>> sigmoid(np.array([-1e9, 0.0, 1e9])).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(logits, np.float64))))


def _members(logits: FloatArray) -> FloatArray:
    logits = np.asarray(logits, np.float64)
    if logits.ndim != 2 or len(logits) < 2:
        raise FeedbackError.mismatch(
            "members of the reward model",
            expected="at least 2, since the variance over one says nothing",
            got=f"logits of shape {logits.shape}",
            fix="Train an ensemble, choose `entropy`, or ask with UniformPairs.",
        )
    return logits
