"""Segments: windows that share steps, pairs of them, selection, joining."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from helpers.numbered_steps import numbered_episodes
from preferl.data import Segments, sample_segments
from preferl.data.segments import join_segments
from preferl.errors import ConfigError, DataError


def test_a_pair_is_an_axis(rng):
    segments = sample_segments(numbered_episodes([20]), 4, 3, rng)
    pairs = np.array([[0, 1], [2, 3]])
    clips = segments[pairs]
    assert clips.observations.shape == (2, 2, 3, 1)
    assert clips.mask.shape == (2, 2, 3)
    np.testing.assert_array_equal(
        clips.observations[..., 0], segments.start[pairs][..., None] + range(3)
    )
    np.testing.assert_array_equal(clips[1].states, clips.states[1])
    np.testing.assert_array_equal(segments.returns(pairs), clips.rewards.sum(-1))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 39), max_size=12))
def test_select_keeps_content_of_padded_windows(chosen):
    generator = np.random.default_rng(0)
    segments = sample_segments(numbered_episodes([3, 9, 2, 12]), 40, 5, generator, short="pad")
    rows = np.array(chosen, int)
    selected = segments.select(rows)
    np.testing.assert_array_equal(selected[:].observations, segments[rows].observations)
    np.testing.assert_array_equal(selected[:].mask, segments[rows].mask)
    np.testing.assert_array_equal(selected[:].states, segments[rows].states)
    np.testing.assert_array_equal(selected.origin, segments.origin[rows])


def test_join_lays_blocks_end_to_end(rng):
    first = sample_segments(numbered_episodes([9]), 3, 4, rng)
    second = sample_segments(numbered_episodes([2, 7]), 2, 4, rng, short="pad")
    joined = join_segments([first, second])
    assert (len(joined), joined.steps) == (5, 18)
    np.testing.assert_array_equal(joined[:3].observations, first[:].observations)
    np.testing.assert_array_equal(joined[3:].mask, second[:].mask)
    np.testing.assert_array_equal(joined[3:].states, second[:].states)
    assert join_segments([first, replace(second, origin=None, states=None)]).origin is None


def test_join_pads_shorter_windows_to_the_longest(rng):
    short, long = (sample_segments(numbered_episodes([9]), 3, length, rng) for length in (3, 5))
    joined = join_segments([short, long])
    assert (joined.length, joined.real.tolist()) == (5, [3, 3, 3, 5, 5, 5])
    np.testing.assert_array_equal(joined[:3].observations[:, -3:], short[:].observations)
    np.testing.assert_array_equal(joined[3:].observations, long[:].observations)


@pytest.mark.parametrize(
    "change",
    [
        {"length": 0},
        {"actions": np.zeros((4, 1))},
        {"observations": {"arm": np.zeros((4, 1))}},
        {"states": np.zeros((4, 1))},
        {"start": np.array([-1, 2])},
        {"start": np.array([0, 8])},
        {"start": np.array([0])},
        {"real": np.array([0, 3])},
        {"real": np.array([4, 3])},
        {"origin": np.zeros((2, 2), int)},
    ],
)
def test_segments_refuse_windows_that_are_none(change):
    block = np.arange(10.0)[:, None]
    segments = Segments(block, block, np.zeros(10), np.array([0, 4]), np.array([3, 3]), 3)
    with pytest.raises(ConfigError if "length" in change else DataError, match="expected"):
        replace(segments, **change)
