"""Steps that tests of a store take again and again."""

import threading
from itertools import count

import pytest

on_sqlite = pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)
"""A test of what no database does in its own way."""

_NUMBERS = count()


def show(store, project):
    """Give every clip a video."""
    store.clips.video_ready(project, store.clips.without_video(project, 10_000))


def invite(store, project, name="Ann", role="annotator"):
    """Let a person in; their number."""
    return store.people.invite(project, name, role).annotator.id


def claim_one(store, project, person, *, undrawn=False):
    """The one query that a person gets."""
    (query,) = store.queue.claim(project, person, 1, undrawn=undrawn).queries
    return query


def answer_next(
    store,
    project,
    person,
    kind="left",
    *,
    key=None,
    undrawn=False,
    **more,
):
    """Answer the query that a person gets next, which is returned."""
    query = claim_one(store, project, person, undrawn=undrawn)
    store.queue.answer(person, query.token, key or f"step-{next(_NUMBERS):08d}", kind, **more)
    return query


def at_once(*works):
    """What each work returns or raises, all begun at the same moment."""
    start = threading.Barrier(len(works))
    results = [None] * len(works)

    def run(place, work):
        start.wait()
        try:
            results[place] = work()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=job) for job in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
