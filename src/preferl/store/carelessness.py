"""How many answers of each annotator seem to be given at random, compared with the others'.

Three kinds of evidence are pooled, each a list of misses between 0 and 1: answers that differ from
what is known, repeats that differ from the first answer, and answers that differ from what the
other people's answers say. A miss is the distance of two preferences, so that whoever presses keys
at random misses by 1/2 on average, whatever the keys and however hard the pairs. Careful people
miss less, by an amount that depends on the pairs and is taken from the other annotators.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from preferl.errors import require_in
from preferl.shapes import Array, BoolArray, FloatArray, IntArray
from preferl.store.combine import DawidSkene, fit_dawid_skene
from preferl.store.votes import Votes

_RANDOM_MISS = 0.5
"""How far a random answer is from any preference, on average."""

_TELLING = 0.4
"""Usual misses from which on a kind of evidence says nothing: care is too close to chance."""

_UNITED = (0.5, 0.9)
"""Differences of the others' probabilities at which they count as leaning, and as united."""


@final
@dataclass(frozen=True)
class CarelessConfig:
    """When answers are so often random that somebody should look.

    Attributes:
        tolerated: share of random answers that is nobody's business; 0.03.
        deviations: standard errors by which the estimate has to be above that; 1.645, so that
            about 5 % of those who answer just the tolerated share at random are flagged.
        expected_miss: what careful people are believed to miss before there is data; 0.1.
        belief: how many known answers, and how many repeats, that belief is worth; 10.
        fewest: known answers, repeats and shared answers of an annotator, together, below which
            nobody is flagged; 30, since the errors are those of many answers.
        rounds: how often those who are flagged are taken out of what others are compared with;
            5, more than which is seldom needed.
    """

    tolerated: float = 0.03
    deviations: float = 1.645
    expected_miss: float = 0.1
    belief: float = 10.0
    fewest: int = 30
    rounds: int = 5

    def __post_init__(self) -> None:
        require_in("CarelessConfig.tolerated", self.tolerated, 0, 1)
        require_in("CarelessConfig.expected_miss", self.expected_miss, 0.001, 0.49)
        for name, least in (("deviations", 0), ("belief", 1), ("fewest", 0), ("rounds", 1)):
            require_in(f"CarelessConfig.{name}", getattr(self, name), least, float("inf"))


@final
@dataclass(frozen=True, eq=False)
class Carelessness:
    """Estimated shares of random answers.

    Attributes:
        share: `[A]` of answers given at random, relative to the others; below 0 for those who
            do better than the others, NaN where nothing is known.
        error: `[A]` its standard error, infinite where nothing is known.
        flagged: `[A]` whether `share` is above what is tolerated beyond chance.
    """

    share: FloatArray
    error: FloatArray
    flagged: BoolArray


class Evidence(NamedTuple):
    """Misses `[M]` between 0 and 1, the annotators `[M]` who made them, and random answers in each.

    A miss on a repeat can be owed to either of `chances = 2` answers. What `others` say is worth
    as much as they are: there, no belief from before the data is held against it.
    """

    annotator: IntArray
    miss: FloatArray
    chances: int = 1
    others: bool = False


def evidence_on_known(votes: Votes) -> Evidence:
    """Distances of answers from what is known, repeats left out."""
    rows = votes.counts & ~votes.is_repeat & ~np.isnan(votes.known)
    return Evidence(votes.annotator[rows], np.abs(votes.preference - votes.known)[rows])


def evidence_on_repeats(votes: Votes) -> Evidence:
    """Distances of second answers from the same annotator's first."""
    repeats, originals = votes.repeated()
    miss = np.abs(votes.preference[repeats] - votes.preference[originals])
    kept = ~np.isnan(miss)
    return Evidence(votes.annotator[repeats[kept]], miss[kept], chances=2)


def evidence_on_others(votes: Votes, fit: DawidSkene | None = None) -> list[Evidence]:
    """Distances of answers from what all others' answers say, from divided to united others.

    Known queries are left out. Where others are divided a random answer hardly shows, and where
    they are united it does, so these are kinds of evidence of their own.
    """
    fit = fit or fit_dawid_skene(votes)
    others = fit.preference_of_others(votes)
    kept = np.flatnonzero(~np.isnan(others) & np.isnan(votes.known))
    unity = np.digitize(np.abs(2 * others[kept] - 1), _UNITED)
    miss = np.abs(votes.preference - others)
    rows = [kept[unity == level] for level in range(len(_UNITED) + 1)]
    return [Evidence(votes.annotator[some], miss[some], others=True) for some in rows]


def estimate_carelessness(
    votes: Votes, config: CarelessConfig | None = None, *, fit: DawidSkene | None = None
) -> Carelessness:
    """Estimate everybody's share of random answers from known pairs, repeats and other people.

    Everyone is compared with all others that are not flagged, so people have to be given pairs of
    the same kind; somebody who takes more care but finds pairs harder than others looks careless.
    Of two people who disagree, nothing but known pairs and repeats can tell who is careless. Where
    most people are careless they pass for normal, and where the usual answer misses by half,
    nothing can be told: never are more than half of several annotators flagged. On pairs so hard
    that careful people agree on fewer than three in four, one careful person in ten is flagged.

    Args:
        votes: of several people.
        config: when to flag; the defaults if None.
        fit: of the same votes, where there is one; fitted here if None.
    """
    config = config or CarelessConfig()
    evidence = [
        evidence_on_known(votes),
        evidence_on_repeats(votes),
        *evidence_on_others(votes, fit),
    ]
    answers = np.bincount(
        np.concatenate([kind.annotator for kind in evidence]), minlength=votes.annotators
    )
    flagged = np.zeros(votes.annotators, bool)
    share, error = _estimate(evidence, flagged, config)
    for _ in range(config.rounds):
        found = (answers >= config.fewest) & (share - config.deviations * error > config.tolerated)
        if (found == flagged).all() or found.sum() > max(1, (answers > 0).sum() / 2):
            break
        flagged = found
        share, error = _estimate(evidence, flagged, config)
    return Carelessness(share, error, flagged)


def _estimate(
    evidence: list[Evidence], flagged: BoolArray, config: CarelessConfig
) -> tuple[FloatArray, FloatArray]:
    """Shares and standard errors `[A]`, each kind of evidence weighed by what it can tell."""
    told = np.zeros(len(flagged))
    precision = np.zeros(len(flagged))

    def of_others(own: Array) -> Array:
        kept = np.where(flagged, 0, own)
        return np.asarray(kept.sum() - kept)

    for kind in evidence:
        count, total, squares = (
            np.bincount(kind.annotator, kind.miss**power, minlength=len(flagged))
            for power in (0, 1, 2)
        )
        # Mean miss of everyone's others, its variance, and the answers it rests on, [A] each.
        belief = 1 if kind.others else config.belief
        rest = of_others(count) + belief
        usual = (of_others(total) + belief * config.expected_miss) / rest
        spread = (of_others(squares) + belief * config.expected_miss) / rest - usual**2
        # What a random answer adds to the miss, and the variance of mean and comparison.
        effect = kind.chances * np.where(usual < _TELLING, _RANDOM_MISS - usual, 0)
        variance = spread * (1 / np.maximum(count, 1) + 1 / rest)
        told += np.where(count > 0, effect * (total / np.maximum(count, 1) - usual) / variance, 0)
        precision += np.where(count > 0, effect**2 / variance, 0)
    known = precision > 0
    share = np.where(known, told / np.where(known, precision, 1), np.nan)
    return share, np.where(known, 1 / np.sqrt(np.where(known, precision, 1)), np.inf)
