"""What a run learns from: data that are there, answers that stay held out, what is expected."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.answered_store import Answering
from preferl.data import Segments, save_comparisons, save_episodes
from preferl.data.validation import TRAIN, VALIDATION
from preferl.feedback import InstantFeedback, Likelihood
from preferl.online import OnlineConfig
from preferl.online.configs import WarmStartConfig
from preferl.online.run_answers import (
    all_answers,
    given_answers,
    load_warm_start,
    numbered,
    query_metrics,
    split_answers,
)
from preferl.store import Store, StoredFeedback
from preferl.store.clips import clip_ids
from preferl.testing import make_comparisons, make_episodes


def fixed(given=None, **start):
    return load_warm_start(OnlineConfig(warm_start=WarmStartConfig(**start)), given, None)


def collected(comparisons):
    """Feedback that has these."""
    return SimpleNamespace(comparisons=lambda: comparisons)


def test_folders_come_before_what_is_given_and_declined_answers_are_left_out(tmp_path, rng):
    one, two, three = (make_comparisons(rng, pairs=n) for n in (4, 5, 6))
    declined = two.preference.copy()
    declined[1] = np.nan
    save_comparisons(tmp_path / "one", one)
    save_comparisons(tmp_path / "two", replace(two, preference=declined))
    found, _ = fixed(three, comparisons=(tmp_path / "one", tmp_path / "two"))
    expected = [*one.preference, *np.delete(two.preference, 1), *three.preference]
    np.testing.assert_array_equal(found.preference, expected)
    scores = found.segments.returns(found.pairs)
    np.testing.assert_allclose(scores[-6:], three.segments.returns(three.pairs))


def test_labels_are_joined_with_their_demonstrations(tmp_path, rng):
    episodes = make_episodes(rng, [30, 30])
    save_episodes(tmp_path / "episodes", episodes)
    labels = {"human_label_len_5": [0, 1, -1], "indices_1_len_5": [0, 7, 31]}
    labels["indices_2_len_5"] = [10, 40, 50]
    (tmp_path / "labels").mkdir()
    for name, column in labels.items():
        (tmp_path / "labels" / f"{name}.pkl").write_bytes(pickle.dumps(np.array(column)))
    found, recorded = fixed(labels=tmp_path / "labels", demonstrations=tmp_path / "episodes")
    assert found.preference.tolist() == [1.0, 0.0, 0.5]
    first = found.segments[found.pairs].observations[1, 0]
    np.testing.assert_array_equal(first, episodes.observations[7:12])
    assert recorded is None, "labels alone do not say that there is more to ask"


def test_episodes_are_those_that_the_buffer_has_room_for(tmp_path, rng):
    recorded = make_episodes(rng, [20, 20])
    given = make_episodes(rng, [20])
    save_episodes(tmp_path / "episodes", recorded)
    start = WarmStartConfig(episodes=tmp_path / "episodes")
    _, found = load_warm_start(OnlineConfig(warm_start=start, buffer_steps=30), None, given)
    assert found.lengths.tolist() == [20, 20]
    np.testing.assert_array_equal(found.observations[:20], recorded.observations[20:])
    np.testing.assert_array_equal(found.observations[20:], given.observations)


def test_numbers_of_answers_stay_as_others_are_declined_and_forgotten(rng):
    def teacher(shown, rng):
        return np.where(shown.actions[:, 0, 0, 0] > 0, 1.0, np.nan)

    feedback = InstantFeedback(teacher, 0, max_comparisons=9)
    seen = {}
    for _ in range(5):
        new = make_comparisons(rng, pairs=12)
        feedback.ask(new.segments, new.pairs)
        queries, found, _ = numbered(feedback)
        names = np.array(clip_ids(found.segments))[found.pairs].tolist()
        for query, pair in zip(queries.tolist(), names, strict=True):
            assert seen.setdefault(query, pair) == pair
    assert sorted(seen) == [*range(feedback.asked - feedback.declined)]


def test_given_comparisons_have_numbers_of_no_query(rng):
    feedback = collected(make_comparisons(rng, pairs=3))
    assert given_answers(None, feedback) is None
    given = make_comparisons(rng, pairs=2)
    assert given_answers(given, feedback).queries.tolist() == [-1, -2]
    queries, comparisons, _ = all_answers(given, feedback)
    assert queries.tolist() == [-1, -2, 0, 1, 2]
    assert len(comparisons) == 5


def test_people_of_other_answers_are_not_those_of_a_store(tmp_path, rng):
    known = replace(make_comparisons(rng, pairs=3), annotator=np.array([0, 1, 0]))
    with Store.open(tmp_path) as store:
        Answering(store).ask(1)
        feedback = StoredFeedback(store, combine="each")
        assert all_answers(known, feedback).comparisons.annotator is None
    answered = given_answers(known, collected(known)).comparisons
    assert answered.annotator.tolist() == [0, 1, 0]
    assert fixed(known).comparisons.annotator.tolist() == [0, 1, 0]
    save_comparisons(tmp_path / "others", known)
    both = fixed(known, comparisons=(tmp_path / "others",)).comparisons
    assert both.annotator is None, "row 0 of one is not row 0 of the other"


def test_held_out_answers_stay_held_out_where_joining_changes_their_clips(rng):
    known = make_comparisons(rng, pairs=10)
    new = make_comparisons(rng, pairs=10)
    segments = known.segments
    wide = segments.observations.astype(np.float64)
    wider = replace(segments, observations=wide, states=np.zeros((segments.steps, 2)))
    for changed in (wider, replace(segments, rewards=segments.rewards.astype(np.float16))):
        given = replace(known, segments=changed)
        both = all_answers(given, collected(new)).comparisons
        clip_sets = {}
        before = split_answers(given, 0.4, clip_sets, joined=True)
        after = split_answers(both, 0.4, clip_sets, joined=True)
        assert {TRAIN, VALIDATION} <= set(before)
        np.testing.assert_array_equal(before, after[:10])


def reward_of(scores, likelihood=None):
    """A reward with these scores of segments, `[E, N]`, by the row at which they begin."""
    table = np.array(scores, np.float64)
    return SimpleNamespace(
        likelihood=likelihood or Likelihood(),
        scores=lambda segments: table[:, segments.observations[segments.start, 0].astype(int)],
    )


BLOCK = np.arange(4.0)[:, None]
CLIPS = Segments(BLOCK, BLOCK, np.zeros(4), np.arange(4), np.ones(4, int), 1)


def test_entropy_and_deviation_by_hand():
    three = np.log(3.0)
    reward = reward_of([[0, 0, three, 0], [0, 0, 0, three]])
    found = query_metrics(reward, CLIPS, np.array([[0, 1], [2, 0], [2, 3]]))
    # Log-odds: 0 and 0; log 3 and 0; log 3 and -log 3.
    even = np.log(2)  # of 1/2, and of 3/4
    sure = 2 * np.log(2) - 0.75 * np.log(3)
    assert found.entropy == pytest.approx((2 * even + (sure + even) + 2 * sure) / 6)
    assert found.deviation == pytest.approx((0 + three / 2**0.5 + 2 * three / 2**0.5) / 3)


def test_the_scale_counts_and_one_member_has_no_deviation():
    reward = reward_of([[0, 0, 2 * np.log(3.0), 0]], Likelihood(scale=0.5))
    found = query_metrics(reward, CLIPS, np.array([[2, 0]]))
    assert found.entropy == pytest.approx(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    assert np.isnan(found.deviation)
    scores = [[0, 1, 30, 0], [0, 2, 10, 0]]
    pairs = np.array([[2, 0], [1, 0]])
    noisy, clean = (
        query_metrics(reward_of(scores, Likelihood(noise)), CLIPS, pairs) for noise in (0.6, 0.0)
    )
    assert noisy == clean, "noise does not make clips alike, or members agree"
