"""Sampling segments: uniform over windows, inside one episode, padded, or cut at given rows."""

from dataclasses import replace

import numpy as np
import pytest
import scipy
from hypothesis import given, settings, strategies as st

from helpers.numbered_steps import numbered_episodes
from preferl.data import crosses_end, cut, sample_segments
from preferl.data.segment_sampling import windows_of
from preferl.errors import DataError


def test_sampling_is_uniform_over_windows(rng):
    lengths = np.array([4, 9, 30, 5, 2])
    length = 4
    episodes = numbered_episodes(lengths)
    windows = np.concatenate(
        [
            start + np.arange(max(n - length + 1, 0))
            for start, n in zip(episodes.starts, lengths, strict=True)
        ]
    )
    drawn = sample_segments(episodes, 20_000, length, rng).start
    counts = np.bincount(drawn, minlength=episodes.steps)
    assert counts.sum() == counts[windows].sum()
    assert scipy.stats.chisquare(counts[windows]).pvalue > 0.001


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    length=st.integers(1, 12),
    count=st.integers(0, 40),
    short=st.sampled_from(["drop", "pad"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_sampling_never_crosses_an_episode(lengths, length, count, short, seed):
    episodes = numbered_episodes(lengths)
    if short == "drop" and max(lengths) < length:
        with pytest.raises(DataError, match="Shorten the segments"):
            sample_segments(episodes, count, length, np.random.default_rng(seed), short=short)
        return
    segments = sample_segments(episodes, count, length, np.random.default_rng(seed), short=short)
    assert len(segments) == count
    last = segments.start + segments.real - 1
    np.testing.assert_array_equal(
        episodes.start_of_step[segments.start], episodes.start_of_step[last]
    )
    np.testing.assert_array_equal(segments.origin[:, 0], segments.origin[:, 2])
    np.testing.assert_array_equal(
        episodes.starts[segments.origin[:, 0]] + segments.origin[:, 1], segments.start
    )
    assert (segments.real == length).all() or short == "pad"


def test_sampling_is_distinct_while_it_can_be(rng):
    episodes = numbered_episodes([5, 5])
    assert sorted(sample_segments(episodes, 6, 3, rng).start) == [0, 1, 2, 5, 6, 7]
    assert len(sample_segments(episodes, 7, 3, rng)) == 7


def test_windows_end_early_where_an_episode_terminated(rng):
    whole = numbered_episodes([9, 9, 3, 3])
    ended = whole.terminated.copy()
    ended[whole.ends[[0, 2]] - 1] = True
    episodes = replace(whole, terminated=ended)
    assert windows_of(episodes, 4, "pad").tolist() == [8, 6, 2, 1]
    assert windows_of(episodes, 4).tolist() == [6, 6, 0, 0]
    drawn = sample_segments(episodes, 17, 4, rng, short="pad")
    found = sorted(zip(drawn.start.tolist(), drawn.real.tolist(), strict=True))
    early = [(6, 3), (7, 2), (18, 3), (19, 2), (21, 3)]
    assert found == sorted([(row, 4) for row in (*range(6), *range(9, 15))] + early)
    assert (drawn[:].mask.sum(1) == drawn.real).all()


def test_short_episodes_are_padded_on_the_left(rng):
    segments = sample_segments(numbered_episodes([2]), 1, 4, rng, short="pad")
    clips = segments[:]
    assert clips.mask.tolist() == [[False, False, True, True]]
    assert clips.observations[..., 0].tolist() == [[0, 0, 0, 1]]
    assert clips.rewards.tolist() == [[0, 0, 0, 1]]
    assert segments.returns().tolist() == [1.0]


def test_short_episodes_are_left_out_as_long_as_there_are_others(rng):
    episodes = numbered_episodes([6, 30, 5, 40])
    whole = sample_segments(episodes, 40, 30, rng, short="auto")
    assert set(whole.real.tolist()) == {30}
    padded = sample_segments(numbered_episodes([6, 5]), 4, 30, rng, short="auto")
    assert set(padded.real.tolist()) <= {5, 6}


def test_cut_gives_the_rows_asked_for():
    segments = cut(numbered_episodes([4, 6]), np.array([2, 5]), 4)
    assert segments[:].rewards.tolist() == [[2, 3, 4, 5], [5, 6, 7, 8]]
    assert segments.origin.tolist() == [[0, 2, 1], [1, 1, 1]]
    assert crosses_end(numbered_episodes([4, 6]), np.array([0, 1, 3, 4, 6]), 4).tolist() == [
        False, True, True, False, False,
    ]  # fmt: skip
