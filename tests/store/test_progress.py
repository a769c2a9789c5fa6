"""How far a project and the people in it are."""

import numpy as np
import pytest
from sqlalchemy import select, update

from helpers.queue_steps import answer_next, invite, show
from preferl.store.schema import Answer
from preferl.testing.feedback_contracts import example_segments

SEGMENTS = example_segments(0)
PAIRS = np.array([[0, 1], [2, 3], [4, 5], [6, 7]])


def answer(store, project, who, *kinds):
    for kind in kinds:
        answer_next(store, project.id, who, kind)


def test_progress_counts_answers_that_count(store):
    project = store.projects.create("dots", quorum=2, repeat_share=0.0)
    store.queries.ask(project.id, SEGMENTS, PAIRS)
    progress = store.reports.progress(project.id)
    assert (progress.answered, progress.wanted, progress.open) == (0, 8, 4)
    assert (progress.pairs_undrawn, progress.people_active, progress.revision) == (4, 0, 0)
    show(store, project.id)
    ann = invite(store, project.id)
    bob = invite(store, project.id, "Bob")
    answer(store, project, ann, "left", "cannot_tell", "skip")
    answer(store, project, bob, "equal")
    progress = store.reports.progress(project.id, ann)
    assert (progress.answered, progress.wanted, progress.open) == (3, 8, 3)
    assert (progress.pairs_undrawn, progress.revision, progress.mine) == (0, 3, 2)
    assert store.reports.open(project.id) == progress.open
    assert store.reports.decided(project.id) == 1, "both have decided the first query"
    store.projects.update(project.id, budget=5)
    assert store.reports.progress(project.id).wanted == 5


def test_a_pace_is_that_of_the_last_ten_minutes(store):
    project = store.projects.create("dots", repeat_share=0.0)
    store.queries.ask(project.id, SEGMENTS, PAIRS)
    show(store, project.id)
    ann = invite(store, project.id)
    answer(store, project, ann, "left", "left")
    assert store.reports.own(ann) == {"mine": 2, "mine_per_hour": None}
    answer(store, project, ann, "left", "left")
    now = store.reports.clock()
    with store.database.write() as session:
        for number, ago in zip(
            session.scalars(select(Answer.id).order_by(Answer.id)).all(),
            (900, 400, 300, 100),
            strict=True,
        ):
            session.execute(update(Answer).where(Answer.id == number).values(answered_at=now - ago))
    own = store.reports.own(ann)
    # Three answers are recent; after the first of them, two took 400 seconds.
    assert own == {"mine": 4, "mine_per_hour": pytest.approx(18.0, rel=0.2)}
