import json
import sqlite3
from contextlib import closing
from math import inf
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from sqlalchemy import text

from preferl.data.segments import Segments, sample_segments
from preferl.errors import ConfigError, DataError, FeedbackError, StorageError
from preferl.store import Store, StoredFeedback, clip_ids, distinct_clips
from preferl.testing import make_episodes
from preferl.testing.feedback_contracts import check_feedback, example_segments


def answer_everything(store, project, kind=lambda number: "left") -> int:
    """Somebody who answers all there is."""
    store.clips.video_ready(project.id, store.clips.without_video(project.id, 1000))
    ann = store.people.owner(project.id).annotator.id
    number = store.reports.revision(project.id)
    while questions := store.queue.claim(project.id, ann, 1).queries:
        store.queue.answer(ann, questions[0].token, f"key-{number:06d}", kind(number))
        number += 1
    return number


def test_it_keeps_the_contract_of_feedback(store):
    project = store.projects.create("dots", repeat_share=0.0)
    check_feedback(StoredFeedback(store, "dots"), answer=lambda: answer_everything(store, project))


def test_it_keeps_the_contract_with_people_who_cannot_tell(store):
    project = store.projects.create("dots", repeat_share=0.0)

    def kind(number: int) -> str:
        return "cannot_tell" if number % 3 == 0 else "right"

    check_feedback(
        StoredFeedback(store, project.id),
        answer=lambda: answer_everything(store, project, kind),
        declines=True,
    )


def test_queries_that_nobody_could_decide_are_counted(store):
    project = store.projects.create("dots", repeat_share=0.0)
    feedback = StoredFeedback(store)
    assert feedback.declined == 0
    feedback.ask(example_segments(3), np.array([[0, 1], [2, 3], [4, 5]]))
    answer_everything(store, project, lambda number: ("cannot_tell", "right")[number % 2])
    assert (feedback.declined, len(feedback.comparisons())) == (2, 1)


def test_what_a_newer_reward_chose_comes_first_and_older_questions_after_it(store):
    project = store.projects.create("dots", repeat_share=0.0)
    feedback = StoredFeedback(store)
    segments = example_segments(3)
    pairs = np.array([[0, 1], [2, 3], [4, 5], [6, 7]])
    for version, rows in ((None, pairs[:2]), (1, pairs[2:3]), (2, pairs[3:])):
        feedback.model_version = version
        feedback.ask(segments, rows)
    store.queries.ask(project.id, segments, np.array([[1, 2]]), priority=0.5)
    store.clips.video_ready(project.id, store.clips.without_video(project.id, 100))
    ann = store.people.owner(project.id).annotator.id
    held = store.queue.claim(project.id, ann, 8).queries
    assert [question.query_id for question in held] == [4, 3, 5, 1, 2]


def test_agents_of_one_project_count_their_own_queries(store):
    project = store.projects.create("dots", repeat_share=0.0)
    one, other = (StoredFeedback(store, agent=name) for name in ("one", "other"))
    segments = example_segments(3)
    for version in (1, 2):  # newer rewards put nobody before the others
        one.model_version = version
        one.ask(segments, np.array([[0, 1], [2, 3]]) + 2 * version)
    other.ask(segments, np.array([[0, 2]]))
    assert (one.pending, other.pending, StoredFeedback(store).pending) == (4, 1, 5)
    assert ([number for number, *_ in other.asked()], other.newest) == ([5], 5)
    ann = store.people.owner(project.id).annotator.id
    held = store.queue.claim(project.id, ann, 8, undrawn=True).queries
    assert [question.query_id for question in held] == [1, 5, 2, 3, 4]
    other.ask_rest(segments, np.array([[0, 2], [1, 3]]), since=0)
    assert other.pending == 2, "what others asked stands in for nothing"
    with pytest.raises(ConfigError, match="agent: expected 1 to 80 letters"):
        StoredFeedback(store, agent=" a\n")


def test_answers_of_another_program_are_joined_to_their_clips(open_store):
    asking = open_store()
    answering = open_store()
    project = asking.projects.create("dots", repeat_share=0.0)
    feedback = StoredFeedback(asking)
    segments = example_segments(3)
    feedback.ask(segments, np.array([[2, 5], [5, 7], [2, 5]]))
    with pytest.raises(FeedbackError, match="3 wait for people"):
        feedback.comparisons()
    answer_everything(answering, project)
    comparisons = feedback.comparisons()
    assert comparisons is feedback.comparisons(), "read again only after new answers"
    shown = comparisons.segments[comparisons.pairs]
    meant = segments[np.array([[2, 5], [5, 7], [2, 5]])]
    for got, asked in ((shown.observations, meant.observations), (shown.actions, meant.actions)):
        np.testing.assert_array_equal(got[meant.mask], asked[meant.mask])
    np.testing.assert_array_equal(shown.mask, meant.mask)
    assert len(comparisons.segments) == 3, "each clip once"


def test_clips_of_two_lengths_are_learned_from_together(store, rng):
    project = store.projects.create("dots", repeat_share=0.0)
    feedback = StoredFeedback(store)
    space = spaces.Box(-1, 1, (2,))
    asked = [
        sample_segments(make_episodes(rng, [30], space, space), 2, length, rng) for length in (5, 7)
    ]
    for segments in asked:
        feedback.ask(segments, np.array([[0, 1]]))
        answer_everything(store, project)
    comparisons = feedback.comparisons()
    shown = comparisons.segments[comparisons.pairs]
    assert shown.mask.sum(-1).tolist() == [[5, 5], [7, 7]]
    for row, segments in enumerate(asked):
        clips = shown.observations[row, :, -segments.length :]
        np.testing.assert_array_equal(clips, segments[np.array([0, 1])].observations)


def test_who_gave_each_answer_is_handed_through(store):
    project = store.projects.create("dots", repeat_share=0.0, quorum=2)
    mean = StoredFeedback(store)
    each = StoredFeedback(store, combine="each")
    mean.ask(example_segments(0), np.array([[0, 1], [2, 3]]))
    store.clips.video_ready(project.id, store.clips.without_video(project.id, 1000))
    kinds = {"Ann": ("left", "equal"), "Bo": ("right", "cannot_tell")}
    for name, answers in kinds.items():
        person = store.people.invite(project.id, name).annotator.id
        for question in store.queue.claim(project.id, person, 2).queries:
            key = f"{name}'s to {question.query_id}"
            kind = answers[question.query_id - 1]
            store.queue.answer(person, question.token, key, kind)
    queries, comparisons, names = each.answered()
    given = [names[row] for row in comparisons.annotator]
    assert sorted(zip(queries.tolist(), given, strict=True)) == [(1, "Ann"), (1, "Bo"), (2, "Ann")]
    assert queries.tolist() == [1, 1, 2], "answers to one query lie together"
    assert comparisons.weight.tolist() == [1, 1, 1]
    assert sorted(comparisons.preference[:2]) in ([0, 1], [0, 0], [1, 1])
    assert comparisons.preference[2] == 0.5
    assert len(comparisons.segments) == 4, "each clip once"
    joined = mean.answered()
    assert joined.names == ()
    assert joined.comparisons.annotator is None
    assert joined.comparisons.preference[0] == comparisons.preference[:2].mean()


def test_no_file_of_clips_stays_open(store, rng):
    files = Path("/proc/self/fd")
    if not files.is_dir():
        pytest.skip("only /proc tells which files are open")
    feedback = StoredFeedback(store, store.projects.create("dots", repeat_share=0.0).id)
    picture = spaces.Box(0, 255, (16, 16, 3), np.uint8)
    space = spaces.Box(-1, 1, (2,))
    observed = spaces.Dict({"camera": picture, "arm": space})
    for _ in range(5):
        segments = sample_segments(make_episodes(rng, [30], observed, space), 2, 5, rng)
        feedback.ask(segments, np.array([[0, 1]]))
    answer_everything(store, feedback.project)
    before = sum(1 for _ in files.iterdir())
    comparisons = feedback.comparisons()
    assert comparisons.segments[comparisons.pairs].observations["camera"].any()
    assert sum(1 for _ in files.iterdir()) == before


def test_windows_with_the_same_steps_are_not_compared(store):
    project = store.projects.create("dots", repeat_share=0.0)
    block = np.array([0, 1, 0, 1, 2, 3], np.float64)[:, None]
    start = np.array([0, 2, 4])
    real = np.full(3, 2)
    segments = Segments(block, block, block[:, 0], start, real, 2)
    assert distinct_clips(segments).start.tolist() == [0, 4]
    pairs = np.array([[0, 1], [1, 2]])
    with pytest.raises(FeedbackError, match="with itself"):
        store.queries.ask(project.id, segments, pairs)
    with pytest.raises(FeedbackError, match="with itself"):
        store.queries.ask_stored(project.id, [("a" * 32, "a" * 32)])
    assert store.clips.get(project.id, clip_ids(segments)[2]) is None, "nothing was stored"
    feedback = StoredFeedback(store)
    feedback.ask(segments, pairs)
    ids = clip_ids(segments)
    assert [pair for _, *pair in store.queries.asked(project.id)] == [ids[1:]]
    feedback.ask(segments, pairs[:1])
    assert feedback.pending == 1
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


def test_asking_waits_for_people_on_request(store, no_time_passes):
    project = store.projects.create("dots", repeat_share=0.0)
    waits = []

    def person(missing):
        waits.append(missing)
        answer_everything(store, project)

    feedback = StoredFeedback(store, patience=inf, on_wait=person)
    feedback.ask(example_segments(0), np.array([[0, 1], [1, 2]]))
    assert len(feedback.comparisons()) == 2
    assert waits == [2]
    feedback.patience = 0.2
    feedback.on_wait = waits.append
    feedback.ask(example_segments(0), np.array([[3, 4]]))
    assert feedback.pending == 1
    assert set(waits[1:]) == {1}


def test_the_first_wait_logs_how_to_open_the_page(store, caplog, no_time_passes):
    store.projects.create("dots", repeat_share=0.0)
    feedback = StoredFeedback(store, patience=0.01)
    for pair in ([0, 1], [1, 2]):
        feedback.ask(example_segments(0), np.array([pair]))
    (line,) = caplog.messages
    assert line.startswith("Queries wait for people. Open their page: preferl annotate serve")
    assert line.endswith(f"{store.files} --project dots")


def test_some_queries_may_stay_open_but_the_last(store):
    project = store.projects.create("dots", repeat_share=0.0, budget=4)
    waits = []

    def person(missing):
        waits.append(missing)
        answer_everything(store, project)

    feedback = StoredFeedback(store, patience=inf, ahead=2, on_wait=person)
    segments = example_segments(0)
    feedback.ask(segments, np.array([[0, 1], [2, 3]]))
    assert not waits, "nobody was waited for"
    assert feedback.wait(0.0, open_at_most=2) == 2
    feedback.ask(segments, np.array([[4, 5], [6, 7]]))
    assert waits == [4]
    assert feedback.pending == 0
    assert len(feedback.comparisons()) == 4, "no answer comes after the last fit"


def test_nobody_is_waited_for_once_the_budget_is_spent(store):
    project = store.projects.create("dots", repeat_share=0.0, budget=2)
    waits = []

    def person(missing):
        waits.append(missing)
        answer_everything(store, project)

    feedback = StoredFeedback(store, patience=inf, on_wait=person)
    feedback.ask(example_segments(0), np.array([[0, 1], [2, 3], [4, 5]]))
    assert waits == [3], "nobody is asked about the third"
    assert feedback.pending == 1


def test_only_what_people_are_asked_counts_towards_the_budget(store):
    project = store.projects.create("dots", repeat_share=0.0, budget=4)
    segments = example_segments(0)
    waits = []
    old = store.queries.ask(project.id, segments, np.array([[0, 2], [1, 3]]), model_version=1)
    assert store.queries.cancel(project.id, before_version=2) == len(old)
    feedback = StoredFeedback(store, patience=0.1, ahead=2, on_wait=waits.append)
    feedback.ask(segments, np.array([[0, 1], [2, 3]]))
    assert not waits, "more are to come, so that nobody is waited for"
    assert feedback.pending == 2


def test_a_resumed_question_waits_once(store, monkeypatch):
    store.projects.create("dots", repeat_share=0.0)
    feedback = StoredFeedback(store, patience=60.0)
    segments = example_segments(0)
    waits = []
    monkeypatch.setattr(StoredFeedback, "wait", lambda self, seconds, **_: waits.append(seconds))
    pairs = np.array([[0, 1], [2, 3]])
    feedback.ask(segments, pairs[:1])
    feedback.ask_rest(segments, pairs, since=0)
    feedback.ask_rest(segments, pairs, since=0)
    assert waits == [60.0] * 3
    assert feedback.pending == 2


def test_clips_are_stored_once_and_named_by_what_they_hold(store):
    project = store.projects.create("dots")
    segments = example_segments(0)
    one = store.clips.put(project.id, segments)
    moved = Segments(
        observations=np.concatenate([np.zeros((5, 3), np.float32), segments.observations]),
        actions=np.concatenate([np.zeros((5, 2), np.float32), segments.actions]),
        rewards=np.concatenate([np.zeros(5), segments.rewards]),
        start=segments.start + 5,
        real=segments.real,
        length=segments.length,
    )
    assert store.clips.put(project.id, moved) == one == clip_ids(segments)
    assert len(list((store.files / "clips" / str(project.id)).iterdir())) == 1
    back = store.clips.segments(project.id, [one[3], one[0], one[3]])
    np.testing.assert_array_equal(back.real, segments.real[[3, 0, 3]])
    rows = np.array([3, 0, 3])
    mask = segments[rows].mask
    np.testing.assert_array_equal(
        back[np.arange(3)].observations[mask], segments[rows].observations[mask]
    )
    with pytest.raises(DataError, match="one of this project"):
        store.clips.segments(project.id, ["0" * 32])
    with pytest.raises(DataError, match="digest"):
        store.clips.video_path(project.id, "../../etc/passwd")


def test_clips_are_there_when_the_query_is_not_yet(store, monkeypatch):
    project = store.projects.create("dots")
    monkeypatch.setattr(store.queries, "ask_stored", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.queries.ask(project.id, example_segments(0), np.array([[0, 1]]))
    assert len(store.clips.segments(project.id, clip_ids(example_segments(0))[:2])) == 2
    assert store.progress(project.id).open == 0


def test_what_cannot_be_asked_is_refused_whole(store):
    project = store.projects.create("dots")
    segments = example_segments(0)
    pairs = np.array([[0, 1], [1, 2]])
    for wrong, more in (
        (np.array([[0, 1], [1, 1]]), {}),
        (np.array([[0, 99]]), {}),
        (pairs, {"purpose": "repeat"}),
        (pairs, {"purpose": "known"}),
        (pairs, {"purpose": "known", "known": np.array([1.0, 0.3])}),
        (pairs, {"scores": np.array([1.0])}),
    ):
        with pytest.raises(FeedbackError):
            store.queries.ask(project.id, segments, wrong, **more)
    assert store.progress(project.id).open == 0
    assert not (store.files / "clips").exists()


def test_a_store_of_a_newer_version_is_left_alone(open_store):
    store = open_store()
    with store.database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StorageError, match="9999"):
        open_store()


def test_an_older_sqlite_file_is_copied_before_it_is_changed(tmp_path, monkeypatch):
    with Store.open(tmp_path) as store:
        store.projects.create("dots")
    known = "SELECT version_num FROM alembic_version"
    monkeypatch.setattr("preferl.store.store.ScriptDirectory.get_current_head", lambda self: "0002")
    Store.open(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "labels.db.before-0001")) as kept:
        assert kept.execute(known).fetchone() == ("0001",)
        assert kept.execute("SELECT slug FROM project").fetchall() == [("dots",)]


def test_the_secret_of_a_store_is_made_once_for_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("PREFERL_SECRET", raising=False)
    with Store.open(tmp_path) as one, Store.open(tmp_path) as two:
        assert one.key() == two.key()
        assert len(one.key()) == 64
        assert (tmp_path / "key").stat().st_mode & 0o077 == 0
        project = one.projects.create("dots")
        assert one.people.owner(project.id).secret == two.people.owner(project.id).secret
        monkeypatch.setenv("PREFERL_SECRET", "short")
        with pytest.raises(ConfigError, match="PREFERL_SECRET"):
            one.key()
        monkeypatch.setenv("PREFERL_SECRET", "x" * 40)
        assert one.key() == b"x" * 40


@pytest.mark.parametrize(
    "url", ["mysql://host/name", "sqlite://", "nonsense://", "postgresql://h/d"]
)
def test_databases_that_cannot_be_used(url):
    with pytest.raises(ConfigError):
        Store.open(url)


def test_people_that_cannot_be(store):
    project = store.projects.create("dots")
    for name, role in (
        ("", "annotator"),
        ("x" * 81, "annotator"),
        ("a\0b", "admin"),
        ("Z", "king"),
    ):
        with pytest.raises(ConfigError):
            store.people.invite(project.id, name, role)
    with pytest.raises(ConfigError, match="exists"):
        store.people.invite(12345, "Ann")


def test_a_new_link_ends_the_old_one_and_the_disabled_have_none(store):
    project = store.projects.create("dots")
    old = store.people.invite(project.id, "Ann")
    new = store.people.invite(project.id, " Ann ", "admin")
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
