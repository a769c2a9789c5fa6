"""Combine several people's answers to a query into one preference and a weight.

Dawid and Skene, "Maximum likelihood estimation of observer error-rates using the EM algorithm"
(1979), applied to pairs. It estimates, from answers only, how often each annotator is right, and
which answer is true. The order of the clips is arbitrary, so mistaking the first for the second is
as likely as the reverse. An annotator therefore has three free numbers instead of six.
"""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from preferl.errors import require_in, require_one_of
from preferl.shapes import FloatArray, IntArray
from preferl.store.quality.votes import EQUAL, FIRST, SECOND, Votes, categories, value_counts

_TINY = 1e-300
"""Replaces a probability of 0 in logarithms. It is so small that its share rounds to 0."""


@final
@dataclass(frozen=True)
class DawidSkeneConfig:
    """The prior belief about annotators, and the rule for stopping."""

    # Share of right answers that is expected of a new annotator: about how often people agree on
    # clips of robots.
    accuracy: float = 0.8
    # Weight of the prior, as a number of answers for each true answer. It matters for newcomers,
    # and not after hundreds of answers. 0 is plain maximum likelihood, which may trust an annotator
    # with few answers fully, or take the opposite of each of their answers.
    answers: float = 4.0
    tolerance: float = 1e-7  # stop when the objective grows by less than this per answer
    iterations: int = 500  # the most iterations

    def __post_init__(self) -> None:
        require_in("DawidSkeneConfig.accuracy", self.accuracy, 0.34, 0.99)
        for name, least in (("answers", 0), ("tolerance", 0), ("iterations", 1)):
            require_in(f"DawidSkeneConfig.{name}", getattr(self, name), least, float("inf"))

    @property
    def pseudo_counts(self) -> FloatArray:
        """`[3, 3]` imagined earlier answers of each annotator (columns), for each truth (rows)."""
        wrong = (1 - self.accuracy) / 2
        return self.answers * np.where(np.eye(3, dtype=bool), self.accuracy, wrong)


@final
@dataclass(frozen=True, eq=False)
class DawidSkene:
    """The fitted model; `first`, `equal`, `second` are 0, 1, 2 on axes of 3."""

    query: IntArray  # [Q] numbers of the queries with a preference, in rising order
    posterior: FloatArray  # [Q, 3] probability of each truth
    confusion: FloatArray  # [A, 3, 3] probability of an annotator's answer (last axis), by truth
    prevalence: FloatArray  # [3] how common each truth is
    objective: FloatArray  # [iterations] log likelihood plus log prior; it never falls
    converged: bool  # whether it stopped before the last iteration

    @property
    def preference(self) -> FloatArray:
        """`[Q]` probability that the first is preferred; a tie counts half."""
        return _expected_preference(self.posterior)

    @property
    def accuracy(self) -> FloatArray:
        """`[A]` how likely each annotator's next answer is right."""
        return np.asarray(np.diagonal(self.confusion, axis1=1, axis2=2) @ self.prevalence)

    def preference_of_others(self, votes: Votes) -> FloatArray:
        """Return `[R]`: for each answer, the preference from the answers of all other annotators.

        It is NaN for answers without a preference, for planned repeats, and for queries that nobody
        else answered. Known right answers are not used.
        """
        has_preference = votes.counts & ~votes.is_repeat
        unit = np.searchsorted(self.query, votes.query[has_preference])
        answer = _answer_likelihood(self.confusion, votes[has_preference])  # [R, 3]
        summed = _sum_by_unit(unit, answer, len(self.query))[unit]
        logits = np.log(np.maximum(self.prevalence, _TINY)) + summed - answer
        preference = _expected_preference(_normalised(logits))
        preference[np.bincount(unit, minlength=len(self.query))[unit] < 2] = np.nan
        result = np.full(len(votes), np.nan)
        result[has_preference] = preference
        return result


def fit_dawid_skene(votes: Votes, config: DawidSkeneConfig | None = None) -> DawidSkene:
    """Estimate truths and annotators together, by expectation maximisation.

    Truths are first, equal and second. Equal is possible only if an answer, or a known answer, is a
    tie. Known answers are taken as true. Cannot-tell answers and planned repeats are left out. The
    estimate does not change if the clips of a pair swap places. It is more certain if people have
    more queries in common.

    >>> votes = Votes.of([0, 0, 0, 1, 1, 1], [0, 1, 2] * 2, [1, 1, 0, 0, 0, 1])
    >>> fit = fit_dawid_skene(votes)
    >>> fit.preference.round().tolist(), bool(fit.accuracy[2] < fit.accuracy[0])
    ([1.0, 0.0], True)
    """
    config = config or DawidSkeneConfig()
    votes = votes.first_answers
    query, first_row, unit = np.unique(votes.query, return_index=True, return_inverse=True)
    known: IntArray = categories(votes.known[first_row])[:, None]
    has_ties = (votes.category == EQUAL).any() or (votes.known == 0.5).any()
    # Queries that the same people answered in the same way have the same posterior, so one of each
    # kind is enough. There are few kinds, however many queries.
    kind = _kinds(unit, votes.annotator * 3 + votes.category, known[:, 0])
    _, example, weight = np.unique(kind, return_index=True, return_counts=True)
    examples = np.isin(unit, example)
    votes_of_examples = votes[examples]
    kind_of_answer = kind[unit[examples]]
    known = known[example]
    allowed = np.where(known < 0, np.array([True, bool(has_ties), True]), known == np.arange(3))
    answer_counts = value_counts(kind_of_answer, votes_of_examples.category, 3)
    posterior = answer_counts / np.maximum(answer_counts.sum(1, keepdims=True), 1) * allowed
    posterior = (posterior + 1e-3 * allowed) / (posterior + 1e-3 * allowed).sum(1, keepdims=True)
    objective = list[float]()
    converged = False
    while not converged and len(objective) < config.iterations:
        confusion, prevalence = _maximise(
            votes_of_examples, kind_of_answer, posterior, weight, config
        )
        logits = np.where(allowed, np.log(np.maximum(prevalence, _TINY)), -np.inf)
        answered = _answer_likelihood(confusion, votes_of_examples)
        logits = logits + _sum_by_unit(kind_of_answer, answered, len(weight))
        posterior = _normalised(logits)
        likelihood = (weight * np.logaddexp.reduce(logits, axis=1)).sum()
        prior = config.pseudo_counts * np.log(np.maximum(confusion, _TINY))
        objective.append(float(likelihood + prior.sum()))
        growth = objective[-1] - objective[-2] if len(objective) > 1 else np.inf
        converged = growth <= config.tolerance * max(len(votes), 1)
    return DawidSkene(query, posterior[kind], confusion, prevalence, np.array(objective), converged)


def _kinds(unit: IntArray, answer: IntArray, known: IntArray) -> IntArray:
    """Number queries `[Q]` by kind. Queries of a kind have the same answers of the same people.

    Args:
        unit: `[R]` index of each answer's query.
        answer: `[R]` annotator and answer as one number.
        known: `[Q]` category that is known to be right; below 0 if none is.
    """
    random = np.random.default_rng(0).integers(2**63, size=int(answer.max(initial=0)) + 1)
    content = known.copy()
    np.add.at(content, unit, random[answer])  # sums of random numbers (Zobrist 1970) wrap round
    return np.unique(content, return_inverse=True)[1]


def _maximise(
    votes: Votes,
    unit: IntArray,
    posterior: FloatArray,
    weight: IntArray,
    config: DawidSkeneConfig,
) -> tuple[FloatArray, FloatArray]:
    """Return the likeliest confusion `[A, 3, 3]` and prevalence `[3]`, given posterior `[K, 3]`.

    The `weight` of each of the `K` kinds of queries is the number of its queries.
    """
    rows = votes.annotator * 3 + votes.category
    expected = posterior * weight[:, None]
    counts = _sum_by_unit(rows, expected[unit], votes.annotators * 3)
    counts = counts.reshape(votes.annotators, 3, 3).swapaxes(1, 2)  # [A, truth, answer]
    # Swapping the clips of a pair reverses both axes.
    counts = (counts + counts[:, ::-1, ::-1]) / 2 + config.pseudo_counts
    totals = counts.sum(2, keepdims=True)
    confusion = np.where(totals > 0, counts / np.where(totals > 0, totals, 1), 1 / 3)
    prevalence = expected.sum(0)
    prevalence = prevalence + prevalence[::-1]
    return confusion, prevalence / prevalence.sum() if prevalence.any() else np.array(
        [0.5, 0.0, 0.5]
    )


def _expected_preference(posterior: FloatArray) -> FloatArray:
    """Return preferences `[...]` from probabilities `[..., 3]` of first, equal and second."""
    return np.asarray(posterior[..., FIRST] + posterior[..., EQUAL] / 2)


def _answer_likelihood(confusion: FloatArray, votes: Votes) -> FloatArray:
    """Return the log probability `[R, 3]` of each answer for each truth."""
    return np.asarray(np.log(np.maximum(confusion[votes.annotator, :, votes.category], _TINY)))


def _sum_by_unit(unit: IntArray, values: FloatArray, units: int) -> FloatArray:
    """Return sums `[units, C]` of the rows `[R, C]` that belong to each unit."""
    return np.stack([np.bincount(unit, column, units) for column in values.T], axis=1)


def _normalised(logits: FloatArray) -> FloatArray:
    """Return probabilities `[..., C]`, in proportion to the exponentials of `logits`."""
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(odds / odds.sum(-1, keepdims=True))


CombineMethod = Literal["mean", "majority", "dawid_skene", "each"]
"""How answers are combined.

`mean` averages a query's answers, `majority` takes the most frequent answer, `dawid_skene` weighs
answers by the annotators' reliability, and `each` keeps every answer with its annotator.
"""


def combine_answers(
    votes: Votes, method: CombineMethod = "mean"
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Combine the answers to each query into one preference and weight.

    If a query has only cannot-tell answers, its preference is NaN and its weight 0. If it has a
    single answer, every method gives that answer and weight 1. Planned repeats are left out: they
    check people, and are not a further opinion.

    - `mean` is the share of answers for the first; a tie counts half. Its weight is the number of
    answers. A reward model's cross-entropy is then the same as with separate answers.
    - `majority` is 1 or 0 if more than half of the answers agree on it, else 0.5, with weight 1.
    Ties are answers, so one preference against two ties is a tie.
    - `dawid_skene` is the probability that the first clip is better, given how often each annotator
    is right (see `fit_dawid_skene`). Its weight is 1, however many answers there are. A known right
    answer overrules all others.
    - `each` combines nothing: a query appears once for each answer to it, with weight 1.

    Returns:
        `(query, preference, weight)`, each `[Q]`, in rising order of the query's number. With
        `each`, they are `[R]`, in the order of the answers, without repeats.

    Raises:
        ConfigError: the method is unknown.

    >>> votes = Votes.of([5, 5, 5, 8, 9], [0, 1, 2, 0, 1], [1, 1, 0, 0.5, np.nan])
    >>> query, preference, weight = combine_answers(votes, "majority")
    >>> query.tolist(), preference.tolist(), weight.tolist()
    ([5, 8, 9], [1.0, 0.5, nan], [1.0, 1.0, 0.0])
    """
    require_one_of("method", method, CombineMethod)
    votes = votes[~votes.is_repeat]
    if method == "each":
        return votes.query, votes.preference, votes.counts.astype(np.float64)
    query, first_row, unit = np.unique(votes.query, return_index=True, return_inverse=True)
    counts = value_counts(unit, votes.category % 4, 4)[:, :3]  # -1 means that nobody could tell
    answers = counts.sum(1)
    share = preference = (counts[:, FIRST] + counts[:, EQUAL] / 2) / np.maximum(answers, 1)
    if method == "majority":
        is_majority = 2 * counts > answers[:, None]  # [Q, 3]
        preference = (1.0 + is_majority[:, FIRST] - is_majority[:, SECOND]) / 2
    elif method == "dawid_skene":
        fit = fit_dawid_skene(votes)
        preference = share.copy()
        preference[np.searchsorted(query, fit.query)] = fit.preference
        has_one_answer = (answers == 1) & np.isnan(votes.known[first_row])
        preference[has_one_answer] = share[has_one_answer]
    weight = answers if method == "mean" else np.minimum(answers, 1)
    return query, np.where(answers > 0, preference, np.nan), weight.astype(np.float64)
