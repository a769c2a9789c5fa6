"""The tables are those of the migrations, and refuse rows that mean nothing."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.exc import IntegrityError

from preferl.store.schema import (
    ANSWERS,
    COUNTED,
    DECIDING,
    KINDS,
    Annotator,
    Answer,
    Base,
    Clip,
    Query,
    RewardVersion,
    preference_of,
)
from preferl.store.status import FitMetrics


def test_migrations_make_what_the_code_expects(store):
    with store.database.read() as session:
        context = MigrationContext.configure(session.connection())
        differences = compare_metadata(context, Base.metadata)
    by_hand = ("ix_query_open", "ix_query_undrawn")  # expressions cannot be compared
    assert [d for d in differences if not any(name in str(d) for name in by_hand)] == []


def test_tables_are_named_after_their_classes():
    assert sorted(Base.metadata.tables) == [
        "allowance", "annotator", "answer", "clip", "event", "lease", "prediction", "project",
        "query", "reward_version", "service", "sign_in",
    ]  # fmt: skip
    named = {constraint.name for constraint in Answer.__table__.constraints}
    assert {"pk_answer", "ck_answer_kind", "fk_answer_query_id", "uq_answer_key"} <= named


def test_preferences_are_those_for_the_first_clip():
    assert {kind: preference_of(kind, swapped=False) for kind in KINDS} == {
        "left": 1.0, "right": 0.0, "equal": 0.5, "cannot_tell": None, "skip": None, "retract": None,
    }  # fmt: skip
    turned = [preference_of(kind, swapped=True) for kind in DECIDING]
    assert turned == [0.0, 1.0, 0.5]


def test_kinds_of_answers_hold_one_another():
    assert set(DECIDING) < set(COUNTED) < set(ANSWERS) < set(KINDS)
    assert set(KINDS) - set(COUNTED) == {"skip", "retract"}


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


@pytest.mark.parametrize(
    "row",
    [
        lambda: Clip(id="b", **CLIP | {"kind": "film"}),
        lambda: Clip(id="b", **CLIP, video="drawn"),
        lambda: Clip(id="a", **CLIP),
        lambda: Query(**QUERY | {"purpose": "why"}),
        lambda: Query(**QUERY, known=1.5),
        lambda: Query(**QUERY | {"second_clip": "b"}),
        lambda: Annotator(**PERSON | {"name": "Bob"}),
        lambda: Annotator(**PERSON | {"secret_hash": "1"}),
        lambda: Annotator(**PERSON | {"name": "Bob", "secret_hash": "1", "role": "king"}),
        lambda: Answer(**ANSWER),
        lambda: Answer(**ANSWER | {"key": "l", "kind": "up"}),
        lambda: Answer(**ANSWER | {"key": "l"}, preference=-0.1),
        lambda: Answer(**ANSWER | {"key": "l", "query_id": 99}),
    ],
)
def test_rows_that_mean_nothing_are_refused(store, answered, row):
    wrong = row()
    wrong.project_id = answered
    with pytest.raises(IntegrityError), store.database.write() as session:
        session.add(wrong)


def test_metrics_of_a_version_are_what_was_published():
    version = RewardVersion(answers=7, detail={"epochs": 3, "mood": "good"})
    assert version.metrics == FitMetrics(answers=7, epochs=3)
    assert RewardVersion(answers=7).metrics == FitMetrics(answers=7)
