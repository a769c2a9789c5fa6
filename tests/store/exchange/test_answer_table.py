"""Rows of the table of answers: which are read, and which are refused."""

import numpy as np
import pytest
from sqlalchemy import select

from helpers.json_rows import write
from preferl.errors import DataError
from preferl.store.exchange.answer_table import (
    NEEDED,
    add_answers,
    checked,
    people_named,
    query_name,
    read_answers,
)
from preferl.store.exchange.exports import import_answers
from preferl.store.schema import Query
from preferl.store.store import Store
from preferl.testing.feedback_contracts import example_segments


def a_row():
    return {
        "query": "3-0123abcd", "purpose": "ask", "first_clip": "a" * 32, "second_clip": "b" * 32,
        "annotator": "Ann", "kind": "left", "preference": 1.0, "swapped": False,
        "answered_at": 1e9, "key": "key-00001", "quorum": 1, "priority": 0.0, "asked_at": 1e9,
    }  # fmt: skip


WRONG = (
    ("kind", "up"), ("kind", None), ("kind", 3), ("preference", 0.3), ("preference", None),
    ("swapped", "maybe"), ("first_clip", "../../etc"), ("query", "17"), ("purpose", "example"),
    ("annotator", " "), ("annotator", "x" * 81), ("strength", "very"), ("response_ms", -1),
    ("answered_at", float("nan")), ("answered_at", "yesterday"), ("answered_at", 1e15),
    ("key", "short"), ("known", 1.0), ("quorum", 1.5), ("detail", [1]), ("left_clip", "0" * 32),
    ("repeat_of", "1-00000000"), *((name, None) for name in sorted(NEEDED)),
)  # fmt: skip


def test_a_wrong_cell_is_named(tmp_path):
    for column, value in WRONG:
        row = a_row() | {"key": "key-00002"} | {column: value}
        path = write(tmp_path / "a.jsonl", [a_row(), row])
        with pytest.raises(DataError, match=rf"a\.jsonl, row 2, column {column}: expected"):
            list(read_answers(path))


def test_rows_that_disagree_are_named(tmp_path):
    with Store.open(tmp_path / "store") as store:
        project = store.projects.create("dots").id
        same = write(tmp_path / "same.jsonl", [a_row(), a_row()])
        with pytest.raises(DataError, match="row 2, column key: expected one for each answer"):
            import_answers(store, project, same)
        other = a_row() | {"key": "key-00002", "priority": 1.0}
        with pytest.raises(DataError, match=r"row 2, column priority: expected 0\.0, as in"):
            import_answers(store, project, write(tmp_path / "other.jsonl", [a_row(), other]))
        with pytest.raises(DataError, match="row 1, column first_clip: expected a clip of this"):
            import_answers(store, project, write(tmp_path / "one.jsonl", [a_row()]))


def test_sides_and_preference_follow_what_was_shown():
    swapped = {"swapped": True, "preference": 0.0, "left_clip": "b" * 32, "right_clip": "a" * 32}
    assert checked(a_row() | swapped, "row 1")["preference"] == 0.0
    with pytest.raises(DataError, match=r"column preference: expected 0\.0, which follows"):
        checked(a_row() | {"swapped": True}, "row 1")
    assert checked(a_row() | {"kind": "skip", "preference": None}, "row 1")["preference"] is None


def test_the_name_of_a_query_is_that_of_where_it_began(tmp_path):
    with Store.open(tmp_path) as store:
        one, other = (store.projects.create(name) for name in ("dots", "spots"))
    names = {query_name(project, n, None) for project in (one, other) for n in (1, 2)}
    assert len(names) == 4
    assert query_name(other, 5, {"exported_as": "3-0123abcd"}) == "3-0123abcd"


def test_what_queries_need_goes_by_each_persons_latest_answer(tmp_path):
    with Store.open(tmp_path) as store:
        project = store.projects.create("dots", quorum=2).id
        (query,) = store.queries.ask(project, example_segments(0), np.array([[0, 1]]))
        columns = ("preference", "strength", "response_ms", "granted_at", "detail")
        about = {"project_id": project, "query_id": query, "swapped": False, "answered_at": 1e9}
        about |= dict.fromkeys(columns)
        given = [("Ann", "left"), ("Bob", "equal"), ("Ann", "retract"), ("Cy", "skip")]
        with store.database.write() as session:
            people = people_named(session, project, ["Ann", "Bob", "Cy"])
            rows = [
                about | {"annotator_id": people[name], "kind": kind, "key": f"key-{n:05d}"}
                for n, (name, kind) in enumerate(given)
            ]
            add_answers(session, rows)
            assert session.scalar(select(Query.needed)) == 1, "Bob's answer alone counts"
