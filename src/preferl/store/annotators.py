"""What can be said of each annotator, and who should be looked at; nothing is thrown away."""

from dataclasses import dataclass, field
from typing import final

import numpy as np

from preferl.errors import require_in
from preferl.shapes import Array, BoolArray, FloatArray, IntArray
from preferl.statistics import sign_test, wilson_interval
from preferl.store.carelessness import CarelessConfig, estimate_carelessness, evidence_on_known
from preferl.store.votes import EQUAL, Votes


@final
@dataclass(frozen=True)
class AnnotatorConfig:
    """When somebody should look at an annotator's answers.

    Attributes:
        careless: when answers are random too often.
        known_right: share of known pairs that everybody should get right; 0.7. Flagged is whose
            whole 95 % interval is below, whatever others do.
        too_fast: share of answers in less time than the clips take that nobody minds; 0.03. Flagged
            is whose whole 95 % interval is above.
        side_alarm: how often a person without a preference for a side may be flagged for one; one
            in a thousand, since it is asked of everybody again and again.
        streak_alarm: how often a person may be flagged for a long run of one side by chance; the
            same.
    """

    careless: CarelessConfig = field(default_factory=CarelessConfig)
    known_right: float = 0.7
    too_fast: float = 0.03
    side_alarm: float = 0.001
    streak_alarm: float = 0.001

    def __post_init__(self) -> None:
        for name in ("known_right", "too_fast", "side_alarm", "streak_alarm"):
            require_in(f"AnnotatorConfig.{name}", getattr(self, name), 0, 1)


@final
@dataclass(frozen=True, eq=False)
class AnnotatorReport:
    """A row for each annotator; shares and times are NaN where there is nothing to count.

    Attributes:
        names: of the `A` annotators.
        answers: `[A]` all of them, cannot-tell and repeats included.
        tie_rate: `[A]` ties among the answers that count.
        cannot_tell_rate: `[A]` among all answers.
        median_ms: `[A]` of the response times that are known, in milliseconds.
        timed: `[A]` answers of which it is known whether there was time to see both clips: not
            those to a pair that the annotator had before.
        too_fast: `[A]` share of them without: in less time than the longer clip takes at the page's
            greatest speed, twice its own.
        known: `[A]` answers to queries whose answer is known.
        known_accuracy: `[A]` of these, a tie with a side counting half.
        known_low: `[A]` lower end of its 95 % Wilson interval.
        known_high: `[A]` upper end.
        repeats: `[A]` planned repeats of which both answers count.
        consistency: `[A]` share of them with the same answer.
        consistency_same_sides: `[A]` where both clips were on the side of the first time.
        consistency_swapped: `[A]` where they had changed sides; lower than the other where
            somebody goes by the side.
        left_rate: `[A]` the left clip among answers for a side.
        side_p: `[A]` how likely so uneven a share is without a preference for a side (exact
            binomial test, two-sided); sides have to be drawn at random.
        streak: `[A]` longest run of answers for the same side, in order of time.
        streak_p: `[A]` an upper bound of how likely so long a run is by chance.
        agreement: `[A]` share of pairs of answers, own and another's to one query, that agree.
        overlap: `[A]` these pairs.
        careless_share: `[A]` estimated share of answers given at random beyond the others'.
        careless_error: `[A]` its standard error.
        reasons: `[A]` why somebody should look: any of `"careless"`, `"known pairs"`,
            `"too fast"`, `"one side"`, `"streak"`.
    """

    names: tuple[str, ...]
    answers: IntArray
    tie_rate: FloatArray
    cannot_tell_rate: FloatArray
    median_ms: FloatArray
    timed: IntArray
    too_fast: FloatArray
    known: IntArray
    known_accuracy: FloatArray
    known_low: FloatArray
    known_high: FloatArray
    repeats: IntArray
    consistency: FloatArray
    consistency_same_sides: FloatArray
    consistency_swapped: FloatArray
    left_rate: FloatArray
    side_p: FloatArray
    streak: IntArray
    streak_p: FloatArray
    agreement: FloatArray
    overlap: IntArray
    careless_share: FloatArray
    careless_error: FloatArray
    reasons: tuple[tuple[str, ...], ...]

    @property
    def flagged(self) -> BoolArray:
        """`[A]` whether somebody should look."""
        return np.array([bool(found) for found in self.reasons], bool)

    def rows(self) -> list[dict[str, object]]:
        """A dictionary for each annotator, with plain numbers and None for NaN."""
        columns = {
            name: [None if value != value else value for value in np.asarray(column).tolist()]
            for name, column in vars(self).items()
            if name not in ("names", "reasons")
        }
        return [
            {
                "name": name,
                **{key: column[row] for key, column in columns.items()},
                "reasons": list(self.reasons[row]),
                "flagged": bool(self.reasons[row]),
            }
            for row, name in enumerate(self.names)
        ]


def annotator_report(votes: Votes, config: AnnotatorConfig | None = None) -> AnnotatorReport:
    """Describe every annotator and name those whose answers somebody should look at.

    An annotator is flagged as `careless` by the rule of `estimate_carelessness`, for `known pairs`
    whose answers are beneath all doubt, as `too fast` where there was no time to see both clips,
    and for `one side` or a `streak` by tests at the rates in `AnnotatorConfig`. With 300 answers
    each, three to a query, a twentieth of them known and a twentieth repeated, about 1 or 2 in 100
    careful people are flagged, and about 9 in 10 of those who answer a fifth at random; with 500
    answers nearly all of these, with 100 six or seven in 10. People of little skill look like
    people of little care. Nobody's answers are left out: that is for a person to decide.

    Args:
        votes: of all annotators of a project.
        config: when to flag; the defaults if None.

    >>> votes = Votes.of([0, 1, 2], [0, 0, 0], [1, 0.5, np.nan], names=["ann"])
    >>> report = annotator_report(votes)
    >>> report.answers.tolist(), report.tie_rate.tolist(), report.flagged.tolist()
    ([3], [0.5], [False])
    """
    config = config or AnnotatorConfig()
    answers, counted = votes.tally(np.full(len(votes), True)), votes.tally(votes.counts)
    tied = votes.category == EQUAL
    lefts, sided = votes.tally(votes.left == 1), votes.tally(votes.counts & ~tied)
    streak = _longest_runs(votes)
    side_p = np.array([sign_test(int(k), int(n)) for k, n in zip(lefts, sided, strict=True)])
    streak_p = _streak_bound(streak, sided)
    careless = estimate_carelessness(votes, config.careless)
    known = _known(votes)
    agreeing, overlap = _agreement_with_others(votes)
    timed, fast = votes.tally(votes.timed), votes.tally(votes.too_fast)
    fast_low, _ = _intervals(fast, timed)
    return AnnotatorReport(
        names=votes.names,
        answers=answers,
        tie_rate=_share(votes.tally(tied), counted),
        cannot_tell_rate=_share(answers - counted, answers),
        median_ms=_medians(votes),
        timed=timed,
        too_fast=_share(fast, timed),
        **known,
        **_consistency(votes),
        left_rate=_share(lefts, sided),
        side_p=side_p,
        streak=streak,
        streak_p=streak_p,
        agreement=_share(agreeing, overlap),
        overlap=overlap,
        careless_share=careless.share,
        careless_error=careless.error,
        reasons=_reasons(
            careless=careless.flagged,
            known_pairs=known["known_high"] < config.known_right,
            too_fast=fast_low > config.too_fast,
            one_side=side_p < config.side_alarm,
            streak=streak_p < config.streak_alarm,
        ),
    )


def _reasons(**found: BoolArray) -> tuple[tuple[str, ...], ...]:
    """Of each annotator, the names of the flags `[A]` that are set."""
    names = {name: name.replace("_", " ") for name in found}
    return tuple(
        tuple(names[name] for name, flag in zip(found, flags, strict=True) if flag)
        for flags in zip(*found.values(), strict=True)
    )


def _known(votes: Votes) -> dict[str, Array]:
    """Answers to known queries, with a Wilson interval of their accuracy."""
    evidence = evidence_on_known(votes)
    count = np.bincount(evidence.annotator, minlength=votes.annotators)
    right = np.bincount(evidence.annotator, 1 - evidence.miss, minlength=votes.annotators)
    low, high = _intervals(right, count)
    return {
        "known": count,
        "known_accuracy": _share(right, count),
        "known_low": low,
        "known_high": high,
    }


def _intervals(part: Array, whole: Array) -> Array:
    """`[2, A]` ends of the 95 % Wilson intervals of shares."""
    ends = [wilson_interval(float(k), int(n)) for k, n in zip(part, whole, strict=True)]
    return np.array(ends, np.float64).reshape(-1, 2).T


def _consistency(votes: Votes) -> dict[str, Array]:
    """Repeats with the same answer, in all and by whether the clips had changed sides."""
    repeats, originals = votes.repeated()
    both = votes.counts[repeats] & votes.counts[originals]
    repeats, originals = repeats[both], originals[both]
    same = votes.preference[repeats] == votes.preference[originals]
    swapped = votes.swapped[repeats] != votes.swapped[originals]
    people = votes.annotator[repeats]

    def share(rows: BoolArray) -> FloatArray:
        asked = np.bincount(people[rows], minlength=votes.annotators)
        return _share(np.bincount(people[rows], same[rows], minlength=votes.annotators), asked)

    return {
        "repeats": np.bincount(people, minlength=votes.annotators),
        "consistency": share(np.ones(len(people), bool)),
        "consistency_same_sides": share(~swapped),
        "consistency_swapped": share(swapped),
    }


def _longest_runs(votes: Votes) -> IntArray:
    """`[A]` longest runs of one side; ties and cannot-tell end a run."""
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


def _streak_bound(streak: IntArray, tosses: IntArray) -> FloatArray:
    """`[A]` at least the probability of a run so long in so many fair tosses.

    A run of `k` begins at the first toss with probability `2^(1-k)`, and at each later one after
    a change with `2^-k`; together they cannot be likelier than their sum.
    """
    starts = 1 + np.maximum(tosses - streak, 0) / 2
    return np.asarray(np.minimum(1.0, starts * 2.0 ** (1 - streak)))


def _agreement_with_others(votes: Votes) -> tuple[IntArray, IntArray]:
    """Pairs of an own and another's answer to one query: those that agree, and all, `[A]`."""
    first = votes.first_answers
    unit, counts = first.counts_by_query()
    agreeing, others = counts[unit, first.category] - 1, counts.sum(1)[unit] - 1
    agreed, overlap = (
        np.bincount(first.annotator, pairs, minlength=votes.annotators).astype(np.int64)
        for pairs in (agreeing, others)
    )
    return agreed, overlap


def _medians(votes: Votes) -> FloatArray:
    """`[A]` medians of the response times that are known."""
    timed = votes[~np.isnan(votes.response_ms)]
    order = np.lexsort((timed.response_ms, timed.annotator))
    times = np.asarray(timed.response_ms[order], np.float64)
    count = np.bincount(timed.annotator, minlength=votes.annotators)
    start = np.cumsum(count) - count
    medians = np.full(votes.annotators, np.nan)
    some = count > 0
    low = times[(start + (count - 1) // 2)[some]]
    medians[some] = (low + times[(start + count // 2)[some]]) / 2
    return np.asarray(medians)


def _share(part: Array, whole: Array) -> FloatArray:
    """`part / whole`, NaN where there is nothing."""
    return np.asarray(np.where(whole > 0, part / np.maximum(whole, 1), np.nan))
