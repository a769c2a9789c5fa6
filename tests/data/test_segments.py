"""Segments: uniform drawing, windows that share steps, padding, selection, joining."""

from dataclasses import replace

import numpy as np
import pytest
import scipy
from hypothesis import given, settings, strategies as st

from preferl.data import Episodes, Segments, crosses_end, cut, sample_segments
from preferl.data.segments import join_segments, windows_of
from preferl.errors import ConfigError, DataError


def _episodes(lengths):
    """Episodes whose observations, actions and rewards all hold the row number."""
    steps = int(np.sum(lengths))
    number = np.arange(float(steps))
    return Episodes(
        number[:, None],
        number[:, None] + 0.5,
        number,
        np.zeros(steps, bool),
        np.zeros((len(lengths), 1)),
        np.asarray(lengths, int),
        states=number[:, None] * 2,
    )


def test_sampling_is_uniform_over_windows(rng):
    lengths = np.array([4, 9, 30, 5, 2])
    length = 4
    episodes = _episodes(lengths)
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
    episodes = _episodes(lengths)
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
    episodes = _episodes([5, 5])
    assert sorted(sample_segments(episodes, 6, 3, rng).start) == [0, 1, 2, 5, 6, 7]
    assert len(sample_segments(episodes, 7, 3, rng)) == 7


def test_windows_end_early_where_an_episode_terminated(rng):
    whole = _episodes([9, 9, 3, 3])
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
    segments = sample_segments(_episodes([2]), 1, 4, rng, short="pad")
    clips = segments[:]
    assert clips.mask.tolist() == [[False, False, True, True]]
    assert clips.observations[..., 0].tolist() == [[0, 0, 0, 1]]
    assert clips.rewards.tolist() == [[0, 0, 0, 1]]
    assert segments.returns().tolist() == [1.0]


def test_short_episodes_are_left_out_as_long_as_there_are_others(rng):
    episodes = _episodes([6, 30, 5, 40])
    whole = sample_segments(episodes, 40, 30, rng, short="auto")
    assert set(whole.real.tolist()) == {30}
    padded = sample_segments(_episodes([6, 5]), 4, 30, rng, short="auto")
    assert set(padded.real.tolist()) <= {5, 6}


def test_a_pair_is_an_axis(rng):
    segments = sample_segments(_episodes([20]), 4, 3, rng)
    pairs = np.array([[0, 1], [2, 3]])
    clips = segments[pairs]
    assert clips.observations.shape == (2, 2, 3, 1)
    assert clips.mask.shape == (2, 2, 3)
    np.testing.assert_array_equal(
        clips.observations[..., 0], segments.start[pairs][..., None] + range(3)
    )
    np.testing.assert_array_equal(clips[1].states, clips.states[1])
    np.testing.assert_array_equal(segments.returns(pairs), clips.rewards.sum(-1))


def test_select_keeps_content_and_frees_the_source():
    episodes = _episodes([1000])
    segments = cut(episodes, np.arange(0, 990, 7), 10)
    chosen = segments.select(np.array([5, 100, 5]))
    np.testing.assert_array_equal(chosen[:].observations, segments[[5, 100, 5]].observations)
    np.testing.assert_array_equal(chosen[:].states, segments[[5, 100, 5]].states)
    np.testing.assert_array_equal(chosen.origin, segments.origin[[5, 100, 5]])
    for name in ("observations", "actions", "rewards", "states"):
        assert not np.shares_memory(getattr(chosen, name), getattr(episodes, name))
        assert getattr(chosen, name).nbytes == 20 * 8


@settings(max_examples=40)
@given(st.lists(st.integers(0, 39), max_size=12))
def test_select_keeps_content_of_padded_windows(chosen):
    generator = np.random.default_rng(0)
    segments = sample_segments(_episodes([3, 9, 2, 12]), 40, 5, generator, short="pad")
    rows = np.array(chosen, int)
    selected = segments.select(rows)
    np.testing.assert_array_equal(selected[:].observations, segments[rows].observations)
    np.testing.assert_array_equal(selected[:].mask, segments[rows].mask)


def test_join_lays_blocks_end_to_end(rng):
    first = sample_segments(_episodes([9]), 3, 4, rng)
    second = sample_segments(_episodes([2, 7]), 2, 4, rng, short="pad")
    joined = join_segments([first, second])
    assert (len(joined), joined.steps) == (5, 18)
    np.testing.assert_array_equal(joined[:3].observations, first[:].observations)
    np.testing.assert_array_equal(joined[3:].mask, second[:].mask)
    np.testing.assert_array_equal(joined[3:].states, second[:].states)
    assert join_segments([first, replace(second, origin=None, states=None)]).origin is None


def test_join_pads_shorter_windows_to_the_longest(rng):
    short, long = (sample_segments(_episodes([9]), 3, length, rng) for length in (3, 5))
    joined = join_segments([short, long])
    assert (joined.length, joined.real.tolist()) == (5, [3, 3, 3, 5, 5, 5])
    np.testing.assert_array_equal(joined[:3].observations[:, -3:], short[:].observations)
    np.testing.assert_array_equal(joined[3:].observations, long[:].observations)


def test_cut_gives_the_rows_asked_for():
    segments = cut(_episodes([4, 6]), np.array([2, 5]), 4)
    assert segments[:].rewards.tolist() == [[2, 3, 4, 5], [5, 6, 7, 8]]
    assert segments.origin.tolist() == [[0, 2, 1], [1, 1, 1]]
    assert crosses_end(_episodes([4, 6]), np.array([0, 1, 3, 4, 6]), 4).tolist() == [
        False, True, True, False, False,
    ]  # fmt: skip


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
