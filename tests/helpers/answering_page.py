"""What people see and do on the answering page, and what is written down of it."""

from sqlalchemy import select

from helpers.waiting import wait_until
from preferl.store.schema import Answer

PAIR = "window.preferl.player.clips.map(clip => clip.url)"
LOST = ("ERR_INTERNET_DISCONNECTED", "ERR_FAILED", "ERR_CONNECTION_REFUSED", "Failed to fetch")

NO_FALLBACK = """
const every = window.setInterval;
window.setInterval = (act, rest) => {
    if (rest !== 15_000) return every(act, rest);
    window.stubbed = true;
    return 0;
};
"""
"""The page does not ask by itself now and then, so that only news bring anything."""


def watched(page):
    """Wait until the pair may be answered."""
    page.wait_for_selector("#pair.may")


def pair(page):
    return page.evaluate(PAIR)


def wait_in(page, condition, what="the condition", **more):
    """Wait until something holds while a page goes on."""
    rest = lambda seconds: page.wait_for_timeout(1000 * seconds)  # noqa: E731
    return wait_until(condition, what, rest=rest, **more)


def next_pair(page, before):
    """Wait for a pair other than `before`."""
    wait_in(page, lambda: pair(page) not in (before, []), "no other pair came")
    return pair(page)


def rows(study):
    with study.store.database.read() as session:
        return list(session.scalars(select(Answer).order_by(Answer.id)))


def until_answers(study, page, count):
    found = lambda: f"{len(rows(study))} answers, not {count}"  # noqa: E731
    wait_in(page, lambda: len(rows(study)) >= count, found)


def shown_as(study, answer):
    """What was on the left and right when this was answered."""
    first, second = study.store.queries.pairs(study.project.id, [answer.query_id])[0]
    left, right = (second, first) if answer.swapped else (first, second)
    return [f"/media/{left}.mp4", f"/media/{right}.mp4"]
