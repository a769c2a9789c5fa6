"""Pairs that cover what was seen."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.clips import at
from preferl.data import Comparisons, Segments
from preferl.data.arrays import load_segments, save_segments
from preferl.errors import FeedbackError
from preferl.feedback import (
    CoveringPairs,
    InformativePairs,
    InstantFeedback,
    ScriptedTeacher,
    UniformPairs,
)
from preferl.feedback.sampling import farthest_first, mean_observation
from preferl.testing.feedback_contracts import check_sampler


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


def test_pixels_are_averaged_without_overflow():
    pixels = np.full((4, 2, 2), 200, np.uint8)
    segments = Segments(pixels, np.zeros(4), np.zeros(4), np.array([0]), np.array([4]), 4)
    np.testing.assert_allclose(mean_observation(segments), np.full((1, 4), 200.0))


def test_pictures_on_disk_are_averaged_as_those_in_memory(tmp_path):
    pictures = np.random.default_rng(0).integers(0, 255, (9, 40, 40), np.uint8)
    blocks = pictures, np.zeros((9, 1)), np.zeros(9)
    segments = Segments(*blocks, np.array([0, 3, 6]), np.array([3, 3, 2]), 3)
    save_segments(tmp_path / "clips", segments)
    on_disk = load_segments(tmp_path / "clips").select(np.array([2, 0]))
    assert not isinstance(on_disk.observations, np.ndarray)
    np.testing.assert_allclose(mean_observation(on_disk), mean_observation(segments)[[2, 0]])


def test_each_pair_taken_is_the_farthest_from_those_before():
    # Pairs of equal clips at 0, 1, 10 and 4: from 0 the farthest is 10, then 4, then 1.
    segments = at(0, 1, 10, 4, 0, 1, 10, 4)
    sampler = CoveringPairs(offering([[0, 4], [1, 5], [2, 6], [3, 7]]))
    pairs = sampler(segments, 4, np.random.default_rng(0))
    assert pairs[:, 0].tolist() == [0, 2, 3, 1]


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


def test_a_pair_the_other_way_round_is_no_news():
    segments = at(0, 10, 0, 10, 5, 6)
    sampler = CoveringPairs(offering([[0, 1], [3, 2], [4, 5]]))
    assert sampler(segments, 2, np.random.default_rng(0)).tolist() == [[0, 1], [4, 5]]


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


def test_what_was_asked_already_is_kept_away_from():
    asked = Comparisons.of(at(10, 10), np.array([[0, 1]]), np.array([1.0]))
    segments = at(10, 10, 0, 0, 9, 9)
    sampler = CoveringPairs(offering([[0, 1], [2, 3], [4, 5]]), asked=lambda: asked)
    assert sampler(segments, 2, np.random.default_rng(0)).tolist() == [[2, 3], [4, 5]]


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
def test_features_that_cannot_be_used_are_refused(features):
    with pytest.raises(FeedbackError, match=r"features.*\[4, F\]"):
        CoveringPairs(features=lambda segments: features)(
            at(0, 1, 2, 3), 2, np.random.default_rng(0)
        )


def test_too_few_candidates_are_refused(rng):
    with pytest.raises(FeedbackError, match="at least 2, got 1"):
        CoveringPairs(offering([[0, 1]]))(at(0, 1, 2), 2, rng)


def test_it_keeps_the_contract():
    for sampler in (CoveringPairs(), UniformPairs(), InformativePairs(two_members)):
        check_sampler(sampler)


def two_members(segments):
    return np.stack([np.arange(len(segments)), np.zeros(len(segments))])
