"""How carefully each annotator answers, and whom to look at. No answer is thrown away.

Three kinds of evidence show what share of the answers is given at random. Each is a list of misses
between 0 and 1: answers that differ from a known right answer, repeats that differ from the first
answer, and answers that differ from those of other people. A miss is the distance of two
preferences. Whoever presses keys at random therefore misses by 1/2 on average, whatever the keys,
and however hard the pairs. Careful people miss less. How much less depends on the pairs, and is
estimated from the other annotators.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from preferl.shapes import Array, BoolArray, FloatArray, IntArray
from preferl.statistics import sign_test, wilson_interval
from preferl.store.quality.aggregation import fit_dawid_skene
from preferl.store.quality.votes import EQUAL, Votes

RANDOM_MISS = 0.5  # mean distance of a random answer from any preference
# from this usual miss on, evidence is left out: even care is then close to chance
INFORMATIVE_MISS = 0.4
UNITED = (0.5, 0.9)
"""From these differences of the others' probabilities on, they count as leaning, and as united."""

TOLERATED = 0.03  # accepted share of random answers
DEVIATIONS = 1.645
"""By how many standard errors the estimate must exceed the tolerated share to be flagged.

About 5 % of those who answer just the tolerated share at random are then flagged.
"""

EXPECTED_MISS = 0.1  # expected miss of careful people before there are data
BELIEF = 10.0  # how many known answers, and how many repeats, this belief counts as
FEWEST = 30
"""Least number of known answers, repeats and shared answers together for a flag.

With fewer answers, the standard errors would be wrong.
"""

ROUNDS = 5  # most rounds in which flagged people are taken out of the comparison
KNOWN_RIGHT = 0.7  # share of known pairs; flagged if the whole 95 % interval is below it
# share of answers in less time than the clips take; flagged if the interval is above it
TOO_FAST = 0.03
ALARM = 0.001
"""Probability that a person without a preference for a side is flagged for a side or a streak.

It is low, since everybody is tested again and again.
"""


class Carelessness(NamedTuple):
    """Estimated shares of random answers."""

    # [A] relative to the others' share; below 0 for those who do better; NaN: unknown
    share: FloatArray
    error: FloatArray  # [A] standard error of the share, infinite without evidence
    flagged: BoolArray  # [A] whether `share` exceeds the tolerated share by more than chance


class Evidence(NamedTuple):
    """Misses `[M]` between 0 and 1, and the annotators `[M]` who made them.

    A miss on a repeat can come from either of `chances = 2` answers. Evidence from `others` is not
    weighed against the belief from before the data.
    """

    annotator: IntArray
    miss: FloatArray
    chances: int = 1
    others: bool = False


def evidence_on_known(votes: Votes) -> Evidence:
    """Return distances of answers from known right answers, without repeats."""
    rows = votes.counts & ~votes.is_repeat & ~np.isnan(votes.known)
    return Evidence(votes.annotator[rows], np.abs(votes.preference - votes.known)[rows])


def evidence_on_repeats(votes: Votes) -> Evidence:
    """Return distances of second answers from the same annotator's first answers."""
    repeats, originals = votes.repeated()
    miss = np.abs(votes.preference[repeats] - votes.preference[originals])
    return Evidence(votes.annotator[repeats], miss, chances=2)


def evidence_on_others(votes: Votes) -> list[Evidence]:
    """Return distances of answers from all others' answers, from divided to united others.

    Known queries are left out. A random answer hardly shows where others are divided, but it shows
    where they are united. These are therefore separate kinds of evidence.
    """
    preference_of_others = fit_dawid_skene(votes).preference_of_others(votes)
    compared = np.flatnonzero(~np.isnan(preference_of_others) & np.isnan(votes.known))
    unity = np.digitize(np.abs(2 * preference_of_others[compared] - 1), UNITED)
    miss = np.abs(votes.preference - preference_of_others)
    rows = [compared[unity == level] for level in range(len(UNITED) + 1)]
    return [Evidence(votes.annotator[chunk], miss[chunk], others=True) for chunk in rows]


def estimate_carelessness(votes: Votes) -> Carelessness:
    """Estimate everybody's share of random answers from known pairs, repeats and other people.

    Everyone is compared with all others who are not flagged. People must therefore get pairs of the
    same kind. Somebody who takes more care, but finds pairs harder than others, looks careless. If
    only two people disagree, only known pairs and repeats show who is careless. If most people are
    careless, they pass for normal. If the usual answer misses by half, nothing is estimated. Never
    more than half of several annotators are flagged. If pairs are so hard that careful people agree
    on fewer than three in four, one careful person in ten is flagged.
    """
    evidence_on_all = evidence_on_others(votes)
    evidence = [evidence_on_known(votes), evidence_on_repeats(votes), *evidence_on_all]
    people = np.concatenate([kind.annotator for kind in evidence])
    answers = np.bincount(people, minlength=votes.annotators)
    flagged = np.zeros(votes.annotators, bool)
    share, error = _estimate(evidence, flagged)
    for _ in range(ROUNDS):
        careless = (answers >= FEWEST) & (share - DEVIATIONS * error > TOLERATED)
        if (careless == flagged).all() or careless.sum() > max(1, (answers > 0).sum() / 2):
            break
        flagged = careless
        share, error = _estimate(evidence, flagged)
    return Carelessness(share, error, flagged)


def _estimate(evidence: list[Evidence], flagged: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return shares and standard errors `[A]`.

    Each kind of evidence has the weight of its precision.
    """
    weighted, precision = np.zeros((2, len(flagged)))
    for kind in evidence:
        sums = np.array(  # [3, A] of each one's answers, misses and squared misses
            [np.bincount(kind.annotator, kind.miss**power, len(flagged)) for power in range(3)]
        )
        count, total, _ = sums
        unflagged = np.where(flagged, 0, sums)
        belief = 1 if kind.others else BELIEF
        prior = belief * np.array([[1], [EXPECTED_MISS], [EXPECTED_MISS]])
        # For the others of each annotator, `[A]`: mean miss, its variance, and the number of
        # answers.
        rest, misses, squares = unflagged.sum(1, keepdims=True) - unflagged + prior
        usual = misses / rest
        spread = squares / rest - usual**2
        # What a random answer adds to the miss, and the variance of mean and comparison.
        effect = kind.chances * np.where(usual < INFORMATIVE_MISS, RANDOM_MISS - usual, 0)
        variance = spread * (1 / np.maximum(count, 1) + 1 / rest)
        excess = total / np.maximum(count, 1) - usual
        weighted += np.where(count > 0, effect * excess / variance, 0)
        precision += np.where(count > 0, effect**2 / variance, 0)
    has_evidence = precision > 0
    divisor = np.where(precision > 0, precision, 1)
    error = np.where(has_evidence, 1 / np.sqrt(divisor), np.inf)
    return np.where(has_evidence, weighted / divisor, np.nan), error


@final
@dataclass(frozen=True, eq=False)
class AnnotatorReport:
    """A row `[A]` for each annotator; shares and times are NaN if there is nothing to count."""

    names: tuple[str, ...]
    is_model: BoolArray  # true for models, false for people
    answers: IntArray  # all answers, including cannot-tell and repeats
    tie_rate: FloatArray  # share of ties among the answers that count
    cannot_tell_rate: FloatArray  # share among all answers
    median_ms: FloatArray  # median of the known response times, in milliseconds
    timed: IntArray  # answers of known time to a pair that the annotator had not seen before
    too_fast: FloatArray  # share of these in less time than the longer clip takes at double speed
    known: IntArray  # answers to queries whose right answer is known
    known_accuracy: FloatArray  # share of right ones among these; a tie with a side counts half
    known_low: FloatArray  # lower end of the accuracy's 95 % Wilson interval
    known_high: FloatArray  # upper end of that interval
    repeats: IntArray  # planned repeats for which both answers count
    consistency: FloatArray  # share of repeats with the same answer
    consistency_same_sides: FloatArray  # the same, among repeats with both clips on the same sides
    # the same, among repeats with swapped sides; lower if people go by sides
    consistency_swapped: FloatArray
    left_rate: FloatArray  # share of the left clip among answers for a side
    side_p: FloatArray  # two-sided p-value of that share if sides were drawn at random
    streak: IntArray  # longest run of answers for the same side, by time
    streak_p: FloatArray  # upper bound of the probability of such a long run by chance
    agreement: FloatArray  # share of agreeing pairs: an own answer and another's to one query
    overlap: IntArray  # number of these pairs
    # estimated share of answers given at random beyond the others' share
    careless_share: FloatArray
    careless_error: FloatArray  # standard error of that share
    # Reasons to look: "careless", "known pairs", "too fast", "one side" or "streak".
    reasons: tuple[tuple[str, ...], ...]

    @property
    def flagged(self) -> BoolArray:
        """`[A]` whether somebody should look at the answers."""
        return np.array(list(map(bool, self.reasons)), bool)

    def rows(self) -> list[dict[str, object]]:
        """Return a dictionary for each annotator, with plain numbers, and None for NaN."""
        columns = {
            name: [None if value != value else value for value in column.tolist()]
            for name, column in vars(self).items()
            if isinstance(column, np.ndarray)
        }
        return [
            {"name": name}
            | dict(zip(columns, numbers, strict=True))
            | {"reasons": list(reasons), "flagged": bool(reasons)}
            for name, reasons, *numbers in zip(
                self.names, self.reasons, *columns.values(), strict=True
            )
        ]


def annotator_report(votes: Votes) -> AnnotatorReport:
    """Describe every annotator, and name those whose answers somebody should look at.

    An annotator is flagged as `careless` by the rule of `estimate_carelessness`, for `known pairs`
    if too few are right, and as `too fast` if there was no time to see both clips. The flags
    `one side` and `streak` come from tests with the rate `ALARM`. Suppose that each annotator gives
    300 answers, three to a query, a twentieth of them to known pairs and a twentieth to repeats.
    Then about 1 or 2 in 100 careful people are flagged, and about 9 in 10 of those who answer a
    fifth at random. With 500 answers, nearly all of the latter are flagged, and with 100 answers
    six or seven in 10. People with little skill look like people with little care. Nobody's answers
    are left out: a person has to decide that.

    >>> votes = Votes.of([0, 1, 2], [0, 0, 0], [1, 0.5, np.nan], names=["ann"])
    >>> report = annotator_report(votes)
    >>> report.answers.tolist(), report.tie_rate.tolist(), report.flagged.tolist()
    ([3], [0.5], [False])
    """
    answers = np.bincount(votes.annotator, minlength=votes.annotators)
    answer_counts = votes.tally(votes.counts)
    careless = estimate_carelessness(votes)
    timed = votes.tally(~np.isnan(votes.response_ms) & ~np.isnan(votes.least_ms))
    fast = votes.tally(votes.too_fast)
    agreeing, overlap = _agreement_with_others(votes)
    known_answers = _known(votes)
    sides = _sides(votes)
    flags = {
        "careless": careless.flagged,
        "known pairs": known_answers["known_high"] < KNOWN_RIGHT,
        "too fast": _intervals(fast, timed)[0] > TOO_FAST,
        "one side": sides["side_p"] < ALARM,
        "streak": sides["streak_p"] < ALARM,
    }
    reasons = [[name for name, flag in flags.items() if flag[row]] for row in range(len(answers))]
    return AnnotatorReport(
        names=votes.names,
        is_model=votes.is_model,
        answers=answers,
        tie_rate=_share(votes.tally(votes.category == EQUAL), answer_counts),
        cannot_tell_rate=_share(answers - answer_counts, answers),
        median_ms=_medians(votes),
        timed=timed,
        too_fast=_share(fast, timed),
        **known_answers,
        **_consistency(votes),
        **sides,
        agreement=_share(agreeing, overlap),
        overlap=overlap,
        careless_share=careless.share,
        careless_error=careless.error,
        reasons=tuple(map(tuple, reasons)),
    )


def _known(votes: Votes) -> dict[str, Array]:
    """Count the answers to queries with a known right answer, and the share of right ones."""
    misses = evidence_on_known(votes)
    known_counts = np.bincount(misses.annotator, minlength=votes.annotators)
    right = np.bincount(misses.annotator, 1 - misses.miss, minlength=votes.annotators)
    low, high = _intervals(right, known_counts)
    share = _share(right, known_counts)
    return {"known": known_counts, "known_accuracy": share, "known_low": low, "known_high": high}


def _sides(votes: Votes) -> dict[str, Array]:
    """Compare with chance how often, and how often in a row, each side was preferred."""
    lefts = votes.tally(votes.left == 1)
    sided = votes.tally(votes.counts & (votes.category != EQUAL))
    side_p = np.array([sign_test(int(k), int(n)) for k, n in zip(lefts, sided, strict=True)])
    streak = _longest_runs(votes)
    # A run of k begins at the first toss with probability 2^(1-k), and at each later one after a
    # change with 2^-k. The probability of any of these is at most their sum.
    starts = 1 + np.maximum(sided - streak, 0) / 2
    streak_p = np.minimum(1.0, starts * 2.0 ** (1 - streak))
    left_rate = _share(lefts, sided)
    return {"left_rate": left_rate, "side_p": side_p, "streak": streak, "streak_p": streak_p}


def _intervals(part: Array, whole: Array) -> Array:
    """Return the ends `[2, A]` of the 95 % Wilson intervals of shares."""
    ends = [wilson_interval(float(k), int(n)) for k, n in zip(part, whole, strict=True)]
    return np.array(ends, np.float64).reshape(-1, 2).T


def _consistency(votes: Votes) -> dict[str, Array]:
    """Return shares of repeats with the same answer: in all, and by whether sides were swapped."""
    repeats, originals = votes.repeated()
    is_same = votes.preference[repeats] == votes.preference[originals]
    swapped = votes.swapped[repeats] != votes.swapped[originals]
    kinds = {"": swapped | True, "_same_sides": ~swapped, "_swapped": swapped}
    return {"repeats": votes.tally(repeats)} | {
        f"consistency{name}": _share(
            votes.tally(repeats[is_same & rows]), votes.tally(repeats[rows])
        )
        for name, rows in kinds.items()
    }


def _longest_runs(votes: Votes) -> IntArray:
    """Return the longest runs `[A]` of one side; ties and cannot-tell end a run."""
    order = np.lexsort((votes.answered_at, votes.annotator))
    side = np.nan_to_num(votes.left, nan=0.5)[order]
    people = votes.annotator[order]
    longest = np.zeros(votes.annotators, np.int64)
    if len(votes):
        begins = np.r_[True, (side[1:] != side[:-1]) | (people[1:] != people[:-1])]
        start = np.flatnonzero(begins)
        length = np.diff(np.r_[start, len(side)])
        length[side[start] == 0.5] = 0
        np.maximum.at(longest, people[start], length)
    return longest


def _agreement_with_others(votes: Votes) -> tuple[IntArray, IntArray]:
    """Count pairs of an own and another's answer to one query: those that agree, and all, `[A]`."""
    first = votes.first_answers
    unit, counts = first.counts_by_query()
    alike, others = (
        np.bincount(first.annotator, answers - 1, votes.annotators).astype(np.int64)
        for answers in (counts[unit, first.category], counts.sum(1)[unit])
    )
    return alike, others


def _medians(votes: Votes) -> FloatArray:
    """Return the medians `[A]` of the known response times."""
    timed = ~np.isnan(votes.response_ms)
    medians = np.full(votes.annotators, np.nan)
    for person in np.unique(votes.annotator[timed]):
        medians[person] = np.median(votes.response_ms[timed & (votes.annotator == person)])
    return medians


def _share(part: Array, whole: Array) -> FloatArray:
    """Return `part / whole`; NaN where `whole` is 0."""
    return np.asarray(np.where(whole > 0, part / np.maximum(whole, 1), np.nan))
