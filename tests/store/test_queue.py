import threading

import numpy as np
import pytest
from sqlalchemy import func, select, update

from preferl.errors import FeedbackError
from preferl.store.database import clock
from preferl.store.schema import Answer, Lease, Query
from preferl.testing.feedback_contracts import example_segments

SEGMENTS = example_segments(0)


def key(number: int) -> str:
    return f"key-{number:08d}"


def project_with(store, pairs=((0, 1), (2, 3), (4, 5)), **settings):
    settings = {"repeat_share": 0.0, "known_share": 0.0} | settings
    project = store.projects.create("dots", **settings)
    asked = store.queries.ask(project.id, SEGMENTS, np.array(pairs))
    store.clips.video_ready(project.id, store.clips.without_video(project.id, 100))
    return project, asked


def person(store, project, name="Ann"):
    return store.people.invite(project.id, name).annotator.id


def test_the_same_questions_with_the_same_sides_until_they_are_answered(store):
    project, asked = project_with(store)
    ann = person(store, project)
    first = store.queue.claim(project.id, ann, 2)
    again = store.queue.claim(project.id, ann, 2)
    assert first.state == "ready"
    assert [q.query_id for q in first.queries] == asked[:2]
    assert [q[:5] for q in again.queries] == [q[:5] for q in first.queries]


def test_what_is_looked_at_stays_first_when_later_questions_are_more_urgent(store):
    project, asked = project_with(store)
    urgent = store.queries.ask(project.id, SEGMENTS, np.array([[6, 7]]), priority=1.0)
    store.clips.video_ready(project.id, store.clips.without_video(project.id, 100))
    ann = person(store, project)
    first, again = (store.queue.claim(project.id, ann, 3).queries for _ in range(2))
    assert [q.query_id for q in first] == [*urgent, *asked[:2]]
    assert [q.token for q in again] == [q.token for q in first]


def test_preference_is_that_of_the_first_clip_whatever_the_sides(store):
    pairs = [(i, j) for i in range(8) for j in range(i + 1, 8)]
    project, asked = project_with(store, pairs)
    ann = person(store, project)
    sides = set()
    for number in range(len(asked)):
        (question,) = store.queue.claim(project.id, ann, 1).queries
        ((first, second),) = store.queries.pairs(project.id, [question.query_id])
        assert (question.left, question.right) == (
            (second, first) if question.swapped else (first, second)
        )
        kind = "left" if question.left == first else "right"  # always the first clip
        assert store.queue.answer(ann, question.token, key(number), kind).new
        sides.add(question.swapped)
    votes = store.queries.votes(project.id)
    assert sides == {True, False}
    np.testing.assert_array_equal(votes.preference, np.ones(len(asked)))
    np.testing.assert_array_equal(votes.query, asked)
    assert store.queue.claim(project.id, ann, 1).state == "waiting"


def test_the_same_key_twice_is_one_answer(store):
    project, _ = project_with(store)
    ann = person(store, project)
    (question,) = store.queue.claim(project.id, ann, 1).queries
    one = store.queue.answer(ann, question.token, key(1), "left")
    two = store.queue.answer(ann, question.token, key(1), "right")
    assert (one.new, two.new, one.answer_id) == (True, False, two.answer_id)
    with pytest.raises(FeedbackError, match="answered already"):
        store.queue.answer(ann, question.token, key(2), "left")
    assert store.reports.revision(project.id) == 1


def test_nobody_answers_for_somebody_else(store):
    project, _ = project_with(store)
    ann = person(store, project)
    bob = person(store, project, "Bob")
    (question,) = store.queue.claim(project.id, ann, 1).queries
    with pytest.raises(FeedbackError, match="somebody else"):
        store.queue.answer(bob, question.token, key(1), "left")
    store.queue.answer(ann, question.token, key(1), "left")
    with pytest.raises(FeedbackError, match="somebody else"):
        store.queue.answer(bob, "anything", key(1), "left")
    assert store.reports.revision(project.id) == 1


@pytest.mark.parametrize(
    ("kind", "more"),
    [("retract", {}), ("up", {}), ("left", {"strength": "very"}), ("left", {"response_ms": -1.0})],
)
def test_answers_that_mean_nothing_are_refused(store, kind, more):
    project, _ = project_with(store)
    ann = person(store, project)
    (question,) = store.queue.claim(project.id, ann, 1).queries
    with pytest.raises(FeedbackError):
        store.queue.answer(ann, question.token, key(1), kind, **more)
    assert store.reports.revision(project.id) == 0


def test_a_quorum_of_different_people(store):
    project, _asked = project_with(store, [(0, 1)], quorum=2)
    people = [person(store, project, name) for name in ("Ann", "Bob", "Cy")]
    held = [store.queue.claim(project.id, one, 1) for one in people]
    assert [claim.state for claim in held] == ["ready", "ready", "waiting"]
    store.queue.answer(people[0], held[0].queries[0].token, key(0), "equal")
    assert store.queue.claim(project.id, people[2], 1).state == "waiting"
    assert store.queue.claim(project.id, people[0], 1).state == "waiting"
    store.queue.release(people[1], [held[1].queries[0].token])
    (question,) = store.queue.claim(project.id, people[2], 1).queries
    store.queue.answer(people[2], question.token, key(2), "left")
    assert store.progress(project.id).open == 0
    late = store.queue.answer(people[1], held[1].queries[0].token, key(1), "cannot_tell")
    assert late.new, "work that is done is not thrown away"
    assert len(store.queries.votes(project.id).query) == 3


def pass_time(store, seconds):
    """As if leases had been granted, renewed and about to end so much earlier."""
    with store.database.write() as session:
        earlier = {name: getattr(Lease, name) - seconds for name in ("renewed_at", "expires_at")}
        session.execute(update(Lease).values(earlier))


def test_a_lease_that_ran_out_goes_to_the_next_and_one_that_is_kept_does_not(store):
    project, _ = project_with(store, [(0, 1)], lease_seconds=10_000.0)
    ann = person(store, project)
    bob = person(store, project, "Bob")
    (question,) = store.queue.claim(project.id, ann, 1).queries
    assert store.queue.claim(project.id, bob, 1).state == "waiting"
    pass_time(store, 6_000)
    assert store.queue.heartbeat(ann, [question.token]) > question.expires_at
    pass_time(store, 6_000)
    assert store.queue.claim(project.id, bob, 1).state == "waiting"
    pass_time(store, 6_000)
    assert store.queue.heartbeat(ann, [question.token]) is None
    assert store.queue.claim(project.id, bob, 1).state == "ready"
    assert store.queue.claim(project.id, ann, 1).state == "waiting"


def test_a_clock_set_back_frees_what_was_leased_in_the_future(store):
    project, _ = project_with(store, [(0, 1)])
    ann = person(store, project)
    bob = person(store, project, "Bob")
    store.queue.claim(project.id, ann, 1)
    with store.database.write() as session:
        later = {"renewed_at": Lease.renewed_at + 3600, "expires_at": Lease.expires_at + 3600}
        session.execute(update(Lease).values(later))
    assert store.queue.claim(project.id, bob, 1).state == "ready"


def test_who_waited_long_for_others_takes_no_lease_that_they_have_since(store, monkeypatch):
    project, _ = project_with(store, [(0, 1)])
    ann = person(store, project)
    bob = person(store, project, "Bob")
    store.queue.claim(project.id, ann, 1)
    monkeypatch.setattr("preferl.store.queue.clock", lambda session: clock(session) - 9)
    assert store.queue.claim(project.id, bob, 1).state == "waiting"


def test_undo_takes_back_one_after_the_other_and_asks_again_with_the_same_sides(store):
    project, asked = project_with(store)
    ann = person(store, project)
    seen = []
    for number in range(2):
        (question,) = store.queue.claim(project.id, ann, 1).queries
        store.queue.answer(ann, question.token, key(number), "left")
        seen.append(question)
    store.queue.claim(project.id, ann, 2)
    undone = store.queue.undo(ann, "undo-0001")
    assert undone[1:5] == seen[1][1:5]
    assert store.queue.undo(ann, "undo-0001") == undone, "the same key changes nothing"
    assert store.queue.claim(project.id, ann, 2).queries[0].query_id == undone.query_id
    assert store.queue.undo(ann, "undo-0002")[1:5] == seen[0][1:5]
    assert store.queue.undo(ann, "undo-0003") is None
    assert len(store.queries.votes(project.id).query) == 0
    assert store.progress(project.id, ann).mine == 0
    (question, *_) = store.queue.claim(project.id, ann, 2).queries
    assert question.query_id == asked[0]
    store.queue.answer(ann, question.token, key(9), "equal")
    votes = store.queries.votes(project.id)
    assert votes.preference.tolist() == [0.5]
    with store.database.read() as session:
        assert session.scalar(select(func.count(Answer.id))) == 5, "nothing is ever deleted"


def test_skipped_questions_come_back_last(store):
    project, asked = project_with(store)
    ann = person(store, project)
    (question,) = store.queue.claim(project.id, ann, 1).queries
    store.queue.answer(ann, question.token, key(0), "skip")
    order = []
    for number in (1, 2, 3):
        (question,) = store.queue.claim(project.id, ann, 1).queries
        order.append(question.query_id)
        store.queue.answer(ann, question.token, key(number), "right")
    assert order == [*asked[1:], asked[0]]
    assert store.progress(project.id, ann).mine == 3


def test_who_skips_all_is_asked_again_what_was_skipped_longest_ago(store):
    project, asked = project_with(store)
    ann = person(store, project)
    order = []
    for number in range(2 * len(asked)):
        (question,) = store.queue.claim(project.id, ann, 1).queries
        order.append(question.query_id)
        store.queue.answer(ann, question.token, key(number), "skip")
    assert order == [*asked, *asked]
    assert store.reports.revision(project.id) == 0, "nothing was said"


def test_priority_first_and_only_clips_that_can_be_shown(store):
    project, asked = project_with(store)
    urgent = store.queries.ask(project.id, SEGMENTS, np.array([[6, 7]]), priority=1.0)
    ann = person(store, project)
    claim = store.queue.claim(project.id, ann, 1)
    assert claim.queries[0].query_id == asked[0], "the urgent one has no video yet"
    bob = person(store, project, "Bob")
    clips = store.clips.without_video(project.id, 10)
    store.clips.video_ready(project.id, clips[:1])
    assert store.queue.claim(project.id, bob, 1).queries[0].query_id == asked[1]
    store.clips.video_ready(project.id, clips[1:])
    assert store.queue.claim(project.id, person(store, project, "Cy"), 1).queries[0][1] == urgent[0]


def answered_in_order(store, project, ann, count):
    """The queries that a person gets, one after the other."""
    got = []
    for _ in range(count):
        (question,) = store.queue.claim(project.id, ann, 1, undrawn=True).queries
        store.queue.answer(ann, question.token, key(question.query_id), "left")
        got.append(question.query_id)
    return got


def test_agents_take_turns_however_much_each_asks(store):
    project, _ = project_with(store, pairs=np.zeros((0, 2), int))
    pairs = np.array([(i, j) for i in range(8) for j in range(i + 1, 8)])
    asked = {}
    for agent, place in (("a", slice(0, 8)), ("b", slice(8, 11)), ("c", slice(11, 13))):
        asked[agent] = store.queries.ask(project.id, SEGMENTS, pairs[place], agent=agent)
    ann = person(store, project)
    whose = {number: agent for agent, numbers in asked.items() for number in numbers}
    got = answered_in_order(store, project, ann, 5)
    assert [whose[number] for number in got] == ["a", "b", "c", "a", "b"]
    late = store.queries.ask(project.id, SEGMENTS, pairs[13:16], agent="d")
    whose |= dict.fromkeys(late, "d")
    more = answered_in_order(store, project, ann, 8)
    assert [whose[number] for number in more] == ["c", "d", "a", "b", "d", "a", "d", "a"]
    assert len({*got, *more}) == 13


def test_an_agent_that_was_silent_has_no_credit(store):
    project, _ = project_with(store, pairs=np.zeros((0, 2), int))
    pairs = np.array([(i, j) for i in range(8) for j in range(i + 1, 8)])
    first = store.queries.ask(project.id, SEGMENTS, pairs[:6], agent="a")
    ann = person(store, project)
    assert answered_in_order(store, project, ann, 5) == first[:5]
    late = store.queries.ask(project.id, SEGMENTS, pairs[6:12], agent="b")
    more = store.queries.ask(project.id, SEGMENTS, pairs[12:14], agent="a")
    assert answered_in_order(store, project, ann, 5) == [
        late[0], first[5], late[1], late[2], more[0],
    ]  # fmt: skip


def test_queries_that_nobody_can_be_given_let_no_newcomer_pass(store):
    """Of two people that a query takes, one is not there; others go on by their turns."""
    project, _ = project_with(store, pairs=np.zeros((0, 2), int), quorum=2)
    pairs = np.array([(i, j) for i in range(8) for j in range(i + 1, 8)])
    one = store.queries.ask(project.id, SEGMENTS, pairs[:8], agent="a")
    ann = person(store, project)
    answered_in_order(store, project, ann, 4)
    other = store.queries.ask(project.id, SEGMENTS, pairs[8:12], agent="b")
    got = answered_in_order(store, project, ann, 6)
    assert got == [other[0], one[4], other[1], one[5], other[2], one[6]]


def test_programs_without_a_name_are_one_agent(store):
    project, _ = project_with(store, pairs=np.zeros((0, 2), int))
    pairs = np.array([(i, j) for i in range(8) for j in range(i + 1, 8)])
    named = store.queries.ask(project.id, SEGMENTS, pairs[:4], agent="a")
    unnamed = store.queries.ask(project.id, SEGMENTS, pairs[4:8])
    ann = person(store, project)
    got = answered_in_order(store, project, ann, 4)
    assert got == [named[0], unnamed[0], named[1], unnamed[1]]


def test_queries_without_an_agent_keep_their_order(store):
    project, asked = project_with(store)
    ann = person(store, project)
    assert answered_in_order(store, project, ann, 3) == asked


def test_repeats_come_later_to_the_same_person_half_of_them_swapped(store):
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j]
    project, asked = project_with(store, pairs, repeat_share=0.4)
    ann = person(store, project)
    bob = person(store, project, "Bob")
    number = 0
    while (claim := store.queue.claim(project.id, ann, 1)).state == "ready":
        (question,) = claim.queries
        ((first, _),) = store.queries.pairs(project.id, [question.query_id])
        kind = "left" if question.left == first else "right"
        store.queue.answer(ann, question.token, key(number), kind)
        number += 1
    votes = store.queries.votes(project.id)
    again = votes.repeat_of >= 0
    assert number == len(asked) + again.sum()
    assert 10 <= again.sum() <= 35
    assert len(set(votes.repeat_of[again])) == again.sum(), "each is repeated once"
    first = {int(query): place for place, query in enumerate(votes.query)}
    before = np.array([first[int(of)] for of in votes.repeat_of[again]])
    assert (np.flatnonzero(again) - before >= 10).all()
    turned = votes.swapped[again] != votes.swapped[before]
    assert 0.2 < turned.mean() < 0.8
    assert len(store.queries.votes(project.id, purposes=["ask"]).query) == len(asked)
    assert store.queue.claim(project.id, bob, 1).state == "waiting"


@pytest.mark.parametrize("undrawn", [False, True])
def test_what_has_no_videos_is_not_repeated_to_people(store, undrawn):
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    project, asked = project_with(store, pairs)
    ann = person(store, project)
    with store.database.write() as session:
        session.execute(update(Query).values(ready=False))
    for number in range(20):  # as imported answers have none
        (question,) = store.queue.claim(project.id, ann, 1, undrawn=True).queries
        store.queue.answer(ann, question.token, key(number), "left")
    with store.database.write() as session:
        session.execute(update(Query).where(Query.needed > 0).values(ready=True))
    store.projects.update(project.id, repeat_share=0.5)
    given = []
    while questions := store.queue.claim(project.id, ann, 1, undrawn=undrawn).queries:
        given.append(questions[0].query_id)
        store.queue.answer(ann, questions[0].token, key(100 + len(given)), "left")
    votes = store.queries.votes(project.id)
    repeated = votes.repeat_of[np.isin(votes.query, given) & (votes.repeat_of >= 0)]
    assert bool(set(repeated.tolist()) & set(asked[:20])) == undrawn


@pytest.mark.parametrize(("right", "state"), [(4, "ready"), (2, "unqualified")])
def test_qualification_by_known_pairs(store, right, state):
    project, asked = project_with(store, qualification=4, pass_share=0.75)
    known = store.queries.ask(
        project.id,
        SEGMENTS,
        np.array([[0, 2], [1, 3], [2, 4], [3, 5], [4, 6]]),
        purpose="known",
        known=np.ones(5),
    )
    store.clips.video_ready(project.id, store.clips.without_video(project.id, 100))
    ann = person(store, project)
    for number in range(4):
        (question, *_) = store.queue.claim(project.id, ann, 2).queries
        assert question.query_id == known[number]
        kind = "left" if (number < right) != question.swapped else "right"
        store.queue.answer(ann, question.token, key(number), kind)
    claim = store.queue.claim(project.id, ann, 2)
    assert claim.state == state
    assert [q.query_id for q in claim.queries] == (asked[:2] if state == "ready" else [])
    undone = store.queue.undo(ann, key(9))
    assert (undone is None) == (state == "unqualified"), "who failed cannot try again"
    admin = store.people.owner(project.id).annotator.id
    assert store.queue.claim(project.id, admin, 1).queries[0].query_id in asked


def test_budget_pause_and_the_end(store):
    project, _asked = project_with(store, budget=2)
    ann = person(store, project)
    store.projects.update(project.id, paused=True)
    assert store.queue.claim(project.id, ann, 1).state == "paused"
    store.projects.update(project.id, paused=False)
    for number in range(2):
        (question,) = store.queue.claim(project.id, ann, 1).queries
        store.queue.answer(ann, question.token, key(number), "left")
    assert store.queue.claim(project.id, ann, 1).state == "done"
    progress = store.progress(project.id, ann)
    assert (progress.answered, progress.wanted, progress.mine) == (2, 2, 2)


def test_who_may_not_answer(store):
    project, _ = project_with(store)
    looker = store.people.invite(project.id, "Lou", "spectator").annotator.id
    gone = person(store, project, "Gus")
    store.people.update(gone, disabled=True)
    other = store.projects.create("other")
    stranger = person(store, other, "Sue")
    for who in (looker, gone, stranger, 999):
        with pytest.raises(FeedbackError, match="may answer here"):
            store.queue.claim(project.id, who, 1)


def test_stale_questions_are_not_asked_and_answered_ones_stay(store):
    project, asked = project_with(store)
    old = store.queries.ask(
        project.id, SEGMENTS, np.array([[0, 3], [1, 4]]), model_version=1, priority=5.0
    )
    ann = person(store, project)
    store.clips.video_ready(project.id, store.clips.without_video(project.id, 100))
    (question,) = store.queue.claim(project.id, ann, 1).queries
    store.queue.answer(ann, question.token, key(0), "left")
    assert store.queries.cancel(project.id, before_version=2) == 1
    (question,) = store.queue.claim(project.id, ann, 1).queries
    assert question.query_id == asked[0]
    assert old[0] in store.queries.votes(project.id).query


def test_races_for_leases_end_with_one_winner_each(open_store):
    store = open_store()
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j][:40]
    project, asked = project_with(store, pairs)
    people = [person(store, project, f"p{number}") for number in range(8)]
    stores = [open_store() for _ in range(2)]
    start = threading.Barrier(len(people))
    got = []
    failed = []

    def work(number: int) -> None:
        try:
            start.wait()
            for _ in range(5):
                claim = stores[number % 2].queue.claim(project.id, people[number], 8)
                got.append((people[number], [q.query_id for q in claim.queries]))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(people))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    held = {(who, query) for who, queries in got for query in queries}
    assert len({query for _, query in held}) == len(held), "a query went to two people"
    assert {query for _, query in held} == set(asked)
    with store.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Lease)) == len(asked)
        assert session.scalar(select(func.count(Query.id))) == len(asked)


def test_programs_may_answer_what_is_not_drawn_yet(store):
    project = store.projects.create("dots", repeat_share=0.0, known_share=0.0)
    store.queries.ask(project.id, SEGMENTS, np.array([(0, 1)]))
    ann = person(store, project)
    script = person(store, project, "script")
    assert store.queue.claim(project.id, ann).state == "waiting"
    (question,) = store.queue.claim(project.id, script, undrawn=True).queries
    assert store.queue.answer(script, question.token, key(1), "left").new
