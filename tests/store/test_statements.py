"""What the queue asks of a database, on both databases."""

import numpy as np
import pytest
from sqlalchemy import Select, func, select
from sqlalchemy.dialects import postgresql, sqlite

from helpers.queue_steps import invite
from preferl.store import statements
from preferl.store.schema import Answer, Query
from preferl.testing.feedback_contracts import example_segments

SELECTS = sorted(name for name, each in vars(statements).items() if isinstance(each, Select))
EVERY = {"limit": 5, "key": "none", "token": "none", "query_id": 1, "undrawn": False}
EVERY |= {"agent": "none", "priority": 0.0}


@pytest.fixture
def asked(store):
    """A project that wants two answers to each of three queries, two people, and the queries."""
    project = store.projects.create("dots", quorum=2, repeat_share=0.0, known_share=0.0)
    pairs = np.array([[0, 1], [2, 3], [4, 5]])
    numbers = store.queries.ask(project.id, example_segments(0), pairs)
    people = [invite(store, project.id, name) for name in ("Ann", "Bob")]
    return project.id, people, numbers


def give(store, project, person, query, *kinds):
    """Answers of a person about a query, one after the other."""
    with store.database.write() as session:
        for kind in kinds:
            about = {"project_id": project, "annotator_id": person, "query_id": query}
            count = session.scalar(select(func.count(Answer.id)))
            about |= {"granted_at": 0.0, "answered_at": 1e9, "swapped": False}
            session.add(Answer(**about, kind=kind, key=f"{count}"))
            session.flush()


def test_each_statement_is_of_this_project_and_person(store, asked):
    _, (ann, _), (first, *_) = asked
    other = store.projects.create("other").id
    bob = invite(store, other, "Bob")
    give(store, asked[0], ann, first, "left")
    store.queue.claim(asked[0], ann, 1, undrawn=True)
    about = EVERY | {"project_id": other, "annotator_id": bob, "at": store.reports.clock()}
    for name in SELECTS:
        found = store.database.rows(getattr(statements, name), **about | {"query_id": 999})
        assert [row[0] for row in found if any(row)] == ([bob] if name == "ALONE" else []), name


@pytest.mark.parametrize("dialect", [postgresql, sqlite])
def test_open_queries_are_read_from_their_index_whatever_the_values(dialect):
    """A plan made without values uses an index of some rows only where the words imply it."""
    (index,) = [each for each in Query.__table__.indexes if each.name == "ix_query_open"]
    for name in ("OPEN", "OPEN_SKIPPED", "OPEN_UNDRAWN"):
        words = str(getattr(statements, name).compile(dialect=dialect.dialect())).replace('"', "")
        for condition in str(index.dialect_options["postgresql"]["where"]).split(" AND "):
            assert f"query.{condition}" in words
