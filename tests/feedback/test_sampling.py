"""Uniform and informative pairs."""

import numpy as np
import pytest
import scipy
from hypothesis import given, strategies as st

from preferl.data import Segments
from preferl.errors import ConfigError, FeedbackError
from preferl.feedback import (
    CoveringPairs,
    InformativePairs,
    Likelihood,
    UniformPairs,
    entropy,
    logit_variance,
    probability_variance,
)
from preferl.feedback.sampling import distinct_windows, segments_wanted
from preferl.testing.feedback_contracts import check_sampler


def windows(count, start=None):
    """`count` windows of two steps, each over other steps unless `start` says where."""
    begin = np.arange(count) * 2 if start is None else np.asarray(start)
    block = np.arange(2.0 * max(count, 1) + 2)
    return Segments(block[:, None], block[:, None], block, begin, np.full(len(begin), 2), 2)


@given(st.integers(2, 12), st.integers(0, 150), st.integers(0, 2**32 - 1))
def test_pairs_are_as_distinct_and_even_as_can_be(players, count, seed):
    pairs = UniformPairs()(windows(players), count, np.random.default_rng(seed))
    assert pairs.shape == (count, 2)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    _, often = np.unique(np.sort(pairs), axis=0, return_counts=True)
    possible = players * (players - 1) // 2
    assert len(often) == min(count, possible)
    if count:
        assert often.max() == -(-count // possible)
    shown = np.bincount(pairs.ravel(), minlength=players)
    assert np.ptp(shown) <= 2  # one bye a round, and the last round may be cut short


def test_enough_windows_are_shown_once_each(rng):
    pairs = UniformPairs()(windows(40), 20, rng)
    assert sorted(pairs.ravel()) == list(range(40))


@pytest.mark.parametrize("players", [5, 6])
def test_every_pair_in_either_order_is_equally_likely(players):
    drawn = [
        UniformPairs()(windows(players), 3, np.random.default_rng(seed))[2] for seed in range(3000)
    ]
    code = np.array(drawn) @ [players, 1]
    counts = np.unique(code, return_counts=True)[1]
    assert len(counts) == players * (players - 1)
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_who_comes_first_is_tossed_for_each_pair():
    firsts = [UniformPairs()(windows(6), 15, np.random.default_rng(k))[:, 0] for k in range(200)]
    times_first = np.array([np.bincount(first, minlength=6) for first in firsts])
    # A coin shows a window second in each of its five pairs once in 32 times.
    assert (times_first == 0).mean() == pytest.approx(1 / 32, abs=0.02)


def test_the_same_window_drawn_twice_is_not_paired_with_itself(rng):
    segments = windows(3, start=[0, 0, 0, 2, 2])
    pairs = UniformPairs()(segments, 30, rng)
    assert (segments.start[pairs[:, 0]] != segments.start[pairs[:, 1]]).all()
    assert distinct_windows(segments).tolist() == [0, 3]


def test_one_window_is_too_few():
    with pytest.raises(FeedbackError, match=r"at least 2 different windows, got 1"):
        UniformPairs()(windows(3, start=[2, 2, 2]), 1, np.random.default_rng(0))


def disagreeing_about(row, calls=None):
    """A scorer whose two members agree about all segments but one."""

    def score(segments):
        if calls is not None:
            calls.append(len(segments))
        scores = np.zeros((2, len(segments)))
        scores[:, row] = [-3.0, 3.0]
        return scores

    return score


@pytest.mark.parametrize("acquisition", [logit_variance, probability_variance])
def test_pairs_on_which_members_disagree_are_chosen(acquisition, rng):
    sampler = InformativePairs(disagreeing_about(4), acquisition)
    pairs = sampler(windows(10), 9, rng)  # 45 candidates are all there are; 9 of them hold row 4
    assert (pairs == 4).any(axis=1).all()


def test_each_segment_is_scored_once(rng):
    calls = []
    InformativePairs(disagreeing_about(0, calls))(windows(30), 20, rng)
    assert calls == [30]


def test_the_most_informative_come_first(rng):
    base = np.arange(8.0)

    def score(segments):
        return np.stack([base, -base])

    pairs = InformativePairs(score, logit_variance)(windows(8), 28, rng)
    gap = np.abs(base[pairs[:, 0]] - base[pairs[:, 1]])
    assert (np.diff(gap) <= 0).all()
    assert gap[0] == 7


def test_pairs_are_chosen_by_the_fitted_probabilities():
    def seen_by(**fitted):
        seen = []

        def value(logits):
            seen.append(logits)
            return entropy(logits)

        sampler = InformativePairs(disagreeing_about(0), value, **fitted)
        assert sampler(windows(8), 28, np.random.default_rng(0)).shape == (28, 2)
        return seen[0]

    likelihood = Likelihood(noise=0.2, scale=3.0)
    expected = likelihood.log_odds(seen_by())
    assert np.abs(expected).max() == pytest.approx(np.log(9), rel=1e-3)  # nine in ten at most
    np.testing.assert_array_equal(seen_by(likelihood=likelihood), expected)
    np.testing.assert_array_equal(seen_by(likelihood=lambda: likelihood), expected)


def test_samplers_say_among_how_many_segments_they_choose():
    def silent(segments, count, rng):
        raise NotImplementedError

    assert segments_wanted(UniformPairs(), 5) == 10
    assert segments_wanted(InformativePairs(oversampling=2.5), 5, oversampling=9) == 25
    assert segments_wanted(CoveringPairs(), 5) == 100
    hybrid = CoveringPairs(InformativePairs(oversampling=2), oversampling=5)
    assert segments_wanted(hybrid, 5) == 100
    for unsaid in (silent, None):
        assert segments_wanted(unsaid, 5, oversampling=10) == 100
        assert segments_wanted(unsaid, 0) == 0


@pytest.mark.parametrize("wanted", [1, -3, 2.5, None])
def test_a_sampler_has_to_want_two_segments_at_least(wanted):
    class Wants:
        def __call__(self, segments, count, rng):
            raise NotImplementedError

        def segments_for(self, questions):
            return wanted

    with pytest.raises(FeedbackError, match=r"segments_for\(5\) of Wants.*at least 2"):
        check_sampler(Wants())


def test_without_a_reward_model_yet_pairs_are_uniform():
    expected = UniformPairs()(windows(20), 5, np.random.default_rng(3))
    for sampler in (InformativePairs(), InformativePairs(lambda segments: None)):
        np.testing.assert_array_equal(sampler(windows(20), 5, np.random.default_rng(3)), expected)


def test_one_member_needs_another_acquisition(rng):
    def score(segments):
        return rng.normal(size=(1, len(segments)))

    with pytest.raises(FeedbackError, match=r"at least 2.*`entropy`"):
        InformativePairs(score)(windows(6), 2, rng)
    assert InformativePairs(score, entropy)(windows(6), 2, rng).shape == (2, 2)


@pytest.mark.parametrize(
    "scores", [np.zeros((2, 5)), np.zeros(6), np.full((2, 6), np.nan)], ids=["few", "flat", "nan"]
)
def test_scores_that_cannot_be_used_are_refused(scores, rng):
    with pytest.raises(FeedbackError, match=r"scores.*\[members, 6\]"):
        InformativePairs(lambda segments: scores)(windows(6), 2, rng)


@pytest.mark.parametrize("value", [np.zeros(3), np.full(15, np.nan)], ids=["few", "nan"])
def test_acquisitions_that_cannot_be_used_are_refused(value, rng):
    sampler = InformativePairs(disagreeing_about(0), lambda logits: value)
    with pytest.raises(FeedbackError, match="acquisition"):
        sampler(windows(6), 2, rng)


@pytest.mark.parametrize("oversampling", [0.5, float("nan"), float("inf")])
def test_oversampling_below_one_is_refused(oversampling):
    with pytest.raises(ConfigError, match="oversampling"):
        InformativePairs(oversampling=oversampling)
