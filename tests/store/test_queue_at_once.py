"""The same answer sent many times at the same moment, as browsers do that get no reply."""

import threading
from functools import partial

import numpy as np
import pytest
from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from helpers.queue_steps import answer_next, claim_one, invite, show
from preferl.data.segments import Segments
from preferl.errors import FeedbackError
from preferl.store.schema import Answer, Clip, Lease, Query

AT_ONCE = 6
ROUNDS = 8


@pytest.fixture
def stores(open_store):
    """The same store, as two programs open it."""
    return [open_store() for _ in range(2)]


def asked(store, pairs, quorum=1):
    rng = np.random.default_rng(0)
    blocks = rng.normal(size=(2 * pairs, 1)).astype(np.float32)
    count = np.arange(2 * pairs)
    ones = np.ones(2 * pairs, np.int64)
    segments = Segments(blocks, blocks, np.zeros(2 * pairs, np.float32), count, ones, 1)
    project = store.projects.create("dots", repeat_share=0.0, known_share=0.0, quorum=quorum)
    store.queries.ask(project.id, segments, count.reshape(pairs, 2))
    show(store, project.id)
    return project.id


def at_once(*works):
    """What each work returns or raises, all begun at the same moment."""
    start = threading.Barrier(len(works))
    results = [None] * len(works)

    def run(place, work):
        start.wait()
        try:
            results[place] = work()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=job) for job in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def answers(store):
    return store.database.all(select(Answer).order_by(Answer.id))


def needed(store):
    return store.database.all(select(Query.needed).order_by(Query.id))


def test_one_key_is_one_answer_for_programs_at_once(stores):
    project = asked(stores[0], ROUNDS)
    ann = invite(stores[0], project, "ann")
    for number in range(ROUNDS):
        question = claim_one(stores[0], project, ann)
        results = at_once(
            *(
                partial(stores[n % 2].queue.answer, ann, question.token, f"key-{number:04}", "left")
                for n in range(AT_ONCE)
            )
        )
        assert len({result.answer_id for result in results}) == 1, results
        assert sorted(result.new for result in results) == [False] * (AT_ONCE - 1) + [True]
    assert len(answers(stores[0])) == ROUNDS
    assert needed(stores[0]) == [0] * ROUNDS


def test_one_question_is_answered_once_whatever_the_keys(stores):
    project = asked(stores[0], ROUNDS, quorum=2)
    ann = invite(stores[0], project, "ann")
    for number in range(ROUNDS):
        question = claim_one(stores[0], project, ann)
        results = at_once(
            *(
                partial(
                    stores[n % 2].queue.answer, ann, question.token, key, ("left", "equal")[n % 2]
                )
                for n, key in enumerate(f"key-{number}-{n}-of-ann" for n in range(AT_ONCE))
            )
        )
        refused = [result for result in results if isinstance(result, FeedbackError)]
        assert len(refused) == AT_ONCE - 1, results
    assert len(answers(stores[0])) == ROUNDS
    assert needed(stores[0]) == [1] * ROUNDS
    assert stores[0].database.all(select(Lease)) == []


def test_one_undo_is_one_undo(stores):
    project = asked(stores[0], 2)
    ann = invite(stores[0], project, "ann")
    for _ in range(2):
        question = answer_next(stores[0], project, ann)
    results = at_once(
        *(partial(stores[n % 2].queue.undo, ann, "the-undo-key") for n in range(AT_ONCE))
    )
    assert {result.query_id for result in results} == {question.query_id}, results
    assert [answer.kind for answer in answers(stores[0])] == ["left", "left", "retract"]


def test_undo_while_answering_ends_with_all_in_order(stores):
    project = asked(stores[0], 2)
    ann = invite(stores[0], project, "ann")
    for number in range(ROUNDS):
        question = stores[0].queue.claim(project, ann, 1).queries[0]
        results = at_once(
            partial(stores[0].queue.answer, ann, question.token, f"the-key-{number}", "left"),
            partial(stores[1].queue.undo, ann, f"the-undo-{number}"),
            partial(stores[0].queue.heartbeat, ann, [question.token]),
            partial(stores[1].queue.claim, project, ann, 2),
        )
        assert not [result for result in results if isinstance(result, Exception)], results
        stores[0].queue.undo(ann, f"the-last-undo-{number}")
    assert needed(stores[0]) == [1, 1]


@pytest.mark.parametrize("kind", [None, "equal"])
def test_one_change_of_an_answer_is_one_change(stores, kind):
    project = asked(stores[0], ROUNDS)
    ann = invite(stores[0], project, "ann")
    owner = stores[0].people.owner(project).annotator.id
    for number in range(ROUNDS):
        question = claim_one(stores[0], project, ann)
        made = stores[0].queue.answer(ann, question.token, f"the-key-{number}", "left").answer_id
        about = {"by": owner, "key": f"change-{number}"} | ({"kind": kind} if kind else {})
        stores[0].queue.release(ann, [question.token])
        results = at_once(
            *(
                partial(
                    getattr(stores[n % 2].answers, "correct" if kind else "withdraw"),
                    project,
                    made,
                    **about,
                )
                for n in range(AT_ONCE)
            )
        )
        assert len(set(results)) == 1, results
        assert isinstance(results[0], int), results
    assert len(stores[0].reports.latest_events(project)) == ROUNDS


def test_corrections_by_several_at_once_leave_one(stores):
    project = asked(stores[0], 1, quorum=3)
    people = [stores[0].people.invite(project, f"admin {n}", "admin") for n in range(3)]
    admins = [person.annotator.id for person in people]
    ann = invite(stores[0], project, "ann")
    question = claim_one(stores[0], project, ann)
    made = stores[0].queue.answer(ann, question.token, "the-key-of-ann", "left").answer_id
    for number in range(ROUNDS):
        results = at_once(
            *(
                partial(
                    stores[n % 2].answers.correct,
                    project,
                    made,
                    by=admin,
                    key=f"{number}-by-{admin}",
                    kind="equal",
                )
                for n, admin in enumerate(admins)
            )
        )
        refused = [result for result in results if not isinstance(result, int)]
        assert all(isinstance(result, FeedbackError) for result in refused), results
        assert stores[0].queries.votes(project).annotator.size == 1
        rows = stores[0].answers.history(project, question.query_id)
        made = max(row.answer.id for row in rows if row.answer.annotator_id == ann)


@pytest.mark.parametrize("kind", ["left", "skip"])
def test_two_people_cannot_share_a_key(open_store, kind):
    store = open_store()
    project = asked(store, 2)
    leased = []
    for name in ("ann", "ben"):
        person = invite(store, project, name)
        question = claim_one(store, project, person)
        leased.append((person, question.token))
    results = at_once(
        *(partial(store.queue.answer, who, token, "the-same-key", kind) for who, token in leased)
    )
    assert sorted(type(result).__name__ for result in results) == [
        "FeedbackError",
        "RecordedAnswer",
    ]
    assert len(answers(store)) == 1


def test_a_pair_can_be_shown_though_its_videos_end_at_once(stores):
    project = asked(stores[0], pairs=2 * ROUNDS)
    with stores[0].database.write() as session:
        session.execute(update(Clip).values(video="none"))
        session.execute(update(Query).values(ready=False))
    for _, *pair in stores[0].queries.asked(project):
        ends = [
            partial(store.clips.video_ready, project, [clip])
            for store, clip in zip(stores, pair, strict=True)
        ]
        assert at_once(*ends) == [None, None]
    assert all(stores[0].database.all(select(Query.ready)))


def test_two_people_do_not_share_a_question_that_ran_out(stores):
    project = asked(stores[0], pairs=ROUNDS)
    ann, bob = (invite(stores[0], project, name) for name in ("Ann", "Bob"))
    for _ in range(ROUNDS):
        stores[0].queue.claim(project, ann, 8)
        with stores[0].database.write() as session:
            session.execute(update(Lease).values(expires_at=0.0))
        claims = at_once(
            *(
                partial(store.queue.claim, project, person, 8)
                for store, person in zip(stores, (ann, bob), strict=True)
            )
        )
        held = [question.query_id for claim in claims for question in claim.queries]
        assert len(set(held)) == len(held)
        with stores[0].database.write() as session:
            session.execute(delete(Lease))


def test_one_name_is_one_person_though_invited_at_once(stores):
    project = asked(stores[0], pairs=1)
    for number in range(ROUNDS):
        found = at_once(
            *(partial(store.people.invite, project, f"Ann {number}") for store in stores)
        )
        assert found[0].annotator.id == found[1].annotator.id


def test_votes_have_names_though_answers_are_imported_meanwhile(open_store, monkeypatch):
    store = open_store()
    other = open_store()
    project = asked(store, pairs=2)
    ann = invite(store, project)
    answer_next(store, project, ann)
    rows = Session.execute

    def with_another(session, statement, *args, **more):
        monkeypatch.undo()  # once
        found = rows(session, statement, *args, **more)
        bob = invite(other, project, "Bob")
        answer_next(other, project, bob)
        return found

    monkeypatch.setattr(Session, "execute", with_another)
    votes = store.queries.votes(project)
    assert [votes.names[row] for row in votes.annotator] == ["Ann"]
    assert len(store.queries.votes(project).query) == 2
