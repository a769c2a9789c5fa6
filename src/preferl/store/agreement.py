"""How far people agree beyond chance: Krippendorff's alpha and what is shown beside it.

Krippendorff, "Content Analysis" (2004), chapter 11; the bootstrap is over queries (Efron 1979).
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from preferl.shapes import FloatArray, IntArray
from preferl.store.votes import EQUAL, Votes

FEWEST_QUERIES = 10
"""Queries with two answers below which nothing is said of agreement."""


@final
@dataclass(frozen=True)
class AgreementReport:
    """Agreement between people, about the queries that at least two of them answered.

    Attributes:
        alpha: Krippendorff's, 1 for perfect agreement and 0 for chance; None where there is not
            enough data.
        low: lower end of its 95 % bootstrap interval over queries, or None.
        high: upper end, or None.
        raw: share of the pairs of answers to one query that are the same, or None without any.
        chance: what that share would be if answers had nothing to do with queries, or None.
        queries: that two or more people answered.
        pairs: of answers to one query.
        note: why there is no alpha, or nothing.
    """

    alpha: float | None
    low: float | None
    high: float | None
    raw: float | None
    chance: float | None
    queries: int
    pairs: int
    note: str = ""

    @property
    def enough(self) -> bool:
        """Whether there is an alpha."""
        return self.alpha is not None


def krippendorff_alpha(votes: Votes, *, ties: bool = True) -> float:
    """Krippendorff's alpha, nominal, over the answers first, equal and second.

    Cannot-tell answers are missing values, and planned repeats are left out, since they are not
    other people's. It is unstable where nearly all answers are alike, so show the raw agreement
    beside it. Chance counts how often the first and the second were preferred, so the order of
    clips in a pair must not tell which is the better one.

    Args:
        votes: of several people.
        ties: whether a tie is an answer like the others (the default) or a missing value.

    Returns:
        1 for perfect agreement, 0 for chance, below 0 for less than that; NaN where no query has
        two answers or all answers are the same.

    >>> votes = Votes.of([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 0, 0])
    >>> krippendorff_alpha(votes)
    1.0
    """
    return nominal_alpha(_answer_counts(votes, ties))


def raw_agreement(votes: Votes, *, ties: bool = True) -> float:
    """Share of the pairs of answers to one query that are the same; NaN without such pairs.

    >>> raw_agreement(Votes.of([0, 0, 0], [0, 1, 2], [1, 1, 0]))
    0.3333333333333333
    """
    counts = _answer_counts(votes, ties)
    pairs = _pairs(counts.sum(1)).sum()
    return float(_pairs(counts).sum() / pairs) if pairs else math.nan


def chance_agreement(votes: Votes, *, ties: bool = True) -> float:
    """Share of pairs that would be the same by chance: two answers drawn from all that count."""
    totals = _coincidences(_answer_counts(votes, ties)).sum((0, 1))
    count = totals.sum()
    return float(_pairs(totals).sum() / _pairs(count)) if count else math.nan


def agreement_matrix(votes: Votes) -> tuple[FloatArray, IntArray]:
    """How often each two annotators gave the same answer, and to how many queries.

    Returns:
        `(share, queries)`, both `[A, A]`; the share is NaN where two never met, and on the
        diagonal it is 1.

    >>> share, queries = agreement_matrix(Votes.of([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 0, 1]))
    >>> share.tolist(), queries.tolist()
    ([[1.0, 0.5], [0.5, 1.0]], [[2, 2], [2, 2]])
    """
    first = votes.first_answers
    unit, counts = first.counts_by_query()
    given = np.zeros((votes.annotators, len(counts), 3))
    given[first.annotator, unit, first.category] = 1
    answered = given.sum(2)
    met = answered @ answered.T
    flat = given.reshape(votes.annotators, -1)
    with np.errstate(invalid="ignore"):
        return (flat @ flat.T) / met, met.astype(np.int64)


def agreement_report(
    votes: Votes, rng: np.random.Generator, *, ties: bool = True, resamples: int = 2000
) -> AgreementReport:
    """Alpha with its interval, raw agreement, chance, and how much data they rest on.

    Args:
        votes: of several people.
        rng: where the resamples of queries come from.
        ties: whether a tie is an answer (the default) or a missing value.
        resamples: enough that the ends of the interval are steady to about 0.01.

    >>> report = agreement_report(Votes.of([0, 0], [0, 1], [1, 1]), np.random.default_rng(0))
    >>> report.enough, report.raw, report.note
    (False, 1.0, 'not enough data: 1 of at least 10 pairs with two answers')
    """
    counts = _answer_counts(votes, ties)
    counts = counts[counts.sum(1) > 1]
    queries, pairs = len(counts), int(_pairs(counts.sum(1)).sum()) // 2
    alpha = nominal_alpha(counts)
    note = ""
    if queries < FEWEST_QUERIES:
        note = f"not enough data: {queries} of at least {FEWEST_QUERIES} pairs with two answers"
    elif math.isnan(alpha):
        note = "not enough data: all answers are the same"
    low, high = (None, None) if note else _alpha_interval(counts, rng, resamples)
    return AgreementReport(
        alpha=None if note else alpha,
        low=low,
        high=high,
        raw=raw_agreement(votes, ties=ties) if pairs else None,
        chance=chance_agreement(votes, ties=ties) if pairs else None,
        queries=queries,
        pairs=pairs,
        note=note,
    )


def nominal_alpha(counts: IntArray) -> float:
    """Krippendorff's alpha of any nominal data, from `value_counts`; NaN without variation."""
    return float(_alpha(_coincidences(counts).sum(0)))


def _answer_counts(votes: Votes, ties: bool) -> IntArray:
    """`[Q, 3]` how often each answer was given to each query, by different people."""
    first = votes.first_answers
    return first[ties | (first.category != EQUAL)].counts_by_query()[1]


def _coincidences(counts: IntArray) -> FloatArray:
    """`[Q, C, C]` what each unit adds to the coincidence matrix; a single answer adds nothing."""
    answers = counts.sum(1)
    together = counts[:, :, None] * counts[:, None, :]
    together -= counts[:, :, None] * np.eye(counts.shape[1], dtype=counts.dtype)
    return np.asarray(together / np.maximum(answers - 1, 1)[:, None, None])


def _alpha(coincidences: FloatArray) -> FloatArray:
    """`[...]` alphas of coincidence matrices `[..., C, C]`, NaN without variation."""
    totals = coincidences.sum(-1)
    count = totals.sum(-1)
    observed = count - np.trace(coincidences, axis1=-2, axis2=-1)
    expected = count**2 - (totals**2).sum(-1)
    # What rounding leaves of a single category is no variation.
    varied = expected > 1e-9 * np.maximum(count, 1) ** 2
    alpha = 1 - (count - 1) * observed / np.where(varied, expected, 1)
    return np.asarray(np.where(varied, alpha, np.nan))


def _alpha_interval(
    counts: IntArray, rng: np.random.Generator, resamples: int
) -> tuple[float, float]:
    """95 % percentile interval of alpha over resampled queries.

    Queries that were answered alike are drawn together: few kinds exist, however many queries.
    """
    kinds, frequency = np.unique(counts, axis=0, return_counts=True)
    drawn = rng.multinomial(len(counts), frequency / len(counts), size=resamples)
    size = counts.shape[1]
    summed = drawn @ _coincidences(kinds).reshape(len(kinds), -1)
    alphas = _alpha(summed.reshape(resamples, size, size))
    low, high = np.nanquantile(alphas, [0.025, 0.975])
    return float(low), float(high)


def _pairs(counts: IntArray | FloatArray) -> FloatArray:
    """Ordered pairs of different answers among `counts` of them."""
    return np.asarray(counts * (counts - 1))
