"""The counts and shares of a report about ratings, against numbers by hand."""

import numpy as np

from preferl.store.quality.rating_report import rating_report

NAN = np.nan


def test_counts_means_and_agreement(rng):
    report = rating_report(
        clip=np.array([0, 0, 1, 1, 2]),
        annotator=np.array([0, 1, 0, 1, 0]),
        rating=np.array([5.0, 5.0, 1.0, 2.0, NAN]),
        outcome=np.array([1.0, NAN, 0.0, 0.0, 1.0]),
        names=["Ann", "Bo", "Cleo"],
        rng=rng,
    )
    assert (report.clips, report.ratings, report.outcomes) == (3, 4, 4)
    assert report.counts == (1, 1, 0, 0, 2)
    assert report.success == 0.5
    assert report.rating_agreement.raw == 0.5
    assert "2 of at least 10 clips with two ratings" in report.rating_agreement.note
    assert report.outcome_agreement.raw == 1.0
    people = [(p.name, p.ratings, p.mean, p.outcomes, p.success) for p in report.people]
    assert people == [("Ann", 2, 3.0, 3, 2 / 3), ("Bo", 2, 3.5, 1, 0.0)]


def test_nothing_is_no_share(rng):
    none = np.zeros(0, np.int64)
    report = rating_report(none, none, np.zeros(0), np.zeros(0), names=["Ann"], rng=rng)
    assert (report.clips, report.success, report.people) == (0, None, ())
