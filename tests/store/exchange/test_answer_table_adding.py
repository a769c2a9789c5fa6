"""What rows of the table of answers add to a store."""

import numpy as np
from sqlalchemy import select

from helpers.queue_steps import invite
from preferl.store.exchange.answer_table import (
    QUERY_NAME,
    add_answers,
    people_named,
    query_name,
)
from preferl.store.schema import Query
from preferl.store.store import Store
from preferl.testing.feedback_contracts import example_segments


def test_people_are_added_once(tmp_path):
    with Store.open(tmp_path) as store:
        project = store.projects.create("dots").id
        ann = invite(store, project)
        with store.database.write() as session:
            found = people_named(session, project, ["Bob", "Ann", "Bob"])
            again = people_named(session, project, ["Bob"])
        assert sorted(found) == ["Ann", "Bob"]
        assert (found["Ann"], again["Bob"]) == (ann, found["Bob"])
        assert [person.name for person in store.people.all(project)] == ["Ann", "Bob"]


def test_what_queries_need_goes_by_each_persons_latest_answer(tmp_path):
    with Store.open(tmp_path) as store:
        project = store.projects.create("dots", quorum=3).id
        (query,) = store.queries.ask(project, example_segments(0), np.array([[0, 1]]))
        shared = {
            "project_id": project, "query_id": query, "preference": None, "strength": None,
            "swapped": False, "response_ms": None, "granted_at": None, "answered_at": 1e9,
            "detail": None,
        }  # fmt: skip
        given = [("Ann", "left"), ("Bob", "equal"), ("Ann", "retract"), ("Cy", "skip")]
        with store.database.write() as session:
            people = people_named(session, project, ["Ann", "Bob", "Cy"])
            add_answers(
                session,
                [
                    shared | {"annotator_id": people[name], "kind": kind, "key": f"key-{n:05d}"}
                    for n, (name, kind) in enumerate(given)
                ],
            )
            assert session.scalar(select(Query.needed)) == 2  # Bob's answer alone counts


def test_the_name_of_a_query_is_that_of_where_it_began(tmp_path):
    with Store.open(tmp_path) as store:
        one = store.projects.create("dots")
        other = store.projects.create("spots")
    names = {query_name(project, n, None) for project in (one, other) for n in (1, 2)}
    assert len(names) == 4
    assert all(QUERY_NAME.fullmatch(name) for name in names)
    assert query_name(one, 1, {"z": 1}) == query_name(one, 1, None)
    assert query_name(other, 5, {"exported_as": "3-0123abcd"}) == "3-0123abcd"
