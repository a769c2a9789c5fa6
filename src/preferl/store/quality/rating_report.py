"""How people rate clips: how much, how strictly, and how far they agree beyond chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from preferl.shapes import FloatArray, IntArray
from preferl.store.quality.agreement import AgreementReport, agreement_of
from preferl.store.quality.votes import value_counts

VALUES = 5  # of ratings


@final
@dataclass(frozen=True)
class PersonRatings:
    """The ratings and outcomes of one person; shares and means of nothing are None."""

    name: str
    ratings: int
    mean: float | None  # of the ratings
    outcomes: int
    success: float | None  # share of success among the outcomes


@final
@dataclass(frozen=True)
class RatingReport:
    """The ratings and outcomes of all people, and how far they agree."""

    clips: int  # with a rating or an outcome
    ratings: int
    outcomes: int
    counts: tuple[int, ...]  # of each rating, the lowest first
    success: float | None  # share of success among the outcomes
    rating_agreement: AgreementReport  # ordinal
    outcome_agreement: AgreementReport  # nominal
    people: tuple[PersonRatings, ...]  # with a rating or an outcome


def rating_report(
    clip: IntArray,
    annotator: IntArray,
    rating: FloatArray,
    outcome: FloatArray,
    *,
    names: Sequence[str],
    rng: np.random.Generator,
) -> RatingReport:
    """Count ratings and outcomes, and measure agreement about clips that several people know.

    Args:
        clip: `[R]` number of the clip, from 0 on.
        annotator: `[R]` row of `names`.
        rating: `[R]` 1 to 5, NaN where none was given.
        outcome: `[R]` 1 for success, 0 for failure, NaN where none was given.
        names: of the annotators.
        rng: of the resamples behind intervals.
    """
    rated = ~np.isnan(rating)
    judged = ~np.isnan(outcome)
    ratings = value_counts(clip[rated], rating[rated].astype(np.int64) - 1, VALUES)
    outcomes = value_counts(clip[judged], outcome[judged].astype(np.int64), 2)
    people = len(names)
    count = np.bincount(annotator[rated], minlength=people)
    total = np.bincount(annotator[rated], rating[rated], minlength=people)
    marks = np.bincount(annotator[judged], minlength=people)
    successes = np.bincount(annotator[judged], outcome[judged], minlength=people)
    return RatingReport(
        clips=len(np.unique(clip)),
        ratings=int(rated.sum()),
        outcomes=int(judged.sum()),
        counts=tuple(ratings.sum(0).tolist()),
        success=float(outcome[judged].mean()) if judged.any() else None,
        rating_agreement=agreement_of(
            ratings, rng, units="clips with two ratings", scale="ordinal"
        ),
        outcome_agreement=agreement_of(outcomes, rng, units="clips with two outcomes"),
        people=tuple(
            PersonRatings(
                name=names[person],
                ratings=int(count[person]),
                mean=float(total[person] / count[person]) if count[person] else None,
                outcomes=int(marks[person]),
                success=float(successes[person] / marks[person]) if marks[person] else None,
            )
            for person in np.flatnonzero(count + marks).tolist()
        ),
    )
