"""What people see and do on the answering page, and what is written down of it."""

import time

from sqlalchemy import select

from preferl.store.schema import Answer

PAIR = "window.preferl.player.clips.map(clip => clip.url)"
LOST = ("ERR_INTERNET_DISCONNECTED", "ERR_FAILED", "ERR_CONNECTION_REFUSED", "Failed to fetch")


def watched(page):
    """Wait until the pair may be answered."""
    page.wait_for_selector("#pair.may")


def pair(page):
    return page.evaluate(PAIR)


def next_pair(page, before):
    """Wait for a pair other than `before`."""
    until = time.monotonic() + 10
    while pair(page) in (before, []):
        assert time.monotonic() < until, "no other pair came"
        page.wait_for_timeout(20)
    return pair(page)


def rows(study):
    with study.store.database.read() as session:
        return list(session.scalars(select(Answer).order_by(Answer.id)))


def until_answers(study, page, count):
    until = time.monotonic() + 10
    while len(rows(study)) < count:
        assert time.monotonic() < until, f"{len(rows(study))} answers, not {count}"
        page.wait_for_timeout(20)


def shown_as(study, answer):
    """What was on the left and right when this was answered."""
    first, second = study.store.questions.pairs(study.project.id, [answer.query_id])[0]
    left, right = (second, first) if answer.swapped else (first, second)
    return [f"/media/{left}.mp4", f"/media/{right}.mp4"]
