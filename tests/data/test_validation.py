"""Splits: nothing in both halves, for pairs and for episodes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from helpers.numbered_steps import numbered_episodes
from preferl.data import Comparisons, Segments, cut, folds, sample_segments, split
from preferl.data.validation import TRAIN, UNUSED, VALIDATION, split_off_episodes, validation_split


def _comparisons(pairs, length=4, lengths=(10,) * 12, seed=0):
    segments = sample_segments(numbered_episodes(lengths), 30, length, np.random.default_rng(seed))
    pairs = np.asarray(pairs)
    return Comparisons(segments, pairs, np.full(len(pairs), 0.5), np.ones(len(pairs)))


def _questions(comparisons):
    return {tuple(sorted(pair)) for pair in comparisons.pairs.tolist()}


def _steps(comparisons):
    """Numbers of the steps of all pairs; the block numbers its steps by observation."""
    return set(comparisons.segments[comparisons.pairs].observations.ravel().tolist())


@settings(max_examples=40)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(6, 9)), min_size=8, max_size=40),
    share=st.floats(0.2, 0.8),
    seed=st.integers(0, 1000),
)
def test_split_by_pair_is_disjoint_also_for_repeated_and_swapped_pairs(pairs, share, seed):
    pairs = np.array([*pairs, *((b, a) for a, b in pairs)])
    comparisons = _comparisons(pairs)
    questions = len(_questions(comparisons))
    if round(questions * share) in (0, questions):
        return
    train, held = split(comparisons, np.random.default_rng(seed), validation=share)
    assert not _questions(train) & _questions(held)
    assert len(train) + len(held) == len(comparisons)
    assert len(_questions(held)) == round(questions * share)


def _small_world():
    """8 pairs of 16 different windows and, after them, the same 8 the other way round.

    All windows begin and end with the same step and differ between; each is stored twice.
    """
    middle = np.arange(16)[:, None] // 2 ** np.arange(4) % 2
    steps = np.pad(middle, ((0, 0), (1, 1))).ravel()  # [16, L] to [16 * L]
    start = np.tile(np.arange(16) * 6, 2)
    nothing = np.zeros(len(steps))
    segments = Segments(steps, nothing[:, None], nothing, start, np.full(len(start), 6), 6)
    pairs = np.arange(16).reshape(8, 2)
    return Comparisons.of(segments, np.concatenate([pairs, pairs[:, ::-1] + 16]), np.ones(16))


@pytest.mark.parametrize("by", ["pair", "clip"])
def test_split_keeps_pairs_of_clips_together_that_are_stored_twice(rng, by):
    comparisons = _small_world()
    train, held = split(comparisons, rng, validation=0.5, by=by)
    assert (len(train), len(held)) == (8, 8)
    assert {row % 8 for row in train.pairs[:, 0] // 2}.isdisjoint(held.pairs[:, 0] // 2 % 8)


def test_split_by_episode_shares_no_step(rng):
    comparisons = _comparisons(rng.integers(30, size=(200, 2)))
    for seed in range(5):
        train, held = split(comparisons, np.random.default_rng(seed), validation=0.4, by="episode")
        assert len(train)
        assert len(held)
        assert not _steps(train) & _steps(held)


def test_split_by_episode_sees_whole_episodes_inside_a_window():
    segments = cut(
        numbered_episodes([4, 2, 6, 10]), np.array([2, 6, 12]), 6
    )  # the first holds episode 1
    comparisons = Comparisons(
        segments, np.array([[0, 0], [1, 1], [2, 2]]), np.full(3, 0.5), np.ones(3)
    )
    train, held = split_off_episodes(comparisons, np.array([1, 3]))
    assert train.pairs.tolist() == [[1, 1]]
    assert held.pairs.tolist() == [[2, 2]]


def test_folds_are_even_and_keep_equal_pairs_together(rng):
    pairs = np.array([[i, i + 10] for i in range(10)] + [[i + 10, i] for i in range(10)])
    number = folds(_comparisons(pairs), 3, rng)
    np.testing.assert_array_equal(number[:10], number[10:])
    assert sorted(np.bincount(number[:10])) == [3, 3, 4]


def pairs_of(rng, clips, count):
    return [tuple(f"clip {n}" for n in rng.choice(clips, 2, replace=False)) for _ in range(count)]


@pytest.mark.parametrize("clips", [5, 40, 300, 100_000])
def test_no_clip_is_in_both_sets_however_often_it_is_asked_about(rng, clips):
    pairs = pairs_of(rng, clips, 300)
    chosen = validation_split(pairs, 0.2)
    of_side = {s: {c for p, side in zip(pairs, chosen, strict=True) if side == s for c in p}
               for s in (TRAIN, VALIDATION)}  # fmt: skip
    assert not of_side[TRAIN] & of_side[VALIDATION]
    assert chosen.count(TRAIN) > 100


def test_more_questions_change_nothing(rng):
    pairs = pairs_of(rng, 200, 300)
    chosen = validation_split(pairs, 0.2)
    for count in (1, 17, 150):
        assert validation_split(pairs[:count], 0.2) == chosen[:count]


def test_the_share_is_what_was_asked_for_where_clips_are_new(rng):
    pairs = [(f"{n} a", f"{n} b") for n in range(4000)]
    for share in (0.0, 0.2, 0.5):
        chosen = np.array(validation_split(pairs, share))
        assert not (chosen == UNUSED).any()
        deviation = np.sqrt(share * (1 - share) / len(pairs))
        assert abs((chosen == VALIDATION).mean() - share) <= 4 * deviation


def test_the_other_order_is_the_same_question():
    pairs = [(f"{n} a", f"{n} b") for n in range(100)]
    assert validation_split([p[::-1] for p in pairs], 0.3) == validation_split(pairs, 0.3)
    assert validation_split(pairs + [p[::-1] for p in pairs], 0.3) == 2 * validation_split(
        pairs, 0.3
    )


def test_what_has_a_clip_of_either_set_is_unused():
    pairs = [(f"{n} a", f"{n} b") for n in range(100)]
    chosen = validation_split(pairs, 0.3)
    train = pairs[chosen.index(TRAIN)]
    judge = pairs[chosen.index(VALIDATION)]
    more = [(train[0], judge[0]), (train[0], train[1]), (judge[1], judge[0]), ("new", train[0])]
    assert validation_split(pairs + more, 0.3)[100:] == [UNUSED, TRAIN, VALIDATION, TRAIN]
