"""The tables are those of the migrations, and refuse rows that mean nothing."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.exc import IntegrityError

from preferl.store.schema import (
    DECIDING,
    KINDS,
    Annotator,
    Answer,
    Base,
    Clip,
    Query,
    preference_of,
)


def test_migrations_make_what_the_code_expects(store):
    with store.database.read() as session:
        context = MigrationContext.configure(session.connection())
        differences = compare_metadata(context, Base.metadata)
    by_hand = ("ix_query_open", "ix_query_undrawn")  # expressions cannot be compared
    assert [d for d in differences if not any(name in str(d) for name in by_hand)] == []


def test_preferences_are_those_for_the_first_clip():
    assert {kind: preference_of(kind, swapped=False) for kind in KINDS} == {
        "left": 1.0, "right": 0.0, "equal": 0.5, "cannot_tell": None, "skip": None, "retract": None,
    }  # fmt: skip
    turned = [preference_of(kind, swapped=True) for kind in DECIDING]
    assert turned == [0.0, 1.0, 0.5]


CLIP = {"kind": "segment", "shard": "a", "row": 0, "steps": 4, "created_at": 0.0}
QUERY = {"first_clip": "a", "second_clip": "a", "purpose": "ask", "ready": True, "asked_at": 0.0}
PERSON = {"name": "Ann", "role": "annotator", "secret_hash": "0", "created_at": 0.0}
ANSWER = {"query_id": 1, "annotator_id": 1, "key": "k", "kind": "left", "swapped": False}
ANSWER |= {"answered_at": 0.0}


@pytest.fixture
def answered(store):
    """The number of a project with a clip, a query, a person and an answer."""
    project = store.projects.create("dots").id
    for row in (Clip(id="a", **CLIP), Query(**QUERY), Annotator(**PERSON), Answer(**ANSWER)):
        row.project_id = project
        with store.database.write() as session:
            session.add(row)
    return project


def wrong_rows():
    return [
        Clip(id="b", **CLIP | {"kind": "film"}),
        Clip(id="b", **CLIP, video="drawn"),
        Clip(id="a", **CLIP),
        Query(**QUERY | {"purpose": "why"}),
        Query(**QUERY, known=1.5),
        Query(**QUERY | {"second_clip": "b"}),
        Annotator(**PERSON | {"name": "Bob"}),
        Annotator(**PERSON | {"secret_hash": "1"}),
        Annotator(**PERSON | {"name": "Bob", "secret_hash": "1", "role": "king"}),
        Answer(**ANSWER),
        Answer(**ANSWER | {"key": "l", "kind": "up"}),
        Answer(**ANSWER | {"key": "l"}, preference=-0.1),
        Answer(**ANSWER | {"key": "l", "query_id": 99}),
    ]


def test_rows_that_mean_nothing_are_refused(store, answered):
    for row in wrong_rows():
        row.project_id = answered
        with pytest.raises(IntegrityError), store.database.write() as session:
            session.add(row)
