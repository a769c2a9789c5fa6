"""Answers that left no time to look: detected by how long the clips are."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

import preferl.annotate
from helpers.queue_steps import answer_next, at_once, invite, show
from preferl.data.implied import with_implied
from preferl.errors import ConfigError
from preferl.store import StoredFeedback
from preferl.store.clips import clip_ids
from preferl.store.queries import GREATEST_SPEED
from preferl.store.schema import Clip
from preferl.testing.feedback_contracts import example_segments

PLAYER = Path(preferl.annotate.__file__).parent / "static" / "player.js"


def test_the_page_plays_no_faster():
    (speeds,) = re.findall(r"SPEEDS = \[(.*)\]", PLAYER.read_text())
    assert max(map(float, speeds.split(","))) == GREATEST_SPEED


def test_the_longer_clip_at_the_greatest_speed_is_the_least_time(store):
    project = store.projects.create("dots", fps=10, repeat_share=0.0).id
    segments = example_segments(0)
    steps = segments.real
    pairs = np.array([[0, 1], [2, 3], [4, 5]])
    store.queries.ask(project, segments, pairs)
    show(store, project)
    ann = store.people.owner(project).annotator.id
    for kind in ("left", "skip", "equal", "right"):
        answer_next(store, project, ann, kind, response_ms=5.0)
    votes = store.queries.votes(project)
    least = 1000 * (steps[pairs].max(1) - 1) / 10 / 2
    np.testing.assert_array_equal(votes.least_ms, [least[0], least[2], np.nan])
    assert votes.too_fast.tolist() == [True, True, False], "the last one had been seen before"


def test_no_more_are_asked_than_a_project_may_have(open_store):
    stores = [open_store() for _ in range(3)]
    project = stores[0].projects.create("dots").id
    segments = example_segments(0)
    pairs = np.array([(i, j) for i in range(8) for j in range(i)][:6])

    def ask(store):
        return sum(len(store.queries.ask(project, segments, pairs, most=20)) for _ in range(3))

    assert (
        sum(at_once(*(partial(ask, store) for store in stores)))
        == len(stores[0].queries.query_clips(project))
        == 20
    )
    assert stores[0].queries.ask(project, segments, pairs, most=20) == []


def test_pairs_that_come_back_are_not_judged(store):
    project = store.projects.create("dots", fps=10, repeat_share=0.9, known_share=0.0).id
    segments = example_segments(0)
    pairs = [(i, j) for i in range(8) for j in range(i)][:14]
    store.queries.ask(project, segments, np.array(pairs))
    show(store, project)
    ann = store.people.owner(project).annotator.id
    for _ in range(13):
        answer_next(store, project, ann, "left", response_ms=5.0)
    votes = store.queries.votes(project)
    assert votes.is_repeat.any()
    np.testing.assert_array_equal(np.isnan(votes.least_ms), votes.is_repeat)


def ranks(store, project_id):
    """The hidden quality of each clip, by its name."""
    return {clip.id: clip.row * 7 % 5 for clip in store.database.all(clips_of(project_id))}


def clips_of(project_id):
    return select(Clip).where(Clip.project_id == project_id)


def test_lists_grow_until_answers_have_sorted_their_clips(store):
    project = store.projects.create("dots", repeat_share=0.0).id
    segments = example_segments(0)
    rows = np.arange(8).reshape(2, 4)
    assert store.ranked.create(project, segments, rows, 40) == 2
    show(store, project)
    people = [invite(store, project, name) for name in ("Ann", "Bo")]
    good = ranks(store, project)
    asked = 0
    while True:
        claims = [store.queue.claim(project, person, 1, undrawn=True) for person in people]
        if not any(claim.queries for claim in claims):
            break
        for person, claim in zip(people, claims, strict=True):
            for question in claim.queries:
                better = good[question.left] - good[question.right]
                kind = "left" if better > 0 else "right" if better < 0 else "equal"
                store.queue.answer(person, question.token, f"key-{asked:05d}", kind)
                asked += 1
    comparisons = StoredFeedback(store, project).comparisons()
    assert len(comparisons) == asked <= 2 * 5, "of 12 pairs"
    found, _ = with_implied(comparisons)
    assert len(found) == 2 * 4 * 3 / 2
    names = np.array(clip_ids(found.segments))
    for (first, second), preference in zip(names[found.pairs], found.preference, strict=True):
        assert preference == (np.sign(good[first] - good[second]) + 1) / 2
    assert store.ranked.extend(project) == 0


def test_programs_that_extend_lists_together_ask_nothing_twice(open_store, monkeypatch):
    stores = [open_store() for _ in range(3)]
    first = stores[0]
    project = first.projects.create("dots").id
    first.ranked.create(project, example_segments(0), np.arange(8).reshape(2, 4), 20)
    show(first, project)
    ann = first.people.owner(project).annotator.id
    with monkeypatch.context() as died:  # after the answers, before what these make way for
        died.setattr(first.ranked, "extend", lambda _: 0)
        for number, question in enumerate(first.queue.claim(project, ann, 2).queries):
            first.queue.answer(ann, question.token, f"key-{number:05d}", "left")
    assert sum(at_once(*(partial(store.ranked.extend, project) for store in stores))) == 2
    pairs = [frozenset(pair) for _, *pair in first.queries.query_clips(project)]
    assert len(set(pairs)) == len(pairs) == 4


def test_an_answer_that_is_undone_holds_its_list(store, project):
    store.ranked.create(project, example_segments(0), np.arange(4).reshape(1, 4), 9)
    show(store, project)
    ann = store.people.owner(project).annotator.id
    answer_next(store, project, ann, "cannot_tell")
    assert store.queries.count(project) == 2, "the next clip takes its turn"
    show(store, project)
    store.queue.undo(ann, "key-00002")
    again, after = store.queue.claim(project, ann, 2).queries
    store.queue.answer(ann, after.token, "key-00003", "cannot_tell")
    assert store.queries.count(project) == 2, "the list waits for the first"
    store.queue.answer(ann, again.token, "key-00004", "cannot_tell")
    assert store.queries.count(project) == 3


def test_projects_without_lists_are_left_alone(store, project):
    store.queries.ask(project, example_segments(0), np.array([[0, 1]]))
    assert store.ranked.extend(project) == 0
    with pytest.raises(ConfigError, match="lists"):
        store.ranked.create(project, example_segments(0), np.arange(4).reshape(2, 2), 1)
