"""Ratings and outcomes: on disk once acknowledged, changed, undone and sent twice."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from sqlalchemy import select

from helpers.numbered_videos import random_segments
from helpers.queue_steps import answer_next, at_once
from preferl.errors import ConfigError, FeedbackError
from preferl.store.schema import Rating
from preferl.store.store import Store

RATER = """
import sys
from preferl.store.store import Store
url, files, project, person, *clips = sys.argv[1:]
with Store.open(url, files) as store:
    for number in range(100_000):
        clip = clips[number % len(clips)]
        rating = 1 + number % 5
        store.ratings.rate(int(project), int(person), clip, f"key-{number:06}", rating=rating)
        print(number, flush=True)
"""


@pytest.fixture
def rated(store):
    """A project with two queries about four clips, and two people."""
    project = store.projects.create("dots", ratings=True)
    store.queries.ask(project.id, random_segments(4, 6, seed=1), np.arange(4).reshape(2, 2))
    ann, bo = (store.people.invite(project.id, name).annotator.id for name in ("Ann", "Bo"))
    clips = [name for pair in store.queries.pairs(project.id, [1, 2]) for name in pair]
    return project.id, ann, bo, clips


def current_ratings(store, person, clips):
    rows = store.ratings.of_person(person, clips)
    return {clip: (row.rating, row.outcome) for clip, row in rows.items()}


def test_the_latest_row_counts_and_all_stay(store, rated):
    project, ann, bo, (clip, other, *_) = rated
    rate = store.ratings.rate
    assert rate(project, ann, clip, "key-00001", rating=2).new
    rate(project, ann, clip, "key-00002", rating=4, outcome="success")
    rate(project, bo, clip, "key-00003", outcome="failure")
    assert current_ratings(store, ann, [clip, other]) == {clip: (4, "success")}
    assert current_ratings(store, bo, [clip]) == {clip: (None, "failure")}
    again = rate(project, ann, clip, "key-00001", rating=5)
    assert (again.new, again.rating) == (False, 2), "sending it again writes nothing"
    rate(project, ann, clip, "key-00004")  # takes all back
    assert [(row.annotator_id, row.outcome) for row in store.ratings.current(project)] == [
        (bo, "failure")
    ]
    url = store.database.url.render_as_string(hide_password=False)
    with Store.open(url, store.files) as reopened:
        assert current_ratings(reopened, ann, [clip]) == {clip: (None, None)}


def test_a_killed_stream_of_ratings_loses_none_that_was_acknowledged(store, rated):
    project, ann, _, clips = rated
    url = store.database.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", RATER, url, str(store.files), str(project), str(ann), *clips]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as rater:
        for _ in range(40):
            rater.stdout.readline()
        rater.kill()
        acknowledged = 40 + len(rater.stdout.read().splitlines())
    rows = store.database.all(select(Rating).order_by(Rating.id))
    assert acknowledged <= len(rows) <= acknowledged + 1, "one more may be on its way"
    assert [(row.key, row.clip_id, row.rating) for row in rows] == [
        (f"key-{number:06}", clips[number % 4], 1 + number % 5) for number in range(len(rows))
    ]


def test_changes_are_undone_one_by_one(store, rated):
    project, ann, bo, (clip, other, *_) = rated
    store.ratings.rate(project, ann, clip, "key-00001", rating=2)
    store.ratings.rate(project, ann, other, "key-00002", rating=3)
    store.ratings.rate(project, ann, clip, "key-00003", rating=5, outcome="success")
    store.ratings.rate(project, bo, clip, "key-00004", rating=1)
    undone = store.ratings.undo(project, ann, "undo-0001")
    assert (undone.clip, undone.rating, undone.outcome) == (clip, 2, None)
    assert store.ratings.undo(project, ann, "undo-0001") == undone._replace(new=False)
    assert store.ratings.undo(project, ann, "undo-0002").clip == other
    store.ratings.rate(project, ann, clip, "key-00005", rating=4)
    assert store.ratings.undo(project, ann, "undo-0003").rating == 2
    assert store.ratings.undo(project, ann, "undo-0004").rating is None
    assert store.ratings.undo(project, ann, "undo-0005") is None
    assert current_ratings(store, ann, [clip, other]) == {clip: (None, None), other: (None, None)}
    assert current_ratings(store, bo, [clip]) == {clip: (1, None)}


def test_what_means_nothing_is_refused(store, rated):
    project, ann, _, (clip, *_) = rated
    for words in ({"rating": 0}, {"rating": 6}, {"outcome": "perhaps"}):
        with pytest.raises((FeedbackError, ConfigError)):
            store.ratings.rate(project, ann, clip, "key-00001", **words)
    with pytest.raises(FeedbackError, match="a clip that a query shows"):
        store.ratings.rate(project, ann, "0" * 32, "key-00001", rating=1)
    with pytest.raises(FeedbackError, match="8 to 100 letters"):
        store.ratings.rate(project, ann, clip, "short", rating=1)
    watcher = store.people.invite(project, "Cleo", "spectator").annotator.id
    with pytest.raises(FeedbackError, match="spectator"):
        store.ratings.rate(project, watcher, clip, "key-00001", rating=1)
    store.ratings.rate(project, ann, clip, "key-00001", rating=1)
    bo = rated[2]
    with pytest.raises(FeedbackError, match="somebody else's"):
        store.ratings.rate(project, bo, clip, "key-00001", rating=1)
    assert len(store.ratings.current(project)) == 1


def test_a_request_that_is_sent_twice_at_once_is_one_row(store, rated):
    project, ann, _, (clip, *_) = rated

    def send(number):
        key = f"key-0000{number // 4}"
        return store.ratings.rate(project, ann, clip, key, rating=1 + number // 4)

    recorded = at_once(*(partial(send, number) for number in range(8)))
    assert sum(row.new for row in recorded) == 2
    assert len({row.recorded for row in recorded}) == 2


def test_a_task_stays_with_a_query_and_its_repeats(store):
    project = store.projects.create("arm", repeat_share=0.9, known_share=0.0, quorum=2)
    segments = random_segments(24, 6, seed=2)
    pairs = np.arange(24).reshape(12, 2)
    details = [{"task": "open the box"}] * 12
    store.queries.ask(project.id, segments, pairs, details=details)
    ann = store.people.invite(project.id, "Ann").annotator.id
    tasks = []
    while store.queue.claim(project.id, ann, 1, undrawn=True).queries:
        tasks.append(answer_next(store, project.id, ann, undrawn=True).task)
    assert len(tasks) > 12, "some were repeats"
    assert set(tasks) == {"open the box"}
