"""Answers that left no time to look: told from how long the clips are."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import preferl.annotate
from preferl.store.questions import GREATEST_SPEED
from preferl.store.store import Store
from preferl.testing.feedback_contracts import example_segments

PLAYER = Path(preferl.annotate.__file__).parent / "static" / "player.js"


def test_the_page_plays_no_faster():
    (speeds,) = re.findall(r"SPEEDS = \[(.*)\]", PLAYER.read_text())
    assert max(map(float, speeds.split(","))) == GREATEST_SPEED


def test_the_longer_clip_at_the_greatest_speed_is_the_least_time(store):
    project = store.projects.create("dots", fps=10, repeat_share=0.0)
    segments = example_segments(0)
    steps = segments.real
    pairs = np.array([[0, 1], [2, 3], [4, 5]])
    store.questions.ask(project.id, segments, pairs)
    store.clips.video_ready(project.id, store.clips.without_video(project.id, 100))
    ann = store.people.owner(project.id).annotator.id
    for number, kind in enumerate(("left", "skip", "equal")):
        (question,) = store.queue.claim(project.id, ann, 1).questions
        store.queue.answer(ann, question.token, f"key-{number:05d}", kind, response_ms=5.0)
    (skipped,) = store.queue.claim(project.id, ann, 1).questions
    store.queue.answer(ann, skipped.token, "key-00009", "right", response_ms=5.0)
    votes = store.questions.votes(project.id)
    least = 1000 * (steps[pairs].max(1) - 1) / 10 / 2
    np.testing.assert_array_equal(votes.least_ms, [least[0], least[2], np.nan])
    assert votes.too_fast.tolist() == [True, True, False], "the last one had been seen before"


def test_no_more_are_asked_than_a_project_may_have(open_store):
    stores = [open_store() for _ in range(3)]
    project = stores[0].projects.create("dots").id
    segments, together = example_segments(0), threading.Barrier(3)
    pairs = np.array([(i, j) for i in range(8) for j in range(i)][:6])

    def ask(store: Store) -> int:
        together.wait()
        return sum(len(store.questions.ask(project, segments, pairs, most=20)) for _ in range(3))

    with ThreadPoolExecutor() as pool:
        asked = list(pool.map(ask, stores))
    assert sum(asked) == len(stores[0].questions.asked(project)) == 20
    assert stores[0].questions.ask(project, segments, pairs, most=20) == []


def test_pairs_that_come_back_are_not_judged(store):
    project = store.projects.create("dots", fps=10, repeat_share=0.9, known_share=0.0)
    segments = example_segments(0)
    pairs = [(i, j) for i in range(8) for j in range(i)][:14]
    store.questions.ask(project.id, segments, np.array(pairs))
    store.clips.video_ready(project.id, store.clips.without_video(project.id, 100))
    ann = store.people.owner(project.id).annotator.id
    for number in range(13):
        (question,) = store.queue.claim(project.id, ann, 1).questions
        store.queue.answer(ann, question.token, f"key-{number:05d}", "left", response_ms=5.0)
    votes = store.questions.votes(project.id)
    assert votes.is_repeat.any()
    np.testing.assert_array_equal(np.isnan(votes.least_ms), votes.is_repeat)
