import json

import numpy as np
import pytest

from preferl.statistics import wilson_interval
from preferl.store.quality.annotators import annotator_report
from preferl.store.quality.votes import Votes
from preferl.testing import CrowdConfig, simulate_crowd

NAN = np.nan


def test_every_column_by_hand():
    votes = Votes.of(
        query=[0, 1, 2, 3, 4, 5, 0, 1],
        annotator=[0, 0, 0, 0, 0, 0, 1, 1],
        preference=[1, 0, 0.5, NAN, 1, 1, 1, 1],
        swapped=np.array([False, True, False, False, False, True, False, False]),
        response_ms=np.array([100, NAN, 300, 900, 500, NAN, NAN, NAN]),
        known=np.array([NAN, 1, 1, NAN, NAN, NAN, NAN, 1]),
        repeat_of=np.array([-1, -1, -1, -1, 0, 1, -1, -1]),
        names=["ann", "bob", "cy"],
    )
    report = annotator_report(votes)
    assert report.answers.tolist() == [6, 2, 0]
    np.testing.assert_array_equal(report.tie_rate, [1 / 5, 0, NAN])
    np.testing.assert_array_equal(report.cannot_tell_rate, [1 / 6, 0, NAN])
    np.testing.assert_array_equal(report.median_ms, [400, NAN, NAN])
    assert report.known.tolist() == [2, 1, 0]
    np.testing.assert_array_equal(report.known_accuracy, [0.25, 1, NAN])
    assert (report.known_low[0], report.known_high[0]) == wilson_interval(0.5, 2)
    # 4 repeats 0 alike on the same sides; 5 repeats 1 differently, also on the same sides
    assert report.repeats.tolist() == [2, 0, 0]
    np.testing.assert_array_equal(report.consistency, [0.5, NAN, NAN])
    np.testing.assert_array_equal(report.consistency_same_sides, [0.5, NAN, NAN])
    assert np.isnan(report.consistency_swapped).all()
    # ann, in order: left, left (second clip was on the left), tie, none, left, right
    np.testing.assert_array_equal(report.left_rate, [3 / 4, 1, NAN])
    assert report.streak.tolist() == [2, 2, 0]
    assert report.side_p.tolist() == pytest.approx([0.625, 0.5, 1])
    # ann and bob agree on query 0, not on 1
    assert report.overlap.tolist() == [2, 2, 0]
    np.testing.assert_array_equal(report.agreement, [0.5, 0.5, NAN])
    assert report.reasons == ((), (), ())


def test_runs_follow_time_and_end_at_ties():
    preference = np.array([1, 1, 0, 1, 0.5, 1, 1, 1.0])
    votes = Votes.of(np.arange(8), [0] * 8, preference)
    assert annotator_report(votes).streak.tolist() == [3]
    moved = np.array([0, 1, 9, 2, 10, 3, 4, 5.0])
    later = Votes.of(np.arange(8), [0] * 8, preference, answered_at=moved)
    assert annotator_report(later).streak.tolist() == [6]


def test_the_bound_on_runs_holds(rng):
    side = rng.integers(2, size=(1500, 60)) * 1.0
    annotator, query = np.indices(side.shape).reshape(2, -1)
    report = annotator_report(Votes.of(query, annotator, side.ravel()))
    for length in (8, 10):
        share = np.mean(report.streak >= length)
        bound = report.streak_p[report.streak == length][0]
        assert 0.4 * bound < share <= bound + 2 * np.sqrt(bound / 1500)
    # nobody here prefers a side; 1500 people are many chances for an alarm of one in a thousand
    assert np.mean(["streak" in reasons for reasons in report.reasons]) < 0.002
    assert np.mean(["one side" in reasons for reasons in report.reasons]) < 0.002


def test_whoever_goes_by_the_side_is_found():
    careless = np.array([0, 0, 0, 0.3])
    crowd = simulate_crowd(careless, np.random.default_rng(0), random_left=1.0)
    report = annotator_report(crowd.votes)
    assert report.reasons == ((), (), (), ("careless", "one side"))
    assert report.flagged.tolist() == [False, False, False, True]
    config = CrowdConfig(repeat_share=0.3)
    crowd = simulate_crowd(np.array([0, 0, 1.0]), np.random.default_rng(0), config, random_left=1.0)
    report = annotator_report(crowd.votes)
    assert report.reasons[2] == ("careless", "one side", "streak")
    assert (report.consistency_same_sides[2], report.consistency_swapped[2]) == (1, 0)


def test_rows_are_plain():
    votes = Votes.of([0, 1], [0, 0], [1, NAN], names=["ann", "bob"])
    rows = annotator_report(votes).rows()
    assert json.loads(json.dumps(rows, allow_nan=True))[0]["answers"] == 2
    assert rows[1]["tie_rate"] is None
    assert (rows[0]["name"], rows[0]["flagged"], rows[0]["reasons"]) == ("ann", False, [])


def test_nobody_and_nothing():
    assert annotator_report(Votes.of([], [], [])).rows() == []


def test_answers_that_left_no_time_to_look_are_counted_and_flagged_where_they_are_many():
    response = np.array([200, 999, 1000, NAN, 200, 1001, 200, *[200] * 3, *[1500] * 297])
    votes = Votes.of(
        query=np.arange(307),
        annotator=[0] * 5 + [1] * 2 + [2] * 300,
        preference=np.arange(307) % 2,
        response_ms=response,
        least_ms=np.array([1000, 1000, 1000, 1000, NAN, 1000, NAN] + [1000] * 300),
        names=["hasty", "had it before", "once or twice", "nobody"],
    )
    report = annotator_report(votes)
    assert report.timed.tolist() == [3, 1, 300, 0]
    np.testing.assert_array_equal(report.too_fast, [2 / 3, 0, 0.01, NAN])
    assert report.answers.tolist() == [5, 2, 300, 0], "nothing is left out"
    assert wilson_interval(2, 3)[0] > 0.03 > wilson_interval(3, 300)[0]
    assert report.reasons == (("too fast",), (), (), ())
