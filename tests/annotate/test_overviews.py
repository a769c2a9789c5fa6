"""Looking on is cheap for those who answer: numbers are computed once, and pages come in turn."""

import threading
import time
from uuid import uuid4

import anyio
import pytest
from starlette.requests import Request

from helpers.page_requests import claim
from preferl.annotate import overviews
from preferl.annotate.overviews import LONGEST_REST, Overviews, in_turn


@pytest.fixture
def answer(study, ann):
    """Answer one pair more."""
    study.ask(3)

    def give():
        token = claim(ann)["queries"][0]["token"]
        body = {"token": token, "key": uuid4().hex, "kind": "left"}
        assert ann.post("/api/answer", json=body).status_code == 200

    return give


def answers(looked):
    return looked.people["ann"]["answers"]


def test_numbers_are_computed_again_once_there_is_an_answer(study, answer):
    each = Overviews(study.store)
    first = each.of(study.project.id)
    assert each.of(study.project.id) is first
    assert answers(first) == 0
    for count in (1, 2):
        answer()
        assert answers(each.of(study.project.id)) == count


def test_expensive_numbers_stay_for_a_while(study, answer, monkeypatch):
    monkeypatch.setattr(overviews, "BRIEF", 0.0)
    monkeypatch.setattr(overviews, "REST", 1e9)
    each = Overviews(study.store)
    first = each.of(study.project.id)
    answer()
    assert each.of(study.project.id) is first
    later = time.monotonic() + LONGEST_REST
    monkeypatch.setattr(overviews.time, "monotonic", lambda: later)
    assert answers(each.of(study.project.id)) == 1


def test_many_looks_at_once_compute_once(study, answer, monkeypatch):
    computed = []
    votes = study.store.queries.votes

    def counted(project_id):
        computed.append(project_id)
        time.sleep(0.05)
        return votes(project_id)

    monkeypatch.setattr(study.store.queries, "votes", counted)
    each = Overviews(study.store)
    threads = [threading.Thread(target=each.of, args=(study.project.id,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert computed == [study.project.id]


def test_pages_of_those_who_look_on_come_one_at_a_time(app):
    at_once = []
    most = []

    def look():
        at_once.append(1)
        most.append(len(at_once))
        time.sleep(0.02)
        at_once.pop()
        return "page"

    async def everybody():
        request = Request({"type": "http", "app": app})
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(in_turn, request, look)

    anyio.run(everybody)
    assert most == [1] * 4
