"""Uniform and informative pairs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy
from hypothesis import given, strategies as st

from helpers.clips import at
from preferl.data import Segments
from preferl.data.arrays import load_segments, save_segments
from preferl.errors import FeedbackError
from preferl.feedback import (
    CoveringPairs,
    InformativePairs,
    InstantFeedback,
    Likelihood,
    ScriptedTeacher,
    UniformPairs,
    entropy,
    logit_variance,
    probability_variance,
)
from preferl.feedback.pair_sampling import (
    distinct_windows,
    farthest_first,
    label_variance,
    mean_observation,
    segments_wanted,
)
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


def test_one_window_is_too_few(rng):
    with pytest.raises(FeedbackError, match=r"at least 2 different windows, got 1"):
        UniformPairs()(windows(3, start=[2, 2, 2]), 1, rng)


def disagreeing_about(row, calls=None):
    """A scorer whose two members agree about all segments but one."""

    def score(segments):
        if calls is not None:
            calls.append(len(segments))
        scores = np.zeros((2, len(segments)))
        scores[:, row] = [-3.0, 3.0]
        return scores

    return score


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


VARIANCES = (logit_variance, probability_variance, label_variance)


def test_label_variance_counts_votes_and_halves_the_undecided():
    logits = np.array([[2.0, 1.0, 0.0], [3.0, 1.0, 4.0], [-0.1, 1.0, 1.0], [-9.0, 1.0, 2.0]])
    # Shares 2/4, 4/4 and 3.5/4.
    np.testing.assert_allclose(label_variance(logits), [0.25, 0.0, 0.875 * 0.125])


def test_entropy_is_the_mean_over_members_in_nats():
    logits = np.array([[0.0, math.log(3)], [0.0, -math.log(3)]])
    quarter = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    np.testing.assert_allclose(entropy(logits), [math.log(2), quarter])


@pytest.mark.parametrize("function", [*VARIANCES, entropy])
def test_huge_logits_stay_finite(function):
    value = function(np.array([[1e8, -1e8, 1e8], [1e8, 1e8, -1e8]]))
    assert np.isfinite(value).all()
    assert (value >= 0).all()


def offering(pairs):
    def candidates(segments, count, rng):
        return np.array(pairs)

    return candidates


def test_the_mean_observation_leaves_padding_out_and_joins_keys():
    steps = np.arange(12.0).reshape(6, 2)
    segments = Segments(
        {"arm": steps, "hand": np.arange(6.0)},
        steps,
        np.zeros(6),
        np.array([0, 3]),
        np.array([3, 2]),
        3,
    )
    np.testing.assert_allclose(mean_observation(segments), [[2, 3, 1], [7, 8, 3.5]])


def test_pictures_are_averaged_without_overflow_also_on_disk(rng, tmp_path):
    pictures = rng.integers(0, 255, (9, 40, 40), np.uint8)
    blocks = pictures, np.zeros((9, 1)), np.zeros(9)
    segments = Segments(*blocks, np.array([0, 3, 6]), np.array([3, 3, 2]), 3)
    save_segments(tmp_path / "clips", segments)
    on_disk = load_segments(tmp_path / "clips").select(np.array([2, 0]))
    assert not isinstance(on_disk.observations, np.ndarray)
    expected = [pictures[rows].mean(0).ravel() for rows in (slice(6, 8), slice(3))]
    np.testing.assert_allclose(mean_observation(on_disk), expected)


def test_greedy_picks_match_a_search_over_all_distances(rng):
    points = rng.normal(size=(30, 2, 3))
    flat = points.reshape(30, -1)
    turned = points[:, ::-1].reshape(30, -1)
    distance = np.minimum(
        np.linalg.norm(flat[:, None] - flat, axis=-1),
        np.linalg.norm(flat[:, None] - turned, axis=-1),
    )
    expected = [0]
    for _ in range(9):
        expected.append(int(distance[:, expected].min(axis=1).argmax()))
    assert farthest_first(points, 10, np.full(30, np.inf)).tolist() == expected


def test_none_is_taken_twice_even_where_all_coincide(rng):
    pairs = CoveringPairs(oversampling=2)(at(*np.zeros(12)), 5, rng)
    assert len(np.unique(np.sort(pairs), axis=0)) == 5


def test_units_of_features_do_not_matter(rng):
    block = rng.normal(size=(40, 3))
    segments = replace(at(*np.zeros(40)), observations=block)
    other = replace(segments, observations=block * np.array([1e3, 1.0, 1e-3]))
    sampler = CoveringPairs()
    np.testing.assert_array_equal(
        sampler(segments, 6, np.random.default_rng(1)), sampler(other, 6, np.random.default_rng(1))
    )


def test_a_feedback_without_answers_has_nothing_to_keep_away_from(
    rng,
):
    feedback = InstantFeedback(ScriptedTeacher(), 0)
    segments = at(*rng.normal(size=20))
    first = CoveringPairs(asked=feedback.comparisons)(segments, 4, np.random.default_rng(0))
    np.testing.assert_array_equal(first, CoveringPairs()(segments, 4, np.random.default_rng(0)))
    feedback.ask(segments, first)
    again = CoveringPairs(asked=feedback.comparisons)(segments, 4, np.random.default_rng(0))
    assert {*map(frozenset, again.tolist())}.isdisjoint(map(frozenset, first.tolist()))


@pytest.mark.parametrize("features", [np.zeros((3, 1)), np.zeros(4), np.full((4, 1), np.inf)])
def test_features_that_cannot_be_used_are_refused(rng, features):
    with pytest.raises(FeedbackError, match=r"features.*\[4, F\]"):
        CoveringPairs(features=lambda segments: features)(at(0, 1, 2, 3), 2, rng)


def test_too_few_candidates_are_refused(rng):
    with pytest.raises(FeedbackError, match="at least 2, got 1"):
        CoveringPairs(offering([[0, 1]]))(at(0, 1, 2), 2, rng)
