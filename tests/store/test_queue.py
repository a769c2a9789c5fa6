from functools import partial

import numpy as np
import pytest
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from helpers.numbered_videos import random_segments
from helpers.queue_steps import answer_next, at_once, invite, on_sqlite, show
from preferl.errors import FeedbackError
from preferl.store.database import clock
from preferl.store.schema import Answer, Clip, Lease, Query

SEGMENTS = random_segments(32, 1)
EVERY_PAIR = [(i, j) for i in range(8) for j in range(i + 1, 8)]
BOTH_ORDERS = [(i, j) for i in range(8) for j in range(8) if i != j]
KEY = "key-00000001"


class Dots:
    """A project of a store in which Ann answers queries about pairs of clips."""

    def __init__(self, store, pairs=((0, 1), (2, 3), (4, 5)), **settings):
        self.store = store
        self.queue = store.queue
        settings = {"repeat_share": 0.0, "known_share": 0.0} | settings
        self.id = store.projects.create("dots", **settings).id
        self.asked = self.ask(pairs)
        show(store, self.id)
        self.ann = self.person("Ann")

    def ask(self, pairs, **more):
        pairs = np.array(pairs, int).reshape(-1, 2)
        return self.store.queries.ask(self.id, SEGMENTS, pairs, **more)

    def person(self, name):
        return invite(self.store, self.id, name)

    def claim(self, count=1, who=None, **more):
        return self.queue.claim(self.id, who or self.ann, count, **more)

    def held(self, count=1, who=None):
        return [query.query_id for query in self.claim(count, who).queries]

    def answer(self, kind="left", who=None, **more):
        return answer_next(self.store, self.id, who or self.ann, kind, **more)

    def answer_first(self, who=None):
        """Answer for the first clip, whatever the sides."""
        (query,) = self.claim(1, who).queries
        ((first, _),) = self.store.queries.pairs(self.id, [query.query_id])
        return self.answer("left" if query.left == first else "right", who)

    def answer_in_order(self, count):
        """The queries that Ann gets, one after the other."""
        return [self.answer(undrawn=True).query_id for _ in range(count)]

    @property
    def votes(self):
        return self.store.queries.votes(self.id)

    @property
    def revision(self):
        return self.store.reports.revision(self.id)

    def change(self, row, **values):
        with self.store.database.write() as session:
            session.execute(update(row).values(values))

    def pass_time(self, seconds):
        """As if leases had been granted, renewed and about to end so much earlier."""
        earlier = {name: getattr(Lease, name) - seconds for name in ("renewed_at", "expires_at")}
        self.change(Lease, **earlier)


@pytest.fixture
def dots(store):
    return Dots(store)


def test_what_is_looked_at_stays_first_when_later_queries_are_more_urgent(dots):
    urgent = dots.ask([6, 7], priority=1.0)
    show(dots.store, dots.id)
    first = dots.claim(3).queries
    assert [q.query_id for q in first] == [*urgent, *dots.asked[:2]]
    assert [q[:5] for q in dots.claim(3).queries] == [q[:5] for q in first], "the same sides"


@on_sqlite
def test_preference_is_that_of_the_first_clip_whatever_the_sides(store):
    dots = Dots(store, EVERY_PAIR)
    sides = set()
    for number in dots.asked:
        query = dots.answer_first()
        (pair,) = store.queries.pairs(dots.id, [number])
        assert (query.left, query.right) == (pair[::-1] if query.swapped else pair)
        sides.add(query.swapped)
    assert sides == {True, False}
    np.testing.assert_array_equal(dots.votes.preference, np.ones(len(dots.asked)))
    np.testing.assert_array_equal(dots.votes.query, dots.asked)
    assert dots.claim().state == "waiting"


def test_the_same_key_twice_is_one_answer(dots):
    (query,) = dots.claim().queries
    one = dots.queue.answer(dots.ann, query.token, KEY, "left")
    two = dots.queue.answer(dots.ann, query.token, KEY, "right")
    assert (one.new, two.new, one.answer_id) == (True, False, two.answer_id)
    with pytest.raises(FeedbackError, match="answered already"):
        dots.queue.answer(dots.ann, query.token, "key-00000002", "left")
    assert dots.revision == 1


@on_sqlite
def test_answers_that_mean_nothing_are_refused(dots):
    for kind, more in (
        ("retract", {}),
        ("up", {}),
        ("left", {"strength": "very"}),
        ("left", {"response_ms": -1.0}),
    ):
        with pytest.raises(FeedbackError):
            dots.answer(kind, **more)
    assert dots.revision == 0


def test_a_quorum_of_different_people(store):
    dots = Dots(store, [(0, 1)], quorum=2)
    bob = dots.person("Bob")
    cy = dots.person("Cy")
    dots.claim()
    (kept,) = dots.claim(who=bob).queries
    assert dots.claim(who=cy).state == "waiting"
    dots.answer("equal")
    assert dots.claim(who=cy).state == dots.claim().state == "waiting"
    dots.queue.release(bob, [kept.token])
    dots.answer(who=cy)
    assert store.progress(dots.id).open == 0
    late = dots.queue.answer(bob, kept.token, KEY, "cannot_tell")
    assert late.new, "work that is done is not thrown away"
    assert len(dots.votes.query) == 3


def test_a_lease_that_ran_out_goes_to_the_next_and_one_that_is_kept_does_not(store):
    dots = Dots(store, [(0, 1)], lease_seconds=10_000.0)
    bob = dots.person("Bob")
    (query,) = dots.claim().queries
    assert dots.claim(who=bob).state == "waiting"
    dots.pass_time(6_000)
    assert dots.queue.heartbeat(dots.ann, [query.token]) > query.expires_at
    dots.pass_time(6_000)
    assert dots.claim(who=bob).state == "waiting"
    dots.pass_time(6_000)
    assert dots.queue.heartbeat(dots.ann, [query.token]) is None
    assert dots.claim(who=bob).state == "ready"
    assert dots.claim().state == "waiting"


def test_a_clock_set_back_frees_what_was_leased_in_the_future(store):
    dots = Dots(store, [(0, 1)])
    dots.claim()
    dots.pass_time(-3600)
    assert dots.claim(who=dots.person("Bob")).state == "ready"


def test_who_waited_long_for_others_takes_no_lease_that_they_have_since(store, monkeypatch):
    dots = Dots(store, [(0, 1)])
    bob = dots.person("Bob")
    dots.claim()
    monkeypatch.setattr("preferl.store.queue.clock", lambda session: clock(session) - 9)
    assert dots.claim(who=bob).state == "waiting"


def test_undo_takes_back_one_after_the_other_and_asks_again_with_the_same_sides(dots):
    seen = [dots.answer() for _ in range(2)]
    dots.claim(2)
    undone = dots.queue.undo(dots.ann, "undo-0001")
    assert undone[1:5] == seen[1][1:5]
    assert dots.queue.undo(dots.ann, "undo-0001") == undone, "the same key changes nothing"
    assert dots.held(2)[0] == undone.query_id
    assert dots.queue.undo(dots.ann, "undo-0002")[1:5] == seen[0][1:5]
    assert dots.queue.undo(dots.ann, "undo-0003") is None
    assert len(dots.votes.query) == 0
    assert dots.store.progress(dots.id, dots.ann).mine == 0
    (query, *_) = dots.claim(2).queries
    assert query.query_id == dots.asked[0]
    dots.queue.answer(dots.ann, query.token, KEY, "equal")
    assert dots.votes.preference.tolist() == [0.5]
    count = dots.store.database.first(select(func.count(Answer.id)))
    assert count == 5, "nothing is ever deleted"


def test_skipped_queries_come_back_last(dots):
    dots.answer("skip")
    order = [dots.answer("right").query_id for _ in range(3)]
    assert order == [*dots.asked[1:], dots.asked[0]]
    assert dots.store.progress(dots.id, dots.ann).mine == 3


def test_who_skips_all_is_asked_again_what_was_skipped_longest_ago(dots):
    order = [dots.answer("skip").query_id for _ in range(6)]
    assert order == [*dots.asked, *dots.asked]
    assert dots.revision == 0, "nothing was said"


def test_priority_first_and_only_clips_that_can_be_shown(dots):
    urgent = dots.ask([6, 7], priority=1.0)
    assert dots.held() == dots.asked[:1], "the urgent one has no video yet"
    clips = dots.store.clips.without_video(dots.id, 10)
    dots.store.clips.video_ready(dots.id, clips[:1])
    assert dots.held(who=dots.person("Bob")) == dots.asked[1:2]
    dots.store.clips.video_ready(dots.id, clips[1:])
    assert dots.held(who=dots.person("Cy")) == urgent


def test_agents_take_turns_however_much_each_asks(store):
    dots = Dots(store, [])
    agent_of = {}
    for agent, place in (("a", slice(0, 8)), ("b", slice(8, 11)), ("c", slice(11, 13))):
        agent_of |= dict.fromkeys(dots.ask(EVERY_PAIR[place], agent=agent), agent)
    first = dots.answer_in_order(5)
    assert [agent_of[number] for number in first] == ["a", "b", "c", "a", "b"]
    agent_of |= dict.fromkeys(dots.ask(EVERY_PAIR[13:16], agent="d"), "d")
    more = dots.answer_in_order(8)
    assert [agent_of[number] for number in more] == ["c", "d", "a", "b", "d", "a", "d", "a"]
    assert len({*first, *more}) == 13


def test_an_agent_that_was_silent_has_no_credit(store):
    dots = Dots(store, [])
    first = dots.ask(EVERY_PAIR[:6], agent="a")
    assert dots.answer_in_order(5) == first[:5]
    late = dots.ask(EVERY_PAIR[6:12], agent="b")
    more = dots.ask(EVERY_PAIR[12:14], agent="a")
    assert dots.answer_in_order(5) == [late[0], first[5], late[1], late[2], more[0]]


def test_queries_that_nobody_can_be_given_let_no_newcomer_pass(store):
    """Of two people that a query takes, one is not there; others go on by their turns."""
    dots = Dots(store, [], quorum=2)
    one = dots.ask(EVERY_PAIR[:8], agent="a")
    dots.answer_in_order(4)
    other = dots.ask(EVERY_PAIR[8:12], agent="b")
    assert dots.answer_in_order(6) == [other[0], one[4], other[1], one[5], other[2], one[6]]


def test_programs_without_a_name_are_one_agent(store):
    dots = Dots(store, [])
    named = dots.ask(EVERY_PAIR[:4], agent="a")
    unnamed = dots.ask(EVERY_PAIR[4:8])
    assert dots.answer_in_order(4) == [named[0], unnamed[0], named[1], unnamed[1]]


@on_sqlite
def test_repeats_come_later_to_the_same_person_half_of_them_swapped(store):
    dots = Dots(store, BOTH_ORDERS, repeat_share=0.4)
    count = 0
    while dots.claim().queries:
        dots.answer_first()
        count += 1
    votes = dots.votes
    again = votes.repeat_of >= 0
    assert count == len(dots.asked) + again.sum()
    assert 10 <= again.sum() <= 35
    assert len(set(votes.repeat_of[again])) == again.sum(), "each is repeated once"
    first = {int(query): place for place, query in enumerate(votes.query)}
    before = np.array([first[int(of)] for of in votes.repeat_of[again]])
    assert (np.flatnonzero(again) - before >= 10).all()
    turned = votes.swapped[again] != votes.swapped[before]
    assert 0.2 < turned.mean() < 0.8
    assert len(store.queries.votes(dots.id, purposes=["ask"]).query) == len(dots.asked)
    assert dots.claim(who=dots.person("Bob")).state == "waiting"


@on_sqlite
@pytest.mark.parametrize("undrawn", [False, True])
def test_what_has_no_videos_is_not_repeated_to_people(store, undrawn):
    dots = Dots(store, BOTH_ORDERS[:30])
    dots.change(Query, ready=False)
    dots.answer_in_order(20)  # as imported answers have none
    with store.database.write() as session:
        session.execute(update(Query).where(Query.needed > 0).values(ready=True))
    store.projects.update(dots.id, repeat_share=0.5)
    given = []
    while dots.claim(undrawn=undrawn).queries:
        given.append(dots.answer(undrawn=undrawn).query_id)
    votes = dots.votes
    repeated = votes.repeat_of[np.isin(votes.query, given) & (votes.repeat_of >= 0)]
    assert bool(set(repeated.tolist()) & set(dots.asked[:20])) == undrawn


@pytest.mark.parametrize(("right", "state"), [(4, "ready"), (2, "unqualified")])
def test_qualification_by_known_pairs(store, right, state):
    dots = Dots(store, qualification=4, pass_share=0.75)
    pairs = [(row, row + 2) for row in range(5)]
    known = dots.ask(pairs, purpose="known", known=np.ones(5))
    show(store, dots.id)
    for number in range(4):
        (query, *_) = dots.claim(2).queries
        assert query.query_id == known[number]
        kind = "left" if (number < right) != query.swapped else "right"
        dots.queue.answer(dots.ann, query.token, f"known-{number:04d}", kind)
    claim = dots.claim(2)
    assert claim.state == state
    assert [q.query_id for q in claim.queries] == (dots.asked[:2] if state == "ready" else [])
    undone = dots.queue.undo(dots.ann, KEY)
    assert (undone is None) == (state == "unqualified"), "who failed cannot try again"
    admin = store.people.owner(dots.id).annotator.id
    assert dots.held(who=admin)[0] in dots.asked


@on_sqlite
def test_budget_pause_and_the_end(store):
    dots = Dots(store, budget=2)
    store.projects.update(dots.id, paused=True)
    assert dots.claim().state == "paused"
    store.projects.update(dots.id, paused=False)
    dots.answer_in_order(2)
    assert dots.claim().state == "done"
    progress = store.progress(dots.id, dots.ann)
    assert (progress.answered, progress.wanted, progress.mine) == (2, 2, 2)


@on_sqlite
def test_who_may_not_answer(dots):
    looker = invite(dots.store, dots.id, "Lou", "spectator")
    gone = dots.person("Gus")
    dots.store.people.update(gone, disabled=True)
    stranger = invite(dots.store, dots.store.projects.create("other").id, "Sue")
    for who in (looker, gone, stranger, 999):
        with pytest.raises(FeedbackError, match="may answer here"):
            dots.claim(who=who)


def test_stale_queries_are_not_asked_and_answered_ones_stay(dots):
    old = dots.ask([(0, 3), (1, 4)], model_version=1, priority=5.0)
    show(dots.store, dots.id)
    dots.answer()
    assert dots.store.queries.cancel(dots.id, before_version=2) == 1
    assert dots.held() == dots.asked[:1]
    assert old[0] in dots.votes.query


def test_races_for_leases_end_with_one_winner_each(stores):
    dots = Dots(stores[0], BOTH_ORDERS[:40])
    people = [dots.person(f"p{number}") for number in range(8)]

    def work(store, person):
        claims = [store.queue.claim(dots.id, person, 8) for _ in range(5)]
        return {(person, query.query_id) for claim in claims for query in claim.queries}

    works = (partial(work, stores[n % 2], person) for n, person in enumerate(people))
    held = set().union(*at_once(*works))
    assert len({query for _, query in held}) == len(held), "a query went to two people"
    assert {query for _, query in held} == set(dots.asked)
    assert dots.store.database.first(select(func.count()).select_from(Lease)) == len(dots.asked)


AT_ONCE = 6
ROUNDS = 8


@pytest.fixture
def stores(open_store):
    """The same store, as two programs open it."""
    return [open_store() for _ in range(2)]


def disjoint(count):
    """So many pairs of which no two share a clip."""
    return np.arange(2 * count).reshape(count, 2)


def by_many(stores, work, *arguments, count=AT_ONCE):
    """What a work on a store and a number comes to, done at once by several programs."""
    return at_once(*(partial(work, stores[n % 2], n, *arguments) for n in range(count)))


def answers(store):
    return store.database.all(select(Answer).order_by(Answer.id))


def needed(store):
    return store.database.all(select(Query.needed).order_by(Query.id))


def test_one_key_is_one_answer_for_programs_at_once(stores):
    dots = Dots(stores[0], disjoint(ROUNDS))

    def answer(store, _, token, key):
        return store.queue.answer(dots.ann, token, key, "left")

    for number in range(ROUNDS):
        question = dots.claim().queries[0]
        results = by_many(stores, answer, question.token, f"key-{number:04}")
        assert len({result.answer_id for result in results}) == 1, results
        assert sorted(result.new for result in results) == [False] * (AT_ONCE - 1) + [True]
    assert len(answers(stores[0])) == ROUNDS
    assert needed(stores[0]) == [0] * ROUNDS


def test_one_question_is_answered_once_whatever_the_keys(stores):
    dots = Dots(stores[0], disjoint(ROUNDS), quorum=2)

    def answer(store, n, token, key):
        return store.queue.answer(dots.ann, token, f"{key}-{n}", ("left", "equal")[n % 2])

    for number in range(ROUNDS):
        question = dots.claim().queries[0]
        results = by_many(stores, answer, question.token, f"key-{number}-of-ann")
        refused = [result for result in results if isinstance(result, FeedbackError)]
        assert len(refused) == AT_ONCE - 1, results
    assert len(answers(stores[0])) == ROUNDS
    assert needed(stores[0]) == [1] * ROUNDS
    assert stores[0].database.all(select(Lease)) == []


def test_one_undo_is_one_undo(stores):
    dots = Dots(stores[0], disjoint(2))
    for _ in range(2):
        question = dots.answer()
    results = by_many(stores, lambda store, _: store.queue.undo(dots.ann, "the-undo-key"))
    assert {result.query_id for result in results} == {question.query_id}, results
    assert [answer.kind for answer in answers(stores[0])] == ["left", "left", "retract"]


def test_undo_while_answering_ends_with_all_in_order(stores):
    dots = Dots(stores[0], disjoint(2))
    for number in range(ROUNDS):
        question = dots.claim().queries[0]
        results = at_once(
            partial(dots.queue.answer, dots.ann, question.token, f"the-key-{number}", "left"),
            partial(stores[1].queue.undo, dots.ann, f"the-undo-{number}"),
            partial(dots.queue.heartbeat, dots.ann, [question.token]),
            partial(stores[1].queue.claim, dots.id, dots.ann, 2),
        )
        assert not [result for result in results if isinstance(result, Exception)], results
        dots.queue.undo(dots.ann, f"the-last-undo-{number}")
    assert needed(stores[0]) == [1, 1]


@pytest.mark.parametrize("kind", [None, "equal"])
def test_one_change_of_an_answer_is_one_change(stores, kind):
    dots = Dots(stores[0], disjoint(ROUNDS))
    owner = stores[0].people.owner(dots.id).annotator.id

    def change(store, _, made, **about):
        return getattr(store.answers, "correct" if kind else "withdraw")(dots.id, made, **about)

    for number in range(ROUNDS):
        question = dots.claim().queries[0]
        made = dots.queue.answer(dots.ann, question.token, f"key-{number:04}", "left").answer_id
        about = {"by": owner, "key": f"change-{number}"} | ({"kind": kind} if kind else {})
        dots.queue.release(dots.ann, [question.token])
        results = by_many(stores, partial(change, **about), made)
        assert len(set(results)) == 1, results
        assert isinstance(results[0], int), results
    assert len(stores[0].reports.latest_events(dots.id)) == ROUNDS


def test_corrections_by_several_at_once_leave_one(stores):
    dots = Dots(stores[0], disjoint(1), quorum=3)
    people = [stores[0].people.invite(dots.id, f"admin {n}", "admin") for n in range(3)]
    admins = [person.annotator.id for person in people]
    question = dots.claim().queries[0]
    made = dots.queue.answer(dots.ann, question.token, "the-key-of-ann", "left").answer_id

    def correct(store, n, made, key):
        about = {"by": admins[n], "key": f"{key}-by-{n}", "kind": "equal"}
        return store.answers.correct(dots.id, made, **about)

    for number in range(ROUNDS):
        results = by_many(stores, correct, made, f"change-{number}", count=len(admins))
        refused = [result for result in results if not isinstance(result, int)]
        assert all(isinstance(result, FeedbackError) for result in refused), results
        assert dots.votes.annotator.size == 1
        rows = stores[0].answers.history(dots.id, question.query_id)
        made = max(row.answer.id for row in rows if row.answer.annotator_id == dots.ann)


@pytest.mark.parametrize("kind", ["left", "skip"])
def test_two_people_cannot_share_a_key(open_store, kind):
    store = open_store()
    dots = Dots(store, disjoint(2))
    leased = []
    for name in ("ann", "ben"):
        person = dots.person(name)
        question = dots.claim(who=person).queries[0]
        leased.append((person, question.token))
    results = at_once(
        *(partial(store.queue.answer, who, token, "the-same-key", kind) for who, token in leased)
    )
    assert sum(isinstance(result, FeedbackError) for result in results) == 1
    assert len(answers(store)) == 1


def test_a_pair_can_be_shown_though_its_videos_end_at_once(stores):
    dots = Dots(stores[0], disjoint(2 * ROUNDS))
    with stores[0].database.write() as session:
        session.execute(update(Clip).values(video="none"))
        session.execute(update(Query).values(ready=False))
    for _, *pair in stores[0].queries.query_clips(dots.id):
        ends = [
            partial(store.clips.video_ready, dots.id, [clip])
            for store, clip in zip(stores, pair, strict=True)
        ]
        assert at_once(*ends) == [None, None]
    assert all(stores[0].database.all(select(Query.ready)))


def test_two_people_do_not_share_a_question_that_ran_out(stores):
    dots = Dots(stores[0], disjoint(ROUNDS))
    people = [dots.person(name) for name in ("Ann", "Bob")]

    def claim(store, n):
        return store.queue.claim(dots.id, people[n], 8)

    for _ in range(ROUNDS):
        claim(stores[0], 0)
        with stores[0].database.write() as session:
            session.execute(update(Lease).values(expires_at=0.0))
        claims = by_many(stores, claim, count=2)
        held = [question.query_id for claim in claims for question in claim.queries]
        assert len(set(held)) == len(held)
        with stores[0].database.write() as session:
            session.execute(delete(Lease))


def test_one_name_is_one_person_though_invited_at_once(stores):
    dots = Dots(stores[0], disjoint(1))

    def invited(store, _, name):
        return store.people.invite(dots.id, name)

    for number in range(ROUNDS):
        one, other = by_many(stores, invited, f"Ann {number}", count=2)
        assert one.annotator.id == other.annotator.id


def test_votes_have_names_though_answers_are_imported_meanwhile(open_store, monkeypatch):
    store = open_store()
    other = open_store()
    dots = Dots(store, disjoint(2))
    dots.answer()
    rows = Session.execute

    def with_another(session, statement, *args, **more):
        monkeypatch.undo()  # once
        found = rows(session, statement, *args, **more)
        bob = invite(other, dots.id, "Bob")
        answer_next(other, dots.id, bob)
        return found

    monkeypatch.setattr(Session, "execute", with_another)
    votes = dots.votes
    assert [votes.names[row] for row in votes.annotator] == ["Ann"]
    assert len(dots.votes.query) == 2
