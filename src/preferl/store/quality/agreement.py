"""How far people agree beyond chance, with each other and with models.

Krippendorff, "Content Analysis" (2004), chapter 11; the bootstrap is over queries (Efron 1979).
Cohen, "A coefficient of agreement for nominal scales" (1960), for a model and people.
"""

import math
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from preferl.shapes import FloatArray, IntArray
from preferl.statistics import wilson_interval
from preferl.store.quality.votes import Votes

Scale = Literal["nominal", "ordinal"]
"""Whether values only differ, or have an order."""

FEWEST_QUERIES = 10
"""Least number of queries with two answers for an agreement report."""


@final
@dataclass(frozen=True)
class AgreementReport:
    """Agreement between people on the queries that at least two of them answered.

    A number is None if there are too few data for it.
    """

    alpha: float | None  # Krippendorff's alpha: 1 for perfect agreement, 0 for chance
    low: float | None  # lower end of its 95 % bootstrap interval over queries
    high: float | None  # upper end of that interval
    raw: float | None  # share of the pairs of answers to one query that are the same
    chance: float | None  # this share if answers had nothing to do with queries
    queries: int  # number of queries that two or more people answered
    pairs: int  # number of pairs of answers to one query
    note: str = ""  # why alpha is None; empty if there is an alpha


@final
@dataclass(frozen=True)
class ModelAgreement:
    """Agreement of a model with people on the queries that both answered.

    Each query counts once. If several people answered it, their answers share its weight equally.
    """

    name: str
    queries: int  # number of queries that the model and at least one person answered
    agreement: float  # share of these queries with the same answer; 0 without any
    low: float  # lower end of its 95 % Wilson interval over queries
    high: float  # upper end of that interval
    # Cohen's kappa: 1 for perfect agreement, 0 for chance; None below 10 queries
    kappa: float | None


def krippendorff_alpha(counts: IntArray, scale: Scale = "nominal") -> float:
    """Compute Krippendorff's alpha from the `counts` `[Q, C]` of each value per unit.

    Two ordinal values disagree more if more of the given values lie between them. Alpha is 1 for
    perfect agreement, 0 for chance, and below 0 for less than chance. It is NaN if no unit has two
    answers or all answers are the same. It is unstable if nearly all answers are the same, so show
    the raw agreement beside it. Chance agreement depends on how often people preferred the first
    clip, so the order of a pair must not depend on which clip is better.

    >>> krippendorff_alpha(np.array([[2, 0, 0], [0, 0, 2]]))
    1.0
    """
    return float(_alpha(_coincidences(counts).sum(0), scale))


def agreement_report(
    votes: Votes, rng: np.random.Generator, *, resamples: int = 2000
) -> AgreementReport:
    """Return alpha with its interval, raw agreement, chance agreement, and the amount of data.

    Cannot-tell answers are missing values. Repeats are left out, since the same person gave them.
    Models are left out, too; `agreement_with_people` is about them. With 2000 resamples of the
    queries, the ends of the interval vary by about 0.01.

    >>> report = agreement_report(Votes.of([0, 0], [0, 1], [1, 1]), np.random.default_rng(0))
    >>> report.alpha, report.raw, report.note
    (None, 1.0, 'not enough data: 1 of at least 10 pairs with two answers')
    """
    counts = votes[~votes.by_model].first_answers.counts_by_query()[1]
    return agreement_of(counts, rng, units="pairs with two answers", resamples=resamples)


def agreement_with_people(votes: Votes) -> list[ModelAgreement]:
    """Compare each model with people.

    Cannot-tell answers are missing values, and repeats are left out, as in `agreement_report`.

    >>> votes = Votes.of([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 0, 0], names=["Ann", "net"],
    ...                  is_model=[False, True])
    >>> (net,) = agreement_with_people(votes)
    >>> net.name, net.queries, net.agreement, net.kappa
    ('net', 2, 1.0, None)
    """
    votes = votes.first_answers
    _, unit = np.unique(votes.query, return_inverse=True)
    people = np.zeros((len(votes), 3))  # answers of people to each query by category, as shares
    np.add.at(people, (unit[~votes.by_model], votes.category[~votes.by_model]), 1.0)
    people /= np.maximum(people.sum(1, keepdims=True), 1)
    agreements = []
    for model in np.flatnonzero(votes.is_model):
        rows = votes.annotator == model
        together = np.zeros((3, 3))  # number of queries, by the model's answer and by people's
        np.add.at(together, votes.category[rows], people[unit[rows]])
        queries = float(together.sum())
        same = float(together.trace())
        low, high = wilson_interval(same, queries)
        chance = float(together.sum(0) @ together.sum(1)) / max(queries, 1)
        is_enough = queries >= FEWEST_QUERIES and chance < queries
        agreements.append(
            ModelAgreement(
                name=votes.names[model],
                queries=round(queries),
                agreement=same / max(queries, 1),
                low=low,
                high=high,
                kappa=(same - chance) / (queries - chance) if is_enough else None,
            )
        )
    return agreements


def agreement_of(
    counts: IntArray,
    rng: np.random.Generator,
    *,
    units: str,
    scale: Scale = "nominal",
    resamples: int = 2000,
) -> AgreementReport:
    """Return how people agree, from the `counts` `[Q, C]` of each value per unit.

    Notes name the `units`, for example "clips with two ratings".
    """
    counts = counts[counts.sum(1) > 1]
    queries = len(counts)
    pairs = int(_pairs(counts.sum(1)).sum()) // 2
    alpha = krippendorff_alpha(counts, scale)
    totals = counts.sum(0)
    note = ""
    if queries < FEWEST_QUERIES:
        note = f"not enough data: {queries} of at least {FEWEST_QUERIES} {units}"
    elif math.isnan(alpha):
        note = "not enough data: all answers are the same"
    low, high = (None, None) if note else _alpha_interval(counts, rng, resamples, scale)
    raw = float(_pairs(counts).sum() / pairs / 2) if pairs else None
    chance = float(_pairs(totals).sum() / _pairs(totals.sum())) if pairs else None
    return AgreementReport(None if note else alpha, low, high, raw, chance, queries, pairs, note)


def _coincidences(counts: IntArray) -> FloatArray:
    """Return what each unit adds to the coincidence matrix, `[Q, C, C]`; 0 for a single answer."""
    together = counts[:, :, None] * counts[:, None, :]
    together -= counts[:, :, None] * np.eye(counts.shape[1], dtype=counts.dtype)
    return np.asarray(together / np.maximum(counts.sum(1) - 1, 1)[:, None, None])


def _alpha(coincidences: FloatArray, scale: Scale) -> FloatArray:
    """Return alphas `[...]` of coincidence matrices `[..., C, C]`; NaN without variation."""
    totals = coincidences.sum(-1)
    count = totals.sum(-1)
    if scale == "nominal":
        difference = 1 - np.eye(totals.shape[-1])
    else:  # squared distance between the middle ranks of two values, as shares of all answers
        middle = (np.cumsum(totals, -1) - totals / 2) / np.maximum(count, 1)[..., None]
        difference = (middle[..., :, None] - middle[..., None, :]) ** 2
    observed = (coincidences * difference).sum((-2, -1))
    expected = (totals[..., :, None] * totals[..., None, :] * difference).sum((-2, -1))
    # If all answers are the same, rounding may leave a tiny number, which does not mean variation.
    varied = expected > 1e-9 * np.maximum(count, 1) ** 2
    alpha = 1 - (count - 1) * observed / np.where(varied, expected, 1)
    return np.asarray(np.where(varied, alpha, np.nan))


def _alpha_interval(
    counts: IntArray, rng: np.random.Generator, resamples: int, scale: Scale
) -> tuple[float, float]:
    """Return the 95 % percentile interval of alpha over resampled queries.

    Queries with the same counts are drawn as one kind, since many queries have few kinds.
    """
    kinds, frequency = np.unique(counts, axis=0, return_counts=True)
    drawn = rng.multinomial(len(counts), frequency / len(counts), size=resamples)
    summed = np.tensordot(drawn, _coincidences(kinds), 1)
    low, high = np.nanquantile(_alpha(summed, scale), [0.025, 0.975]).tolist()
    return low, high


def _pairs(counts: IntArray | FloatArray) -> FloatArray:
    """Return the number of ordered pairs for each number of answers."""
    return np.asarray(counts * (counts - 1))
