"""How people rate clips: how much, how strictly, and how far they agree beyond chance."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from preferl.shapes import Array, IntArray
from preferl.store.quality.agreement import AgreementReport, agreement_of
from preferl.store.quality.votes import value_counts


@final
@dataclass(frozen=True)
class PersonRatings:
    """The ratings, or the outcomes, of one person."""

    name: str
    count: int
    mean: float  # for outcomes, the share of successes


@final
@dataclass(frozen=True)
class RatingReport:
    """The ratings, or the outcomes, of all people, and how far they agree."""

    clips: int  # how many clips have any
    count: int
    counts: tuple[int, ...]  # for each value, the lowest first
    mean: float | None  # for outcomes, the share of successes; None if there are none
    agreement: AgreementReport
    people: tuple[PersonRatings, ...]  # people who gave any


def rating_report(
    clip: Array,
    annotator: IntArray,
    value: IntArray,
    *,
    scale: range,
    names: Mapping[int, str],
    rng: np.random.Generator,
) -> RatingReport:
    """Count ratings or outcomes, and measure agreement about clips that several people know.

    Args:
        clip: `[R]` name or number of the clip.
        annotator: `[R]` number of the person.
        value: `[R]` what was given.
        scale: all values, the lowest first.
        names: names of people, by their numbers.
        rng: draws the resamples behind intervals.
    """
    clips, unit = np.unique(clip, return_inverse=True)
    people, person = np.unique(annotator, return_inverse=True)
    counts = value_counts(unit, value - scale.start, len(scale))
    given = np.bincount(person)
    means = np.bincount(person, value) / given
    return RatingReport(
        clips=len(clips),
        count=len(value),
        counts=tuple(counts.sum(0).tolist()),
        mean=float(value.mean()) if len(value) else None,
        agreement=agreement_of(counts, rng, units="clips with two of them", scale="ordinal"),
        people=tuple(
            PersonRatings(names[number], count, mean)
            for number, count, mean in zip(
                people.tolist(), given.tolist(), means.tolist(), strict=True
            )
        ),
    )
