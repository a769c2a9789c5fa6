import json
from math import inf
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from sqlalchemy import text

from helpers.clips import at
from helpers.queue_steps import invite, on_sqlite, show
from preferl.data.on_disk import stays_on_disk
from preferl.data.segment_sampling import sample_segments
from preferl.data.segments import join_segments
from preferl.errors import ConfigError, DataError, FeedbackError, StorageError
from preferl.store import Store, StoredFeedback, clip_ids, distinct_clips
from preferl.testing import make_episodes
from preferl.testing.feedback_contracts import check_feedback, example_segments

SEGMENTS = example_segments(0)
SPACE = spaces.Box(-1, 1, (2,))


@pytest.fixture
def project(store):
    return store.projects.create("dots", repeat_share=0.0).id


@pytest.fixture
def feedback(store, project):
    return StoredFeedback(store)


def answer_everything(store, kind=lambda number: "left"):
    """Somebody who answers all there is."""
    project = store.projects.only().id
    show(store, project)
    ann = store.people.owner(project).annotator.id
    number = store.reports.revision(project)
    while queries := store.queue.claim(project, ann, 1).queries:
        store.queue.answer(ann, queries[0].token, f"key-{number:06d}", kind(number))
        number += 1


def ask(feedback, *pairs, segments=SEGMENTS):
    feedback.ask(segments, np.array(pairs))


@pytest.fixture
def waits(feedback):
    """What somebody hears who then answers everything."""
    heard = []

    def person(missing):
        heard.append(missing)
        answer_everything(feedback.store)

    feedback.patience = inf
    feedback.on_wait = person
    return heard


def test_it_keeps_the_contract_of_feedback(store, feedback):
    check_feedback(feedback, answer=lambda: answer_everything(store))


def test_it_keeps_the_contract_with_people_who_cannot_tell(store, feedback):
    def kind(number):
        return "cannot_tell" if number % 3 == 0 else "right"

    check_feedback(feedback, answer=lambda: answer_everything(store, kind), declines=True)


def held(store, project):
    ann = store.people.owner(project).annotator.id
    return [query.query_id for query in store.queue.claim(project, ann, 8, undrawn=True).queries]


def test_what_a_newer_reward_chose_comes_first_and_older_queries_after_it(store, project, feedback):
    for version, pairs in ((None, [[0, 1], [2, 3]]), (1, [[4, 5]]), (2, [[6, 7]])):
        feedback.model_version = version
        ask(feedback, *pairs)
    store.queries.ask(project, SEGMENTS, np.array([[1, 2]]), priority=0.5)
    assert held(store, project) == [4, 3, 5, 1, 2]


def test_agents_of_one_project_count_their_own_queries(store, project, feedback):
    one, other = (StoredFeedback(store, agent=name) for name in ("one", "other"))
    for version in (1, 2):  # newer rewards put nobody before the others
        one.model_version = version
        ask(one, [0 + 2 * version, 1 + 2 * version], [2 + 2 * version, 3 + 2 * version])
    ask(other, [0, 2])
    assert (one.pending, other.pending, feedback.pending) == (4, 1, 5)
    assert ([number for number, *_ in other.query_clips()], other.newest_query) == ([5], 5)
    assert held(store, project) == [1, 5, 2, 3, 4]
    other.ask_rest(SEGMENTS, np.array([[0, 2], [1, 3]]), since=0)
    assert other.pending == 2, "what others asked stands in for nothing"
    with pytest.raises(ConfigError, match="agent: expected 1 to 80 letters"):
        StoredFeedback(store, agent=" a\n")


def test_answers_of_another_program_are_joined_to_their_clips(open_store, feedback):
    pairs = [2, 5], [5, 7], [2, 5]
    ask(feedback, *pairs)
    with pytest.raises(FeedbackError, match="3 wait for people"):
        feedback.comparisons()
    answer_everything(open_store())
    comparisons = feedback.comparisons()
    assert comparisons is feedback.comparisons(), "read again only after new answers"
    shown = comparisons.segments[comparisons.pairs]
    meant = SEGMENTS[np.array(pairs)]
    np.testing.assert_array_equal(shown.mask, meant.mask)
    for name in ("observations", "actions"):
        np.testing.assert_array_equal(
            getattr(shown, name)[meant.mask], getattr(meant, name)[meant.mask]
        )
    assert len(comparisons.segments) == 3, "each clip once"


def test_who_gave_each_answer_is_handed_through(store, project, feedback):
    store.projects.update(project, quorum=2)
    each = StoredFeedback(store, combine="each")
    ask(feedback, [0, 1], [2, 3])
    show(store, project)
    for name, kinds in {"Ann": ("left", "equal"), "Bo": ("right", "cannot_tell")}.items():
        person = invite(store, project, name)
        for query in store.queue.claim(project, person, 2).queries:
            key = f"{name}'s to {query.query_id}"
            store.queue.answer(person, query.token, key, kinds[query.query_id - 1])
    queries, comparisons, names = each.answers()
    given = [names[row] for row in comparisons.annotator]
    assert sorted(zip(queries.tolist(), given, strict=True)) == [(1, "Ann"), (1, "Bo"), (2, "Ann")]
    assert queries.tolist() == [1, 1, 2], "answers to one query lie together"
    assert comparisons.weight.tolist() == [1, 1, 1]
    assert sorted(comparisons.preference[:2]) in ([0, 1], [0, 0], [1, 1])
    assert comparisons.preference[2] == 0.5
    assert len(comparisons.segments) == 4, "each clip once"
    joined = feedback.answers()
    assert joined.names == ()
    assert joined.comparisons.annotator is None
    assert joined.comparisons.preference[0] == comparisons.preference[:2].mean()


@on_sqlite
def test_no_file_of_clips_stays_open(store, feedback, rng):
    files = Path("/proc/self/fd")
    if not files.is_dir():
        pytest.skip("only /proc tells which files are open")
    picture = spaces.Box(0, 255, (16, 16, 3), np.uint8)
    observed = spaces.Dict({"camera": picture, "arm": SPACE})
    for _ in range(5):
        episodes = make_episodes(rng, [30], observed, SPACE)
        ask(feedback, [0, 1], segments=sample_segments(episodes, 2, 5, rng))
    answer_everything(store)
    before = sum(1 for _ in files.iterdir())
    comparisons = feedback.comparisons()
    assert comparisons.segments[comparisons.pairs].observations["camera"].any()
    assert sum(1 for _ in files.iterdir()) == before


@on_sqlite
def test_windows_with_the_same_steps_are_not_compared(store, project, feedback):
    segments = at(0, 1, 0, 1, 2, 3, length=2)
    assert distinct_clips(segments).start.tolist() == [0, 4]
    pairs = np.array([[0, 1], [1, 2]])
    with pytest.raises(FeedbackError, match="with itself"):
        store.queries.ask(project, segments, pairs)
    with pytest.raises(FeedbackError, match="with itself"):
        store.queries.ask_stored(project, [("a" * 32, "a" * 32)])
    ids = clip_ids(segments)
    assert store.clips.get(project, ids[2]) is None, "nothing was stored"
    feedback.ask(segments, pairs)
    feedback.ask(segments, pairs[:1])
    assert [pair for _, *pair in store.queries.query_clips(project)] == [ids[1:]]
    with pytest.raises(FeedbackError, match="with itself"):
        feedback.ask(segments, np.array([[2, 2]]))


@pytest.fixture
def no_time_passes(monkeypatch):
    """Only sleep takes time, so that every wait looks at least once."""
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
    )
    monkeypatch.setattr("preferl.store.feedback.time", clock)


@on_sqlite
def test_asking_waits_for_people_on_request(feedback, waits, no_time_passes):
    ask(feedback, [0, 1], [1, 2])
    assert len(feedback.comparisons()) == 2
    assert waits == [2]
    feedback.patience = 0.2
    feedback.on_wait = waits.append
    ends = []
    feedback.on_wait_end = ends.append
    ask(feedback, [3, 4])
    assert feedback.pending == 1
    assert ends == [1]
    assert set(waits[1:]) == {1}


@on_sqlite
def test_some_queries_may_stay_open_but_the_last(store, project, feedback, waits):
    store.projects.update(project, budget=4)
    feedback.open_queries = 2
    ask(feedback, [0, 1], [2, 3])
    assert not waits, "nobody was waited for"
    assert feedback.wait(0.0, open_at_most=2) == 2
    ask(feedback, [4, 5], [6, 7])
    assert waits == [4]
    assert feedback.pending == 0
    assert len(feedback.comparisons()) == 4, "no answer comes after the last fit"


@on_sqlite
def test_nobody_is_waited_for_once_the_budget_is_spent(store, project, feedback, waits):
    store.projects.update(project, budget=2)
    ask(feedback, [0, 1], [2, 3], [4, 5])
    assert waits == [3], "nobody is asked about the third"
    assert feedback.pending == 1


@on_sqlite
def test_only_what_people_are_asked_counts_towards_the_budget(store, project, feedback, waits):
    store.projects.update(project, budget=4)
    old = store.queries.ask(project, SEGMENTS, np.array([[0, 2], [1, 3]]), model_version=1)
    assert store.queries.cancel(project, before_version=2) == len(old)
    feedback.open_queries = 2
    ask(feedback, [0, 1], [2, 3])
    assert not waits, "more are to come, so that nobody is waited for"
    assert feedback.pending == 2


@on_sqlite
def test_a_resumed_query_waits_once(feedback, monkeypatch):
    feedback.patience = 60.0
    waits = []
    monkeypatch.setattr(StoredFeedback, "wait", lambda self, seconds, **_: waits.append(seconds))
    pairs = np.array([[0, 1], [2, 3]])
    feedback.ask(SEGMENTS, pairs[:1])
    feedback.ask_rest(SEGMENTS, pairs, since=0)
    feedback.ask_rest(SEGMENTS, pairs, since=0)
    assert waits == [60.0] * 3
    assert feedback.pending == 2


@on_sqlite
def test_clips_are_stored_once_and_named_by_what_they_hold(store, project):
    one = store.clips.put(project, SEGMENTS)
    others = join_segments([example_segments(9), SEGMENTS])
    moved = others.select(np.arange(len(others) - len(SEGMENTS), len(others)))
    assert store.clips.put(project, moved) == one == clip_ids(SEGMENTS)
    assert len(list((store.files / "clips" / str(project)).iterdir())) == 1
    back = store.clips.segments(project, [one[3], one[0], one[3]])[np.arange(3)]
    meant = SEGMENTS[np.array([3, 0, 3])]
    np.testing.assert_array_equal(back.mask, meant.mask)
    np.testing.assert_array_equal(back.observations[meant.mask], meant.observations[meant.mask])
    with pytest.raises(DataError, match="clip of this project"):
        store.clips.segments(project, ["0" * 32])
    with pytest.raises(DataError, match="digest"):
        store.clips.video_path(project, "../../etc/passwd")


@on_sqlite
def test_clips_are_there_when_the_query_is_not_yet(store, project, monkeypatch):
    monkeypatch.setattr("preferl.store.queries.locked_project", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.queries.ask(project, SEGMENTS, np.array([[0, 1]]))
    assert len(store.clips.segments(project, clip_ids(SEGMENTS)[:2])) == 2
    assert store.progress(project).open == 0


@on_sqlite
def test_what_cannot_be_asked_is_refused_whole(store, project):
    for pairs, more in (
        ([[0, 1], [1, 1]], {}),
        ([[0, 99]], {}),
        ([[0, 1]], {"purpose": "repeat"}),
        ([[0, 1]], {"purpose": "known"}),
        ([[0, 1]], {"purpose": "known", "known": np.array([0.3])}),
        ([[0, 1]], {"scores": np.ones(2)}),
    ):
        with pytest.raises(FeedbackError):
            store.queries.ask(project, SEGMENTS, np.array(pairs), **more)
    assert store.progress(project).open == 0
    assert not (store.files / "clips").exists()


@on_sqlite
def test_a_store_of_a_newer_version_is_left_alone(open_store):
    store = open_store()
    with store.database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StorageError, match="9999"):
        open_store()


def test_the_secret_of_a_store_is_made_once(tmp_path, monkeypatch):
    monkeypatch.delenv("PREFERL_SECRET", raising=False)
    with Store.open(tmp_path) as one, Store.open(tmp_path) as two:
        assert one.key() == two.key()
        project = one.projects.create("dots").id
        assert one.people.owner(project).secret == two.people.owner(project).secret
        monkeypatch.setenv("PREFERL_SECRET", "short")
        with pytest.raises(ConfigError, match="PREFERL_SECRET"):
            one.key()
        monkeypatch.setenv("PREFERL_SECRET", "x" * 40)
        assert one.key() == b"x" * 40


@on_sqlite
def test_people_that_cannot_be(store, project):
    for name, role in (("", "annotator"), ("x" * 81, "admin"), ("a\0b", "admin"), ("Z", "king")):
        with pytest.raises(ConfigError):
            store.people.invite(project, name, role)
    with pytest.raises(ConfigError, match="number of a"):
        store.people.invite(12345, "Ann")


def test_a_new_link_ends_the_old_one_and_the_disabled_have_none(store, project):
    old = store.people.invite(project, "Ann")
    new = store.people.invite(project, " Ann ", "admin")
    assert new.annotator.id == old.annotator.id
    assert store.people.by_secret(old.secret) is None
    assert store.people.by_secret(new.secret).role == "admin"
    store.people.update(new.annotator.id, disabled=True)
    assert store.people.by_secret(new.secret) is None
    with store.database.read() as session:
        rows = json.dumps(
            [list(map(str, row)) for row in session.execute(text("SELECT * FROM annotator"))]
        )
    assert new.secret not in rows


FRAMES = spaces.Box(0, 255, (32, 32, 2), np.uint8)
ACTIONS = spaces.Discrete(3)


@on_sqlite
def test_pictures_stay_in_the_store(store, rng):
    feedback = StoredFeedback(store, store.projects.create("dots").id)
    asked = []
    for _ in range(3):  # three shards
        segments = sample_segments(make_episodes(rng, [20], FRAMES, ACTIONS), 4, 5, rng)
        feedback.ask(segments, np.array([[0, 1], [2, 3]]))
        asked.append(segments[np.array([[0, 1], [2, 3]])].observations)
    names = sorted(
        {c for pair in store.queries.pairs(feedback.project.id, [*range(1, 7)]) for c in pair}
    )
    stored = store.clips.segments(feedback.project.id, names)
    assert stays_on_disk(stored.observations)
    shown = {picture.tobytes() for picture in np.concatenate(asked).reshape(-1, 5, 32, 32, 2)}
    assert {clip.tobytes() for clip in stored[np.arange(12)].observations} == shown
