"""Experience becomes questions in the background, and nobody waits for that."""

import sqlite3
import threading
from dataclasses import replace

import numpy as np
import pytest

from helpers.waiting import SECONDS
from preferl.data.segment_sampling import sample_segments
from preferl.feedback.pair_sampling import UniformPairs
from preferl.feedback.scripted import ScriptedTeacher
from preferl.online.wrappers import query_worker as module
from preferl.online.wrappers.feedback_config import FeedbackConfig
from preferl.online.wrappers.query_worker import ExperienceBuffer, QueryWorker
from preferl.store import database
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.testing import make_episodes


def episodes(*lengths, seed=0):
    return make_episodes(np.random.default_rng(seed), lengths)


@pytest.fixture
def feedback(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    with Store.open(tmp_path) as store:
        store.projects.create("dots", fps=10)
        yield StoredFeedback(store)


def handed(feedback, config, **more):
    worker = QueryWorker(feedback, config, **more)
    worker.put(episodes(30, 30))
    assert worker.flush()
    return worker


def test_a_restored_worker_goes_on_and_asks_nothing_twice(feedback):
    config = FeedbackConfig(segment_length=5, ask_every=3, max_pending=100, buffer_steps=50)
    first = handed(feedback, config, teacher=ScriptedTeacher.oracle())
    first.paused = True
    saved = first.snapshot()
    first.paused = False
    first.put(episodes(24, seed=1))
    assert first.flush()
    asked = first.counts.asked
    assert asked == (60 + 24) // 3
    first.close()

    second = QueryWorker(feedback, config, teacher=ScriptedTeacher.oracle())
    second.restore(saved)
    assert second.counts.asked == 20
    assert second.counts.answered == saved["given"] >= 20  # some are asked again, to judge
    assert second.counts.waiting_steps == 60
    second.paused = False
    second.put(episodes(24, seed=1))  # which the first one asked about before it was killed
    assert second.flush()
    assert second.counts.asked == asked
    assert len(feedback.store.queries.query_clips(feedback.project.id)) == asked
    second.put(episodes(30, seed=2))
    assert second.flush()
    assert second.counts.asked == asked + 10
    assert second.close()


def test_what_is_saved_before_the_first_round_is_known_when_the_run_goes_on(feedback):
    config = FeedbackConfig(segment_length=5, ask_every=3, max_pending=100)
    unborn = QueryWorker(feedback, config).snapshot()
    first = handed(feedback, config)
    first.paused = True
    saved = first.snapshot()
    first.paused = False
    first.put(episodes(24, seed=1))
    assert first.flush()
    first.close()
    asked = feedback.store.queries.query_clips(feedback.project.id)
    assert len(asked) == (60 + 24) // 3
    second = QueryWorker(feedback, config)
    second.restore(saved)
    for snapshot, parts in (
        (second.snapshot(), [episodes(24, seed=1)]),
        (unborn, [episodes(30, 30), episodes(24, seed=1)]),
    ):
        again = QueryWorker(feedback, config)
        again.restore(snapshot)
        again.paused = False
        for part in parts:
            again.put(part)
        assert again.flush()
        assert again.close()
        assert feedback.store.queries.query_clips(feedback.project.id) == asked


def standing_still(steps):
    moving = episodes(steps)
    still = np.zeros_like(moving.observations)
    return replace(moving, observations=still, actions=still, rewards=np.zeros(steps))


def test_no_clip_is_compared_with_itself(feedback):
    worker = QueryWorker(feedback, FeedbackConfig(segment_length=5, ask_every=4, max_pending=100))
    worker.put(standing_still(40))
    assert worker.flush()
    assert worker.counts.asked == 0
    worker.put(episodes(5))  # with one other clip there is one pair
    for _ in range(10):
        assert worker.flush()
    assert worker.close()
    asked = feedback.store.queries.query_clips(feedback.project.id)
    assert 0 < len(asked) == worker.counts.asked <= 11
    assert all(first != second for _, first, second in asked)


def test_questions_are_asked_up_to_the_length_of_the_queue(feedback):
    worker = handed(feedback, FeedbackConfig(segment_length=5, ask_every=1, max_pending=7))
    assert feedback.pending == 7
    assert worker.flush()
    assert (feedback.pending, worker.counts.asked) == (7, 7)
    assert worker.close()
    clips = feedback.store.queries.query_clips(feedback.project.id)
    assert all(first != second for _, first, second in clips)
    shown = feedback.store.clips.segments(feedback.project.id, [clips[0][1]])
    assert shown.length == 5


def test_a_budget_holds_over_restarts_and_whatever_a_sampler_gives(feedback):
    def eager(segments, count, rng):
        return UniformPairs()(segments, count + 3, rng)

    config = FeedbackConfig(segment_length=5, ask_every=1, max_pending=4, max_queries=6)
    asked = []
    for _ in range(2):
        worker = handed(feedback, config, sampler=eager, teacher=ScriptedTeacher.oracle())
        for _ in range(len(asked) * 3):
            assert worker.flush()
        assert worker.close()
        asked.append(worker.counts.asked)
    assert len(feedback.store.queries.query_clips(feedback.project.id)) == sum(asked) == 6


def test_a_budget_holds_where_another_program_asks_at_the_same_time(
    feedback,
):
    def meanwhile(segments, count, rng):
        other = sample_segments(episodes(30, seed=9), 8, 5, rng)
        feedback.store.queries.ask(feedback.project.id, other, np.arange(8).reshape(4, 2))
        return UniformPairs()(segments, count, rng)

    config = FeedbackConfig(segment_length=5, ask_every=1, max_pending=100, max_queries=6)
    worker = handed(feedback, config, sampler=meanwhile)
    assert worker.close()
    assert len(feedback.store.queries.query_clips(feedback.project.id)) == 6
    assert worker.counts.asked == 2


def test_nothing_is_taken_in_or_asked_while_paused(feedback):
    worker = QueryWorker(feedback, FeedbackConfig(segment_length=5, ask_every=1))
    worker.paused = True
    worker.put(episodes(30))
    worker.flush()
    assert worker.counts == module.QueryCounts(0, 0, 0, 0, 0, None)
    worker.paused = False
    worker.put(episodes(30))
    worker.flush()
    assert worker.counts.asked == 20
    worker.close()


def test_episodes_that_are_always_too_short_are_logged_once(feedback, caplog):
    worker = QueryWorker(feedback, FeedbackConfig(segment_length=25, short="drop", ask_every=100))
    for seed in range(26):
        assert (worker.counts.problem is None) == (seed < 25)
        worker.put(episodes(20, seed=seed))
        assert worker.flush(), "there is nothing that could be asked"
    assert "25 steps (segment_length)" in worker.counts.problem
    worker.put(episodes(30, seed=27))
    assert worker.flush()
    assert worker.counts.problem is None
    assert worker.counts.asked > 0
    assert worker.close()
    first, second = [record.message for record in caplog.records if record.name == module.__name__]
    assert 'short="pad"' in first
    assert second == "Queries are asked again."


class Disagreeing:
    """Two members that disagree about the weight of the first feature."""

    context = 1
    members = 2

    def __call__(self, observations, actions, mask):
        return np.zeros(len(actions))

    def scores(self, segments):
        total = segments[:].observations[..., 0].sum(-1)
        return np.stack([total, -total])


def test_disagreement_of_the_reward_in_use_chooses(feedback):
    config = FeedbackConfig(segment_length=5, max_pending=2, sampler="informative")
    worker = QueryWorker(feedback, config, in_use=lambda: (Disagreeing(), 3))
    worker.put(episodes(60))
    worker.flush()
    worker.close()
    asked = feedback.store.queries.query_clips(feedback.project.id)
    shown = feedback.store.clips.segments(feedback.project.id, [c for q in asked for c in q[1:]])
    totals = shown[:].observations[..., 0].sum(-1).reshape(-1, 2)
    assert (np.abs(totals[:, 0] - totals[:, 1]) > 3).all()  # a random pair: 2.9 on average
    with feedback.store.database.read() as session:
        versions = session.connection().exec_driver_sql("SELECT model_version FROM query")
        assert [row[0] for row in versions] == [3, 3]
    (agent,) = feedback.store.reports.services(feedback.project.id)
    assert (agent.name, agent.status.state, agent.status.asked) == ("agent", "stopped", 2)
    assert (agent.status.steps, agent.status.reward_version) == (60, 3)


def test_the_latest_episode_is_kept_whole(feedback):
    worker = handed(feedback, FeedbackConfig(segment_length=5, ask_every=1, episode_every=0.0))
    worker.close()
    store = feedback.store
    project = feedback.project.id
    with store.database.read() as session:
        rows = session.connection().exec_driver_sql(
            "SELECT id, steps FROM clip WHERE kind = 'episode'"
        )
        ((clip, steps),) = rows
    assert steps == 30
    kept = store.clips.segments(project, [clip])
    np.testing.assert_array_equal(kept.observations, episodes(30, 30).observations[30:])


def test_a_locked_store_holds_nobody_up(feedback, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    with Store.open(tmp_path) as impatient:
        worker = QueryWorker(
            StoredFeedback(impatient), FeedbackConfig(segment_length=5, ask_every=1)
        )
        lock = sqlite3.connect(tmp_path / "labels.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        here = threading.current_thread()
        connect = impatient.database.engine.connect

        def elsewhere():
            assert threading.current_thread() is not here, "it waits for the store"
            return connect()

        with monkeypatch.context() as guarded:
            guarded.setattr(impatient.database.engine, "connect", elsewhere)
            worker.put(episodes(60))
        assert not worker.flush(SECONDS)
        assert "locked" in str(worker.counts.problem)
        assert worker.counts.asked == 0
        lock.execute("ROLLBACK")
        assert worker.flush(SECONDS)
        assert worker.counts.asked == 20
        assert worker.counts.problem is None
        assert worker.close()
        lock.close()
    assert [r.message[:26] for r in caplog.records if r.name == module.__name__] == [
        "No queries for now: store ",
        "Queries are asked again.",
    ]


def test_a_broken_sampler_is_logged(feedback, caplog):
    def broken(*_):
        raise ZeroDivisionError

    worker = QueryWorker(feedback, FeedbackConfig(segment_length=5, ask_every=1), sampler=broken)
    worker.put(episodes(30))
    assert not worker.flush()
    assert worker.counts.problem == "ZeroDivisionError"
    assert worker.close()


def test_the_oldest_experience_goes_first_and_is_counted():
    room = ExperienceBuffer(most_steps=50, megabytes=1.0, segment_length=10)
    room.put(episodes(20, 5))
    room.put(episodes(25, seed=1))
    assert (room.steps, room.dropped_episodes) == (50, 0)
    room.put(episodes(10, seed=2))
    assert (room.steps, room.dropped_episodes, room.dropped_segments) == (35, 2, 2)
    held = room.look()
    assert held is not None
    assert held.lengths.tolist() == [25, 10]
    room.put(episodes(50, seed=3))  # what questions were drawn from is not left out
    assert (room.steps, room.dropped_episodes, room.dropped_segments) == (50, 2, 2)


def test_memory_is_bounded_too():
    room = ExperienceBuffer(most_steps=10**9, megabytes=0.001, segment_length=10)
    for seed in range(5):
        room.put(episodes(40, seed=seed))  # 40 steps of 20 bytes
    assert room.steps == 40
    assert room.dropped_episodes == 4
