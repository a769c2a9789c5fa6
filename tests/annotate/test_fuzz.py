"""Thousands of requests, polite and hostile, of everybody and nobody; then everything is looked at.

Somebody of each role is signed in at any time. `PREFERL_FUZZ_SEED` draws other requests, and
`PREFERL_FUZZ_REQUESTS=50000` more of them, of the slow test below;
`--log-cli-level=INFO` shows what came of them.
"""

import csv
import io
import logging
import os
import re
from html.parser import HTMLParser

import pytest

from helpers.drawn_requests import Requests
from helpers.raw_requests import HOST, Request
from helpers.store_invariants import ROLES, faults
from helpers.two_projects import PLACES, World

log = logging.getLogger(__name__)

SEED = int(os.environ.get("PREFERL_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("PREFERL_FUZZ_REQUESTS", "1500"))
BATCH = 100
OPEN_TO_ALL = {200: ("/healthz", "/static/"), 303: ("/join/", "/leave")}


class Fuzzer:
    """Draws requests and judges each reply by who sent it."""

    def __init__(self, world):
        self.world = world
        self.requests = Requests(world)

    def once(self):
        """Send one request; nobody may read or change more than is theirs."""
        world = self.world
        drawn = self.world.drawn
        world.keep_roles()
        visitor = drawn.of(list(world.visitors.values()))
        request, meant = self.requests.request(visitor)
        cookie, true = self.requests.cookie(visitor)
        request.headers = [(n, v) for n, v in request.headers if n != b"cookie"]
        request.headers += [(b"cookie", cookie)] if cookie else []
        row = world.row_of(visitor) if true else None
        session = request.target.startswith(("/join/", "/leave"))
        before = self.picture() if session or (row and request.method == "POST") else None
        version = world.tables.version
        try:
            reply = world.wire.send(request)
        except Exception as error:
            raise AssertionError(f"{error!r} at {request!r}") from error
        world.statuses[reply.status] += 1
        if row is not None and reply.status // 100 == 2:
            world.fine[row["role"]] += 1
        changed = world.tables.version != version
        message = f"{reply.status} to {visitor.name} for {request!r:.1500}: {reply.text[:300]}"
        assert reply.status < 500, message
        if session and reply.status == 303 and meant:
            # That somebody came or went is written, no more.
            assert self.picture() == before, message
            changed = False
        if request.method != "POST" or not meant:
            assert not changed, message
        if row is None:
            self.judge_stranger(request, reply, changed, message)
        else:
            self.judge(request, reply, row, before, changed, message)
        self.learn(visitor, request, reply)

    def picture(self):
        tables = self.world.tables
        return {
            "answer": tables.last("answer"),
            "rating": tables.last("rating"),
            "lease": {(r["query_id"], r["annotator_id"]): r for r in tables.rows("lease")},
            "annotator": {r["id"]: r for r in tables.rows("annotator")},
            "project": {r["id"]: r for r in tables.rows("project")},
        }

    def judge_stranger(self, request, reply, changed, message):
        """Nobody reads or changes anything; a link that is known signs in, and that is all."""
        assert not changed, message
        self.hold_marks(
            reply, PLACES.values(), [c for of in self.world.clips.values() for c in of], message
        )
        if reply.status < 400 and reply.status != 304:
            assert request.target.startswith(OPEN_TO_ALL.get(reply.status, ("?",))), message

    def judge(self, request, reply, row, before, changed, message):
        """Their own project only, and only what their role may."""
        world = self.world
        slug = next(s for s, p in world.projects.items() if p.id == row["project_id"])
        others = [mark for place, mark in PLACES.items() if place != slug]
        if request.target.startswith("/join/") and reply.status == 200:
            others = []  # whoever has a link may know whose it is
        clips = [c for place, of in world.clips.items() if place != slug for c in of]
        self.hold_marks(reply, others, clips, message)
        assert world.store.key() not in reply.body, message
        if row["role"] == "annotator" and reply.status < 400:
            assert not request.target.startswith("/admin"), message
        if row["role"] == "spectator":
            assert not changed, message
            assert not (reply.status < 400 and request.target.startswith("/admin/")), message
        if changed:
            self.judge_change(row, before, request, message)

    def judge_change(self, row, before, request, message):
        tables = self.world.tables
        me = row["id"]
        after = self.picture()
        project = row["project_id"]
        for table in ("answer", "rating"):
            for said in tables.rows(table, f"id > {before[table]}"):
                assert (said["annotator_id"], said["project_id"]) == (me, project), message
        for pair in set(before["lease"]) | set(after["lease"]):
            if before["lease"].get(pair) != after["lease"].get(pair):
                assert pair[1] == me, message
        for table in ("annotator", "project"):
            for number in set(before[table]) | set(after[table]):
                old = before[table].get(number)
                new = after[table].get(number)
                if old != new:
                    whose = (new or old).get("project_id", number)
                    assert whose == project, message
                    if not request.target.startswith("/admin"):
                        differs = {k for k in new if old is None or new[k] != old[k]}
                        assert (table, number, differs) == ("annotator", me, {"qualified_at"}), (
                            message
                        )

    def hold_marks(self, reply, marks, clips, message):
        text = reply.body + repr(reply.headers).encode()
        for mark in (*marks, *clips):
            assert mark.encode() not in text, f"{mark} in {message}"

    def learn(self, visitor, request, reply):
        """Remember what a browser would."""
        if reply.status != 200 or not request.target.startswith("/api/"):
            return
        found = re.findall(r'"token":"([^"]+)"', reply.text)
        visitor.tokens = found or visitor.tokens
        visitor.keys = [*visitor.keys, *re.findall(rb'"key": "([0-9a-f]{32})"', request.body)][-6:]
        visitor.keys = [k.decode() if isinstance(k, bytes) else k for k in visitor.keys]


class Seen(HTMLParser):
    """Elements and attributes that a browser would make of a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def run(world, requests):
    """Send so many, and look at everything after each batch."""
    fuzzer = Fuzzer(world)
    answers = {"answer": {}, "rating": {}}
    for number in range(requests):
        fuzzer.once()
        if number % BATCH == BATCH - 1:
            answers = look(world, answers)
            world.heal()
    return world.statuses


def look(world, answers):
    """After a batch: tables, append-only answers, reading that writes nothing, and all pages."""
    assert faults(world.tables) == []
    now = {table: world.tables.by_id(table) for table in answers}
    for table, rows in answers.items():
        kept = {number: now[table].get(number) for number in rows}
        assert kept == rows, f"a row of {table} was changed"
    reads(world)
    return now


def reads(world):
    before = dump(world)
    for visitor in world.visitors.values():
        for path in ("/", "/episode", "/admin", "/api/progress", "/admin/export/csv"):
            reply = world.wire.send(Request("GET", path, [HOST, *visitor.headers]))
            assert reply.status in (200, 303, 401, 403), path
            if (reply.header("content-type") or "").startswith("text/html"):
                shown_not_run(reply.text)
            elif reply.status == 200 and path.endswith("csv"):
                harmless_cells(reply.text, visitor.place)
    assert dump(world) == before


def dump(world):
    names = (
        "project",
        "clip",
        "query",
        "lease",
        "answer",
        "rating",
        "annotator",
        "event",
        "reward_version",
        "sign_in",
    )
    return {name: world.tables.rows(name) for name in names}


def shown_not_run(text):
    """Nothing that people typed became an element or an attribute."""
    page = Seen()
    page.feed(text)
    page.close()
    for tag, attributes in page.found:
        assert tag not in ("img", "iframe", "object", "embed", "base"), tag
        assert tag != "script" or attributes.get("src", "").startswith("/static/")
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src", "action", "formaction", "xlink:href"):
                assert value.startswith(("/", "#")), (tag, value)


def harmless_cells(text, place):
    """No cell that a spreadsheet takes for a formula; only answers of this project."""
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    for row in rows:
        assert row["project"] == place
        for name, value in row.items():
            if value[:1] in ("=", "+", "-", "@", "\t", "\r"):
                float(value)
                assert name != "annotator"


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "store", SEED)
    yield made
    made.close()


def test_requests_of_every_kind(world):
    statuses = run(world, 300)
    for status in (200, 206, 303, 401, 403, 404, 405, 422):
        assert statuses[status], f"no request came to {status}: {statuses}"


@pytest.mark.slow
def test_thousands_of_requests(world):
    statuses = run(world, COUNT)
    fine = sum(count for status, count in statuses.items() if status // 100 == 2)
    log.info(
        "%d requests: %s, %.1f %% of them 2xx", COUNT, sorted(statuses.items()), 100 * fine / COUNT
    )
    log.info("2xx by role: %s", sorted(world.fine.items()))
    assert sum(statuses.values()) == COUNT
    assert fine >= COUNT // 5
    assert min(world.fine[role] for role in ROLES) >= COUNT // 100
    assert len(world.tables.rows("answer")) > COUNT // 50, "hardly anything was answered"
    assert len(world.tables.rows("rating")) > COUNT // 200, "hardly anything was rated"
