"""How much one person may ask, and who gives way."""

import asyncio
import http.client
import logging
from urllib.parse import urlsplit

import pytest
from sqlalchemy import update

from helpers.waiting import SECONDS, async_wait_until, wait_until
from preferl.annotate import news
from preferl.annotate.limits import MOST_KNOWN, MemoryLimits, Rate, SharedLimits, rates
from preferl.annotate.news import STREAMS, News
from preferl.annotate.serve import BoundedLog
from preferl.errors import StorageError
from preferl.store.schema import Allowance


def test_files_and_the_overview_come_less_often(app, owner):
    at = [100.0]
    app.state.limits = MemoryLimits(rates(10.0), clock=lambda: at[0])
    codes = [owner.get("/admin/export/csv").status_code for _ in range(6)]
    assert codes == [200] * 4 + [429] * 2
    assert owner.get("/admin/export/jsonl").headers["retry-after"] == "10"
    at[0] += 10
    assert owner.get("/admin/export/csv").status_code == 200
    codes = [owner.get("/admin").status_code for _ in range(10)]
    assert codes == [200] * 8 + [429] * 2
    assert owner.get("/").status_code == 200, "answering goes on"


def test_invitations_that_show_the_overview_count_as_one(app, study, owner):
    app.state.limits = MemoryLimits(rates(1.0), clock=lambda: 0.0)
    csrf = {"csrf": owner.headers["X-CSRF-Token"]}
    codes = [
        owner.post("/admin/invite", data=csrf | {"name": f"p{n}"}).status_code for n in range(6)
    ]
    assert codes == [200] * 4 + [429] * 2
    assert len(study.store.people.all(study.project.id)) == 2 + 4, "what is refused is not done"


def allows(limits, who):
    return asyncio.run(limits.allows("request", who))


def test_limits_hold_though_thousands_of_others_ask():
    limits = MemoryLimits(rates(1.0), clock=lambda: 0.0)

    async def session():
        while await limits.allows("request", "ann"):
            pass
        for number in range(MOST_KNOWN - 1):
            await limits.allows("request", number)
        assert not await limits.allows("request", "ann")
        for number in range(MOST_KNOWN):  # one of them is new
            await limits.allows("request", number)
        assert await limits.allows("request", "ann"), "who asked longest ago is forgotten"

    asyncio.run(session())


def test_two_servers_allow_no_more_than_one(study):
    each = rates(1.0) | {"request": Rate(per_second=1e-6, burst=8.0)}
    servers = [SharedLimits(study.store.people, each) for _ in range(2)]
    given = [allows(servers[number % 2], "ann") for number in range(20)]
    assert given == [True] * 8 + [False] * 12
    assert allows(servers[0], "ben"), "each person has limits of their own"
    third = SharedLimits(study.store.people, each)
    assert not allows(third, "ann")
    study.store.people.forget_allowances(seconds=-1.0)
    assert allows(third, "ann"), "who has not asked for long is forgotten"


def test_a_server_asks_the_database_for_several_requests_at_once(study, monkeypatch):
    each = {"request": Rate(per_second=1e-6, burst=80.0)}
    asked = []
    take = study.store.people.take_allowance
    monkeypatch.setattr(
        study.store.people, "take_allowance", lambda *a, **k: asked.append(1) or take(*a, **k)
    )
    servers = [SharedLimits(study.store.people, each) for _ in range(2)]
    given = [allows(servers[number % 2], "ann") for number in range(80)]
    assert all(given)
    assert len(asked) == 10
    assert not any(allows(server, "ann") for server in servers)


def test_a_clock_set_back_locks_nobody_out(study):
    people = study.store.people
    assert people.take_allowance("request", "ann", 1.0, 8.0)
    with study.store.database.write() as session:
        session.execute(update(Allowance).values(at=Allowance.at + 3600.0))
    assert people.take_allowance("request", "ann", 1.0, 8.0)


def test_what_is_left_grows_by_the_clock_of_the_database(study):
    rate = {"request": Rate(per_second=20.0, burst=2.0)}
    limits = SharedLimits(study.store.people, rate)
    assert [allows(limits, "ann") for _ in range(2)] == [True, True]
    wait_until(lambda: allows(limits, "ann"))


def test_nobody_is_refused_because_the_database_is_away(study, monkeypatch):
    limits = SharedLimits(study.store.people, rates(1.0))
    monkeypatch.setattr(study.store.people, "take_allowance", lost)
    assert allows(limits, "ann")


def lost(*_, **__):
    raise StorageError("away")


def test_the_oldest_gives_way_and_places_come_back(study, monkeypatch):
    monkeypatch.setattr(news, "STREAMS", 2)

    async def session():
        sender = News(study.store, 60.0)
        monkeypatch.setattr(sender, "_snapshot", lambda _: {"queries": {}})
        opened = []

        async def open_stream(person):
            opened.append(sender.listen(study.project.id, person))
            assert (await anext(opened[-1]))[0] == "queries"

        for person in (1, 1, 2, 1):
            await open_stream(person)
        assert await anext(opened[0]) == news.GIVE_WAY
        assert [message async for message in opened[0]] == []
        await opened[1].aclose()
        await open_stream(1)
        for stream in opened[2:]:
            waiting = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            assert not waiting.done(), "these are the newest of each person"
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        sender.close()

    asyncio.run(session())


def test_many_streams_of_one_person_leave_room_for_others(study, app, ann, serving, monkeypatch):
    monkeypatch.setattr(news, "HOLD_SECONDS", 0.3)
    monkeypatch.setattr(app.state.limits, "_clock", lambda: 0.0)  # nobody may have more by waiting
    address = urlsplit(serving(app))
    cookie = "; ".join(f"{name}={value}" for name, value in ann.cookies.items())

    def opened():
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=SECONDS)
        connection.request("GET", "/api/stream", headers={"Cookie": cookie})
        return connection, connection.getresponse()

    streams = [opened() for _ in range(14)]
    codes = [reply.status for _, reply in streams]
    assert codes[: 2 * STREAMS] == [200] * 2 * STREAMS
    assert 429 in codes[2 * STREAMS :]
    wait_until(lambda: app.state.news.listeners == STREAMS, "more streams than one person may have")
    assert b"event: elsewhere" in streams[0][1].read()
    app.state.news.close()
    for connection, _ in streams:
        connection.close()


def test_pages_that_are_refused_wait_while_there_is_room(study):
    async def session():
        news = News(study.store, 60.0)
        news.room = 2
        waits = [asyncio.create_task(news.hold(600)) for _ in range(3)]
        await async_wait_until(waits[2].done)
        assert [task.done() for task in waits] == [False, False, True]
        news.close()
        await asyncio.wait_for(asyncio.gather(*waits), SECONDS)
        await asyncio.wait_for(news.hold(600), SECONDS)

    asyncio.run(session())


@pytest.fixture
def handled():
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logger = logging.getLogger("bounded-log-test")
    logger.propagate = False
    logger.addHandler(handler)
    yield logger, records
    logger.removeHandler(handler)


def test_a_log_stays_small_and_reports_what_it_leaves_out(handled):
    logger, records = handled
    at = [0.0]
    logger.handlers[0].addFilter(BoundedLog(3, clock=lambda: at[0]))
    for number in range(1000):
        logger.warning("accept failed %d", number)
    at[0] = 61.0
    logger.warning("accept failed again")
    assert records == [
        "accept failed 0",
        "accept failed 1",
        "accept failed 2 (further messages of this minute are left out)",
        "accept failed again (997 messages before this one were left out)",
    ]
