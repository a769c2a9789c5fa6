"""A simulated crowd: people of known carefulness, who answer queries with known truth."""

from dataclasses import dataclass
from math import inf
from typing import final

import numpy as np

from preferl.errors import ConfigError, require_in
from preferl.shapes import BoolArray, FloatArray, IntArray
from preferl.store.quality.votes import Votes


@final
@dataclass(frozen=True)
class CrowdConfig:
    """How queries are made and assigned to people.

    Attributes:
        answers: approximate number of answers of each annotator, including those to known and
            repeated queries.
        quorum: how many people answer an ordinary query.
        known_share: share of an annotator's answers that are about known queries, whose right
            answer is known. Everybody gets the same known queries. They come from the clearer half
            of all pairs.
        repeat_share: share of an annotator's answers that are about queries they answered before.
        difference: standard deviation of the difference between the clips of a pair, in logits of a
            careful person. At 5, two careful people agree on 84 % of pairs.
        tie_width: careful people call a smaller difference a tie; at 0, they never do.
        cannot_tell: share of answers, of anyone, that are declined.
    """

    answers: int = 300
    quorum: int = 3
    known_share: float = 0.05
    repeat_share: float = 0.05
    difference: float = 5.0
    tie_width: float = 0.0
    cannot_tell: float = 0.0

    def __post_init__(self) -> None:
        least = {"answers": 1, "quorum": 1}
        most = {"cannot_tell": 1.0}
        for name, value in vars(self).items():
            high = 0.5 if name.endswith("_share") else most.get(name, inf)
            require_in(f"CrowdConfig.{name}", value, least.get(name, 0), high)


@final
@dataclass(frozen=True, eq=False)
class Crowd:
    """What a simulated crowd answered, and what a careful person would have answered.

    Attributes:
        votes: the answers.
        truth: `[Q]` the right preference of each query, by its number.
        careful: `[R]` whether an answer was given with care rather than at random.
    """

    votes: Votes
    truth: FloatArray
    careful: BoolArray


def simulate_crowd(
    careless: FloatArray,
    rng: np.random.Generator,
    config: CrowdConfig | None = None,
    *,
    random_left: float = 0.5,
) -> Crowd:
    """Simulate people who look carefully at most pairs, and press any key at the others.

    A careful answer is a tie if the difference between the clips is within `tie_width`. Otherwise
    it prefers the first clip with the logistic probability of that difference (Bradley and Terry
    1952). Which clip is on the left is random. `careless` gives the share, for each of `A`
    annotators, of answers that are given at random. Of these, the share `random_left` is the left
    clip.

    Raises:
        ConfigError: there are no annotators or fewer than the quorum, or shares are out of range.

    >>> crowd = simulate_crowd(np.array([0.0, 0.0, 0.2]), np.random.default_rng(0))
    >>> len(crowd.votes), crowd.votes.is_repeat.sum().item()
    (900, 45)
    """
    config = config or CrowdConfig()
    careless = np.asarray(careless, np.float64)
    enough = len(careless) >= config.quorum and (careless >= 0).all() and (careless <= 1).all()
    if not enough:
        raise ConfigError(
            f"careless: expected shares in [0, 1] of at least {config.quorum} people, got "
            f"{careless}."
        )
    query, annotator, repeat_of, known = _assign(len(careless), rng, config)
    difference = config.difference * rng.normal(size=len(repeat_of))
    difference = np.where(known, np.sign(difference) * _clear(len(known), rng, config), difference)
    difference = np.where(repeat_of >= 0, difference[repeat_of], difference)
    truth = np.where(np.abs(difference) < config.tie_width, 0.5, (np.sign(difference) + 1) / 2)
    swapped = _swapped(query, annotator, repeat_of, rng)
    with_care = rng.random(len(query)) < 1 / (1 + np.exp(-difference[query]))
    answer = np.where(truth[query] == 0.5, 0.5, with_care)
    random = (rng.random(len(query)) < random_left) != swapped
    careful = rng.random(len(query)) >= careless[annotator]
    preference = np.where(careful, answer, random)
    preference[rng.random(len(query)) < config.cannot_tell] = np.nan
    votes = Votes.of(
        query,
        annotator,
        preference,
        swapped=swapped,
        response_ms=rng.lognormal(np.log(3000), 0.5, len(query)),
        known=np.where(known, truth, np.nan)[query],
        repeat_of=repeat_of[query],
        names=[f"person {row}" for row in range(len(careless))],
    )
    return Crowd(votes, truth, careful)


def _assign(
    annotators: int, rng: np.random.Generator, config: CrowdConfig
) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
    """Assign a query and an annotator to each answer.

    Return the query and the annotator of each answer, `[R]` each. Also return two arrays `[Q]`: the
    query that each query repeats, and whether its answer is known.

    Ordinary queries come first, then known ones, then one query for each repeat.
    """
    known = round(config.answers * config.known_share)
    repeats = round(config.answers * config.repeat_share)
    ordinary = max(1, (config.answers - known - repeats) * annotators // config.quorum)
    people = rng.random((ordinary, annotators)).argsort(1)[:, : config.quorum]
    query = np.repeat(np.arange(ordinary), config.quorum)
    annotator = people.ravel()
    again = _some_of_each(annotator, repeats, rng)
    total = ordinary + known + len(again)
    is_known = (np.arange(total) >= ordinary) & (np.arange(total) < ordinary + known)
    known_query = np.tile(np.flatnonzero(is_known), annotators)
    queries = [query, known_query, np.arange(ordinary + known, total)]
    whose = [annotator, np.repeat(np.arange(annotators), known), annotator[again]]
    repeat_of = np.full(total, -1)
    repeat_of[ordinary + known :] = query[again]
    return np.concatenate(queries), np.concatenate(whose), repeat_of, is_known


def _some_of_each(annotator: IntArray, count: int, rng: np.random.Generator) -> IntArray:
    """Draw up to `count` random rows of each annotator."""
    shuffled = rng.permutation(len(annotator))
    shuffled = shuffled[np.argsort(annotator[shuffled], kind="stable")]
    of_each = np.bincount(annotator)
    rank = np.arange(len(annotator)) - np.repeat(np.cumsum(of_each) - of_each, of_each)
    return np.asarray(shuffled[rank < count])


def _clear(count: int, rng: np.random.Generator, config: CrowdConfig) -> FloatArray:
    """Draw sizes `[count]` of differences, from the larger half of a normal distribution."""
    drawn = np.abs(rng.normal(size=(count, 16)))
    large = drawn > 0.6745  # half of a normal distribution is further from 0
    return np.asarray(config.difference * drawn[np.arange(count), large.argmax(1)])


def _swapped(
    query: IntArray, annotator: IntArray, repeat_of: IntArray, rng: np.random.Generator
) -> BoolArray:
    """Draw at random which pairs are swapped, `[R]`.

    Half of the repeats differ from the first answer.
    """
    swapped = rng.random(len(query)) < 0.5
    repeat = np.flatnonzero(repeat_of[query] >= 0)
    people = int(annotator.max()) + 1
    key = query * people + annotator
    order = np.argsort(key)
    wanted = repeat_of[query[repeat]] * people + annotator[repeat]
    original = order[np.searchsorted(key[order], wanted)]
    swapped[repeat] = swapped[original] != (rng.random(len(repeat)) < 0.5)
    return swapped
