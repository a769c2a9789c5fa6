"""Several people's answers to a query become one preference and how much it counts."""

from typing import Literal

import numpy as np

from preferl.errors import ConfigError
from preferl.shapes import FloatArray, IntArray
from preferl.store.dawid_skene import DawidSkeneConfig, fit_dawid_skene
from preferl.store.votes import EQUAL, FIRST, SECOND, Votes

CombineMethod = Literal["mean", "majority", "dawid_skene"]
"""`mean`: every answer counts. `majority`: one answer a query. `dawid_skene`: by reliability."""

_METHODS = ("mean", "majority", "dawid_skene")


def combine_answers(
    votes: Votes,
    method: CombineMethod = "mean",
    *,
    config: DawidSkeneConfig | None = None,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """One preference and weight for each query.

    Cannot-tell answers count only where there is no other: the preference is then NaN and the
    weight 0. Where there is a single answer, every method gives that answer and
    weight 1. Planned repeats are left out: they judge people, and are no further opinion.

    - `mean` is the share of answers for the first, a tie counting half, and weighs as many as
      there are. The cross-entropy of a reward model is then that of listing every answer.
    - `majority` is 1 or 0 where more than half of the answers say so, else 0.5; it weighs 1.
      Ties are answers, so that one preference against two ties is a tie.
    - `dawid_skene` is the probability of a better first clip once annotators are weighed by how
      often they are right (see `fit_dawid_skene`); it weighs 1, being about one truth, however
      many answers found it. What is known of a query overrules its answers.

    Args:
        votes: of several people.
        method: how to combine; `mean` keeps all that was said and supposes nothing.
        config: for `dawid_skene`; its defaults if None.

    Returns:
        `(query, preference, weight)`, each `[Q]`, by rising number of the query.

    Raises:
        ConfigError: an unknown method.

    >>> votes = Votes.of([5, 5, 5, 8, 9], [0, 1, 2, 0, 1], [1, 1, 0, 0.5, np.nan])
    >>> query, preference, weight = combine_answers(votes, "majority")
    >>> query.tolist(), preference.tolist(), weight.tolist()
    ([5, 8, 9], [1.0, 0.5, nan], [1.0, 1.0, 0.0])
    """
    if method not in _METHODS:
        expected = f"one of {', '.join(_METHODS)}"
        raise ConfigError.mismatch("method", expected=expected, got=repr(method))
    votes = votes.without_repeats
    query, first_row, unit = np.unique(votes.query, return_index=True, return_inverse=True)
    counts = np.zeros((len(query), 3), np.int64)
    np.add.at(counts, (unit[votes.counts], votes.category[votes.counts]), 1)
    answers = counts.sum(1)
    share = (counts[:, FIRST] + counts[:, EQUAL] / 2) / np.maximum(answers, 1)
    if method == "majority":
        most = 2 * counts > answers[:, None]  # [Q, 3]
        preference = (1.0 + most[:, FIRST] - most[:, SECOND]) / 2
    elif method == "dawid_skene":
        fit = fit_dawid_skene(votes, config)
        preference = share.copy()
        preference[np.searchsorted(query, fit.query)] = fit.preference
        single = (answers == 1) & np.isnan(votes.known[first_row])
        preference[single] = share[single]
    else:
        preference = share
    weight = answers if method == "mean" else np.minimum(answers, 1)
    return query, np.where(answers > 0, preference, np.nan), weight.astype(np.float64)
