"""A store in PostgreSQL and object storage: machines that share nothing else see the same clips."""

import threading

import numpy as np
import pytest
from sqlalchemy import update

from helpers.queue_steps import claim_one, invite
from preferl.errors import ConfigError, StorageError
from preferl.store import Store, StoredFeedback
from preferl.store.rendering.videos import RenderWorker
from preferl.store.schema import Clip
from preferl.testing.feedback_contracts import example_segments

pytestmark = pytest.mark.postgres
SEGMENTS = example_segments(0)
PAIRS = np.array([[0, 1], [2, 3]])


@pytest.fixture
def machine(fresh_database, bucket, tmp_path, monkeypatch):
    """Opens the same store as machines do that share nothing else."""
    monkeypatch.setenv("PREFERL_SECRET", "s" * 32)
    opened = []

    def open_on(name):
        monkeypatch.setenv("PREFERL_CACHE", str(tmp_path / name))
        opened.append(Store.open(fresh_database, f"{bucket}/labels"))
        return opened[-1]

    yield open_on
    for store in opened:
        store.close()


def squares(segments, row):
    """A picture for each step."""
    return (np.full((16, 16, 3), 10 * row, np.uint8) for _ in range(segments.real[row]))


def test_clips_and_videos_reach_machines_that_share_no_disk(machine):
    agent, drawing, page = (machine(name) for name in ("agent", "drawing", "page"))
    project = agent.projects.create("dots").id
    StoredFeedback(agent).ask(SEGMENTS, PAIRS)
    with RenderWorker(drawing, squares) as worker:
        assert (worker.round(), worker.rendered.drawn) == (4, 4)
    ann = invite(page, project)
    question = claim_one(page, project, ann)
    video = page.clips.video_path(project, question.left)
    assert video.is_relative_to(page.files)
    assert video.read_bytes() == drawing.clips.video_path(project, question.left).read_bytes()
    page.queue.answer(ann, question.token, "key-00000001", "left")
    fitted = StoredFeedback(machine("service")).comparisons()
    first = SEGMENTS.select(PAIRS[0])
    np.testing.assert_array_equal(fitted.segments.observations, first.observations)
    assert len({store.files for store in (agent, drawing, page)}) == 3


def test_old_episodes_are_removed_everywhere_but_in_copies(machine):
    agent = machine("agent")
    page = machine("page")
    project = agent.projects.create("dots").id
    ids = [
        agent.clips.put(project, SEGMENTS.select(np.array([row])), kind="episode")[0]
        for row in range(6)
    ]
    with RenderWorker(page, squares) as worker:
        worker.round()
    for row in (6, 7):
        agent.clips.put(project, SEGMENTS.select(np.array([row])), kind="episode")
    left = [agent.clips.get(project, name) is not None for name in ids]
    fresh = machine("fresh")
    assert [fresh.clips.video_path(project, name).exists() for name in ids[:3]] == [False] * 3
    assert left[:2] == [False, False]


def test_what_others_removed_is_sent_again(machine):
    agent = machine("agent")
    page = machine("page")
    project = agent.projects.create("dots").id
    one = SEGMENTS.select(np.array([0]))
    (name,) = agent.clips.put(project, one, kind="episode")
    for row in range(1, 6):
        page.clips.put(project, SEGMENTS.select(np.array([row])), kind="episode")
    assert agent.clips.get(project, name) is None
    agent.clips.put(project, one, kind="episode")
    found = machine("fresh").clips.segments(project, [name])
    np.testing.assert_array_equal(found.observations, one.observations)


def test_an_outage_of_storage_fails_no_clip(machine, monkeypatch):
    agent = machine("agent")
    drawing = machine("drawing")
    project = agent.projects.create("dots").id
    StoredFeedback(agent).ask(SEGMENTS, PAIRS)
    storage = drawing.synced._storage
    away = threading.Event()
    fetch = storage.get_file

    def lost_once(*about):
        if not away.is_set():
            away.set()
            raise TimeoutError("no reply")
        fetch(*about)

    monkeypatch.setattr(storage, "get_file", lost_once)
    with RenderWorker(drawing, squares) as worker:
        with pytest.raises(StorageError, match="no reply"):
            worker.round()
        assert drawing.progress(project).clips_failed == 0
        assert worker.round() == 4


def test_a_shard_that_the_database_names_lies_in_the_folder(machine):
    store = machine("agent")
    project = store.projects.create("dots").id
    (name, *_) = store.clips.put(project, SEGMENTS)
    with store.database.write() as session:
        session.execute(update(Clip).values(shard="../../../other"))
    with pytest.raises(StorageError, match="inside the folder"):
        store.clips.segments(project, [name])


def test_the_secret_does_not_lie_where_others_read(machine, monkeypatch):
    store = machine("page")
    project = store.projects.create("dots").id
    monkeypatch.delenv("PREFERL_SECRET")
    with pytest.raises(ConfigError, match=r"PREFERL_SECRET: .*the secret that all"):
        store.people.owner(project)
    assert store.synced.names() == []


def test_sqlite_goes_with_a_folder_alone(tmp_path, bucket):
    with pytest.raises(ConfigError, match="files: expected a folder beside SQLite"):
        Store.open(tmp_path, f"{bucket}/labels")
