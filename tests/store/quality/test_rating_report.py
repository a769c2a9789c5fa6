"""The counts and shares of a report about ratings, against numbers by hand."""

import numpy as np

from preferl.store.quality.rating_report import rating_report

NAMES = {3: "Ann", 5: "Bo", 6: "Cleo"}


def test_counts_means_and_agreement(rng):
    report = rating_report(
        clip=np.array([0, 0, 1, 1]),
        annotator=np.array([3, 5, 3, 5]),
        value=np.array([5, 5, 1, 2]),
        scale=range(1, 6),
        names=NAMES,
        rng=rng,
    )
    assert (report.clips, report.count, report.mean) == (2, 4, 3.25)
    assert report.counts == (1, 1, 0, 0, 2)
    assert report.agreement.raw == 0.5
    assert "2 of at least 10 clips with two of them" in report.agreement.note
    people = [(p.name, p.count, p.mean) for p in report.people]
    assert people == [("Ann", 2, 3.0), ("Bo", 2, 3.5)]


def test_the_mean_of_outcomes_is_the_share_of_successes(rng):
    report = rating_report(
        clip=np.array([0, 1, 1, 2]),
        annotator=np.array([3, 3, 5, 3]),
        value=np.array([1, 0, 0, 1]),
        scale=range(2),
        names=NAMES,
        rng=rng,
    )
    assert (report.mean, report.counts, report.agreement.raw) == (0.5, (2, 2), 1.0)
    assert [(p.name, p.count, p.mean) for p in report.people] == [("Ann", 3, 2 / 3), ("Bo", 1, 0.0)]


def test_nothing_is_no_share(rng):
    none = np.zeros(0, np.int64)
    report = rating_report(none, none, none, scale=range(1, 6), names=NAMES, rng=rng)
    assert (report.clips, report.mean, report.people) == (0, None, ())
