"""News for open pages: one task for all of them, and streams that end."""

import asyncio
import json
import threading
import urllib.request
from dataclasses import replace

import pytest

from helpers.waiting import SECONDS, async_wait_until, wait_until
from preferl.annotate import create_app, news
from preferl.annotate.news import News
from preferl.store.status import Status

AHEAD = "5 more until the next reward"


def listen(address, secret, events, ready):
    """Collect the events of a stream until it ends."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    opener.open(f"{address}/join/{secret}").read()
    with opener.open(f"{address}/api/stream") as stream:
        kind = None
        for line in stream:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                kind = text[7:]
            elif text.startswith("data: "):
                events.append((kind, json.loads(text[6:])))
                ready.set()


class Listening:
    """The events of a stream of news, which a thread collects, once the first has come."""

    def __init__(self, address, secret):
        self.events = []
        ready = threading.Event()
        about = (address, secret, self.events, ready)
        self._thread = threading.Thread(target=listen, args=about, daemon=True)
        self._thread.start()
        assert ready.wait(SECONDS)

    def ends(self):
        self._thread.join(SECONDS)
        return not self._thread.is_alive()


def wait_for(events, condition):
    """The content of the first event of this kind; an event that is there is true."""

    def found():
        return next((event for event in list(events) if condition(*event)), None)

    return wait_until(found, lambda: f"{events}")[1]


def test_everybody_receives_events_and_streams_end_with_the_server(study, app, serving):
    address = serving(app)
    streams = [Listening(address, study.ann) for _ in range(2)]
    study.ask(2)
    study.store.reports.announce_reward(study.project.id, 3, answers=7, accuracy=0.5)
    study.store.reports.beat(study.project.id, "reward", Status("waiting", next_at=5), every=600.0)
    for events in (stream.events for stream in streams):
        assert wait_for(events, lambda k, c: k == "queries" and c["open"] == 2)
        news = wait_for(events, lambda k, c: k == "reward" and c["rewards"])
        assert news["rewards"][0]["version"] == 3
        progress = wait_for(events, lambda k, c: k == "progress" and c["open"] == 2)
        assert wait_for(events, lambda k, c: k == "progress" and c["statement"]["until"] == AHEAD)
        assert not {"mine", "mine_per_hour"} & set(progress)  # the same for everybody
    app.state.news.close()
    assert all(stream.ends() for stream in streams)


def test_what_changed_last_is_sent_before_the_server_stops(study, settings, serving):
    app = create_app(study.store, replace(settings, poll_seconds=3600.0))
    stream = Listening(serving(app), study.ann)
    study.store.reports.beat(study.project.id, "agent", Status("stopped"), every=600.0)
    app.state.news.close()
    assert stream.ends()
    progress = [content for kind, content in stream.events if kind == "progress"]
    assert [content["statement"]["ended"] for content in progress] == [False, True]


@pytest.mark.parametrize("way", ["end", "new link"])
def test_news_ends_with_access(study, app, serving, way):
    person, secret = study.people["ann"]
    stream = Listening(serving(app), secret)
    if way == "end":
        study.store.people.update(person.id, disabled=True)
    else:
        study.invite("ann")
    study.ask(3)
    assert stream.ends()
    assert not [content for _, content in stream.events if content.get("open") == 3]


def test_whoever_has_a_page_open_is_active_until_it_closes(study, app, serving, owner):
    active = "<dt>Active now</dt><dd>{}</dd>"
    assert active.format(0) in owner.get("/admin").text
    address = serving(app)
    streams = [Listening(address, study.ann) for _ in range(2)]  # one person with two pages
    wait_until(lambda: app.state.news.listeners == 2)
    assert wait_for(streams[0].events, lambda k, c: k == "progress" and c["people_active"] == 1)
    assert active.format(1) in owner.get("/admin").text
    app.state.news.close()
    wait_until(lambda: app.state.news.listeners == 0)
    assert active.format(0) in owner.get("/admin").text


def test_a_heartbeat_comes_where_there_is_no_news(study, app, serving, monkeypatch):
    monkeypatch.setattr(news, "QUIET_SECONDS", 0.05)
    stream = Listening(serving(app), study.ann)
    assert wait_for(stream.events, lambda k, c: k == "here") == {}
    app.state.news.close()


def test_nobody_listening_costs_nothing(study, monkeypatch):
    looked = []

    async def session():
        news = News(study.store, 0.02)
        monkeypatch.setattr(news, "_snapshot", lambda project: looked.append(project) or {})
        await asyncio.sleep(0.1)  # in which it would have looked
        assert not looked
        streams = [news.listen(study.project.id, person) for person in range(50)]
        tasks = [asyncio.create_task(anext(stream)) for stream in streams]
        await async_wait_until(lambda: len(looked) >= 4)
        assert news.listeners == 50
        assert len(looked) < 10  # one look for all of them, not fifty
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in streams:
            await stream.aclose()
        assert news.listeners == 0
        await async_wait_until(lambda: len(asyncio.all_tasks()) == 1)  # this one
        count = len(looked)
        await asyncio.sleep(0.1)  # in which it would have looked
        assert len(looked) == count

    asyncio.run(session())
