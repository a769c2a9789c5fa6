import json

import numpy as np
import pytest

from preferl.statistics import wilson_interval
from preferl.store.quality.annotators import (
    annotator_report,
    estimate_carelessness,
    evidence_on_known,
    evidence_on_others,
    evidence_on_repeats,
)
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


def flag_rates(careless, runs=200, config=None):
    """How often each annotator of a simulated crowd is flagged."""
    crowds = (
        simulate_crowd(np.array(careless), np.random.default_rng(seed), config)
        for seed in range(runs)
    )
    return np.mean([estimate_carelessness(crowd.votes).flagged for crowd in crowds], 0)


def test_misses_by_hand():
    votes = Votes.of(
        query=[0, 1, 2, 3, 4],
        annotator=[0, 0, 0, 0, 0],
        preference=[1, 0.5, 0, NAN, 1],
        known=np.array([1, 1, 1, 1, NAN]),
        repeat_of=np.array([-1, -1, -1, -1, 2]),
    )
    known = evidence_on_known(votes)
    assert (known.miss.tolist(), known.chances) == ([0, 0.5, 1], 1)
    repeats = evidence_on_repeats(votes)
    assert (repeats.miss.tolist(), repeats.chances) == ([1], 2)
    assert [len(kind.miss) for kind in evidence_on_others(votes)] == [0, 0, 0]


def test_one_kind_of_evidence_by_hand():
    # only known pairs: the first misses 6 of 20, the second 2 of 20
    miss = np.r_[np.ones(6), np.zeros(14), np.ones(2), np.zeros(18)]
    votes = Votes.of(
        np.arange(40), np.repeat([0, 1], 20), 1 - miss, known=np.where(miss >= 0, 1.0, NAN)
    )
    result = estimate_carelessness(votes)
    usual = (2 + 10 * 0.1) / 30  # of the second, and of the belief
    assert result.share[0] == pytest.approx((0.3 - usual) / (0.5 - usual))
    variance = usual * (1 - usual) * (1 / 20 + 1 / 30)
    assert result.error[0] == pytest.approx(np.sqrt(variance) / (0.5 - usual))
    assert result.share[1] < 0


def test_the_share_is_found_again():
    careless = np.array([0, 0, 0, 0, 0.3])
    shares = [
        estimate_carelessness(
            simulate_crowd(careless, np.random.default_rng(seed), CrowdConfig(answers=1000)).votes
        ).share
        for seed in range(10)
    ]
    np.testing.assert_allclose(np.mean(shares, 0), careless, atol=0.03)


def test_careful_and_careless_in_a_few_crowds():
    rates = flag_rates([0, 0, 0, 0, 0.4], runs=20)
    assert rates[4] >= 0.95
    assert rates[:4].mean() <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "found", "blamed"), [(100, 0.55, 0.05), (300, 0.84, 0.02), (500, 0.97, 0.02)]
)
def test_error_rates_over_two_hundred_crowds(answers, found, blamed):
    rates = flag_rates([0, 0, 0, 0, 0.2], config=CrowdConfig(answers=answers))
    assert rates[4] >= found
    assert rates[:4].mean() <= blamed


@pytest.mark.slow
def test_more_of_the_crowd_may_be_careless():
    rates = flag_rates([0, 0, 0, 0.2, 0.2])
    assert rates[3:].mean() >= 0.83
    assert rates[:3].mean() <= 0.03


@pytest.mark.slow
def test_a_careful_crowd_is_left_alone():
    assert flag_rates([0, 0, 0, 0, 0]).mean() <= 0.02
    # ties, declined answers and queries that people seldom share
    config = CrowdConfig(tie_width=1.0, cannot_tell=0.05, quorum=2)
    assert flag_rates([0, 0, 0, 0, 0], config=config).mean() <= 0.02


def test_contrary_answers_are_worse_than_random(rng):
    crowd = simulate_crowd(np.zeros(4), rng)
    votes = crowd.votes
    contrary = np.where(votes.annotator == 1, 1 - votes.preference, votes.preference)
    columns = {name: getattr(votes, name) for name in Votes.__dataclass_fields__}
    result = estimate_carelessness(Votes(**(columns | {"preference": contrary})))
    assert result.flagged.tolist() == [False, True, False, False]
    assert result.share[1] > 1


def test_two_who_disagree_cannot_be_distinguished(rng):
    config = CrowdConfig(quorum=2, known_share=0, repeat_share=0)
    result = estimate_carelessness(simulate_crowd(np.array([0, 0.5]), rng, config).votes)
    assert not result.flagged.any()
    np.testing.assert_allclose(np.nan_to_num(result.share), 0, atol=0.15)


def test_nobody_is_blamed_where_pairs_are_coin_tosses(rng):
    crowd = simulate_crowd(np.ones(6), rng, CrowdConfig(answers=300))
    assert not estimate_carelessness(crowd.votes).flagged.any()


def test_a_few_answers_are_too_few():
    answers = np.zeros(29)
    votes = Votes.of(np.arange(29), [0] * 29, answers, known=np.ones(29), names=["ann", "bob"])
    result = estimate_carelessness(votes)
    assert result.share[0] - 5 * result.error[0] > 0.5
    assert not result.flagged.any()
    more = Votes.of(np.arange(30), [0] * 30, np.zeros(30), known=np.ones(30), names=["ann", "bob"])
    assert estimate_carelessness(more).flagged.tolist() == [True, False]


def test_nothing_is_known_of_those_who_did_not_answer():
    votes = Votes.of([0], [0], [1], names=["ann", "bob"])
    result = estimate_carelessness(votes)
    assert np.isnan(result.share).all()
    assert np.isinf(result.error).all()
    assert not result.flagged.any()
    assert len(estimate_carelessness(Votes.of([], [], [])).share) == 0
