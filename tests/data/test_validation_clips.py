"""Answers never move between training and validation set, and no clip is in both."""

import numpy as np
import pytest

from preferl.data.validation import TRAIN, UNUSED, VALIDATION, validation_split


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
