import numpy as np
import pytest

from preferl.store.quality.annotators import (
    estimate_carelessness,
    evidence_on_known,
    evidence_on_others,
    evidence_on_repeats,
)
from preferl.store.quality.votes import Votes
from preferl.testing import CrowdConfig, simulate_crowd

NAN = np.nan


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


def test_random_answers_miss_half_whatever_the_keys():
    for random_left in (0.5, 0.9):
        crowd = simulate_crowd(
            np.array([0, 0, 0, 1.0]),
            np.random.default_rng(0),
            CrowdConfig(answers=3000, known_share=0.3),
            random_left=random_left,
        )
        votes = crowd.votes
        for kind in [evidence_on_known(votes), *evidence_on_others(votes)]:
            miss = kind.miss[kind.annotator == 3]
            assert len(miss) == 0 or abs(miss.mean() - 0.5) < 2.5 * 0.5 / np.sqrt(len(miss))
    tied = Votes.of([0, 1], [0, 0], [0.5, 0.5], known=np.array([1.0, 0.0]))
    assert evidence_on_known(tied).miss.tolist() == [0.5, 0.5]


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


def test_contrary_answers_are_worse_than_random():
    crowd = simulate_crowd(np.zeros(4), np.random.default_rng(0))
    votes = crowd.votes
    contrary = np.where(votes.annotator == 1, 1 - votes.preference, votes.preference)
    columns = {name: getattr(votes, name) for name in Votes.__dataclass_fields__}
    result = estimate_carelessness(Votes(**(columns | {"preference": contrary})))
    assert result.flagged.tolist() == [False, True, False, False]
    assert result.share[1] > 1


def test_two_who_disagree_cannot_be_distinguished():
    rng = np.random.default_rng(0)
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
