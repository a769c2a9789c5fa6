"""How far a project and the people in it are."""

import numpy as np
import pytest
from sqlalchemy import event, select, update
from sqlalchemy.orm import Session

from helpers.queue_steps import answer_next, invite, show
from preferl.errors import ConfigError
from preferl.store.schema import Answer, Service
from preferl.store.status import Status
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
    assert store.reports.personal_progress(ann) == {"mine": 2, "mine_per_hour": None}
    answer(store, project, ann, "left", "left")
    now = store.reports.clock()
    with store.database.write() as session:
        for number, ago in zip(
            session.scalars(select(Answer.id).order_by(Answer.id)).all(),
            (900, 400, 300, 100),
            strict=True,
        ):
            session.execute(update(Answer).where(Answer.id == number).values(answered_at=now - ago))
    own = store.reports.personal_progress(ann)
    # Three answers are recent; after the first of them, two took 400 seconds.
    assert own == {"mine": 4, "mine_per_hour": pytest.approx(18.0, rel=0.2)}


def test_programs_that_give_no_sign_of_life_are_lost(store, project):

    def let_time_pass():
        with store.database.write() as session:
            session.execute(update(Service).values(beat_at=Service.beat_at - 2400))

    store.reports.beat(project, "reward", Status("waiting", version=3), every=600.0)
    (state,) = store.reports.services(project)
    assert (state.name, state.status, state.alive) == ("reward", Status("waiting", version=3), True)
    let_time_pass()
    assert not store.reports.services(project)[0].alive
    store.reports.beat(project, "reward", Status("stopped"), every=600.0)
    let_time_pass()
    (state,) = store.reports.services(project)
    assert (state.status, state.alive) == (Status("stopped"), True), "who said goodbye is not lost"


@pytest.mark.postgres
@pytest.mark.parametrize("open_store", ["postgres"], indirect=True)  # SQLite: one at a time anyway
def test_two_programs_of_one_name_may_give_their_first_sign_of_life_at_once(open_store):
    one = open_store()
    other = open_store()
    project = one.projects.create("dots").id
    states = iter(["waiting"])

    def the_other_first(*_):
        for state in states:
            other.reports.beat(project, "reward", Status(state))

    event.listen(Session, "before_flush", the_other_first)
    try:
        one.reports.beat(project, "reward", Status("fitting"))
    finally:
        event.remove(Session, "before_flush", the_other_first)
    (service,) = one.reports.services(project)
    assert service.status.state == "fitting"


def test_versions_count_from_one(store, project):
    with pytest.raises(ConfigError, match="version: expected at least 1"):
        store.reports.announce_reward(project, 0, answers=20)
    assert store.reports.rewards(project) == []
    store.reports.announce_reward(project, 3, answers=20, accuracy=0.7, interval=(0.6, 0.8))
    store.reports.announce_reward(project, 2, answers=9)
    store.reports.announce_reward(project, 2, answers=41)
    rewards = store.reports.rewards(project)
    assert [(row.version, row.accuracy, row.high, row.answers) for row in rewards] == [
        (2, None, None, 41), (3, 0.7, 0.8, 20),
    ]  # fmt: skip


def test_events_and_programs_are_of_a_project_or_of_the_whole_store(store):
    one, other = (store.projects.create(name).id for name in ("dots", "spots"))
    for number in range(3):
        store.reports.add_event(one, "seen", detail={"number": number})
    store.reports.add_event(None, "moved", detail={"to": "a"})
    store.reports.beat(one, "reward", Status("fitting"))
    assert [event.detail["number"] for event in store.reports.latest_events(one, 2)] == [2, 1]
    assert store.reports.latest_events(other) == store.reports.services(other) == []
    assert store.reports.last_event("moved") == {"to": "a"}
    assert store.reports.last_event("seen") is None, "it concerns a project"
