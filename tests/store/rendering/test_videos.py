import json
import os
import signal
import subprocess
import sys
import threading

import av
import numpy as np
import pytest
from sqlalchemy import text

from helpers.queue_steps import on_sqlite
from helpers.waiting import SECONDS, wait_until
from preferl.data.segments import Segments
from preferl.errors import ConfigError, DataError, StorageError
from preferl.store import Store
from preferl.store.clips import clip_ids
from preferl.store.rendering.videos import RenderWorker, pictures_of, serve_rendering

PENDULUM = {"kind": "env", "env_id": "Pendulum-v1"}


def pendulums(count, steps=4):
    """Segments of a pendulum that stands at different angles; the last one is shorter."""
    angle = np.linspace(0, 3, count * steps)
    seen = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    start = steps * np.arange(count)
    real = np.full(count, steps)
    real[-1] -= 1
    return Segments(seen, np.zeros((len(seen), 1)), 0 * angle, start, real, steps)


def asked(store, segments, **settings):
    """A project in which neighbours are compared, the last pair most urgently."""
    project = store.projects.create("swing", **settings)
    clips = store.clips.put(project.id, segments)
    for first in range(len(clips) - 1):
        pair = np.array([[first, first + 1]])
        store.queries.ask(project.id, segments, pair, priority=float(first))
    return project, clips


def videos(store, project, clips):
    """The state of each clip's video."""
    rows = [store.clips.get(project.id, clip) for clip in clips]
    return [row.video for row in rows if row is not None]


def frames_in(path):
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


def black(segments, row):
    return np.zeros((segments.real[row], 16, 16), np.uint8)


def fails_at_the_second(segments, row):
    if segments.observations[segments.start[row], 0] < 0.6:
        yield np.zeros((16, 16), np.uint8)
        raise RuntimeError("the simulator broke")
    yield from black(segments, row)


def test_clips_that_wait_are_drawn_and_can_be_shown(store):
    project, clips = asked(store, pendulums(3), frames=PENDULUM, fps=20)
    ann = store.people.owner(project.id).annotator.id
    assert not store.queue.claim(project.id, ann, 1).queries
    with RenderWorker(store) as worker:
        assert worker.round() == 3
        assert worker.round() == 0
    counts = [frames_in(store.clips.video_path(project.id, clip)) for clip in clips]
    assert counts == [4, 4, 3]
    assert store.queue.claim(project.id, ann, 1).queries


def test_several_workers_share_the_clips(store, monkeypatch):
    monkeypatch.setattr("preferl.store.clips.DRAWING_SECONDS", 600)  # of a thread that is held up
    count = 24
    drawn = list[tuple[int, str]]()
    all_at_work = threading.Barrier(3)
    project, clips = asked(store, pendulums(count))

    def work(worker):
        def draw(segments, row):
            first = not any(one == worker for one, _ in drawn)
            drawn.append((worker, clip_ids(segments)[row]))
            if first:
                all_at_work.wait(SECONDS)
            return black(segments, row)

        with RenderWorker(store, draw) as drawing:
            while drawing.round() or drawing.waits_for_others():
                pass

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert videos(store, project, clips) == ["ready"] * count
    assert sorted(clip for _, clip in drawn) == sorted(clips), "each by one of them"
    assert {worker for worker, _ in drawn} == {0, 1, 2}


def test_a_clip_of_a_worker_that_was_killed_comes_back(store, monkeypatch):
    monkeypatch.setattr("preferl.store.clips.DRAWING_SECONDS", 600)
    project, (clip, _) = asked(store, pendulums(2))
    lost = store.clips.drawing(project.id, clip)  # whose end never comes
    assert lost.__enter__()
    with RenderWorker(store, black) as worker:
        assert worker.round() == 1, "the other clip"
        assert worker.round() == 0
        assert worker.waits_for_others()
        monkeypatch.setattr("preferl.store.clips.DRAWING_SECONDS", 0.2)  # it goes on for 600 s
        assert not worker.waits_for_others(), "the clock was set back, or its time is over"
        assert worker.round() == 1
    assert worker.rendered == (2, 0)


def test_a_worker_that_takes_long_keeps_its_clip(store, monkeypatch):
    monkeypatch.setattr("preferl.store.clips.DRAWING_SECONDS", 600)
    monkeypatch.setattr("preferl.store.rendering.videos.DRAWING_SECONDS", 0)  # it is over at once
    project, _ = asked(store, pendulums(2))
    taken = list[bool]()

    def slowly(segments, row):
        this = {"clip": clip_ids(segments)[row]}
        for picture in black(segments, row):
            with store.database.write() as session:
                session.execute(text("UPDATE clip SET drawing_until = 0 WHERE id = :clip"), this)
            yield picture
            with store.clips.drawing(project.id, this["clip"]) as claimed:
                taken.append(claimed)

    with RenderWorker(store, slowly) as worker:
        assert worker.round() == 2
    assert taken == [False] * 7, "after each picture it had said that it goes on"


@on_sqlite
def test_a_clip_that_cannot_be_drawn_is_marked_and_the_next_one_follows(store, caplog):
    project, clips = asked(store, pendulums(3))
    with RenderWorker(store, fails_at_the_second) as worker:
        assert worker.round() == 3
        assert worker.rendered == (1, 2)
    (message,) = caplog.messages  # though two failed
    assert "RuntimeError: the simulator broke. Others" in message
    assert caplog.records[0].exc_info is not None
    assert videos(store, project, clips) == ["ready", "failed", "failed"]
    failed = store.clips.get(project.id, clips[1])
    assert failed.video_error == "RuntimeError: the simulator broke"
    folder = store.clips.video_path(project.id, clips[0]).parent
    assert [file.name for file in folder.iterdir()] == [f"{clips[0]}.mp4"]


@on_sqlite
def test_a_project_that_does_not_say_how_is_logged_once(store, caplog):
    asked(store, pendulums(2))
    with RenderWorker(store) as worker:
        assert worker.round() == worker.round() == 0
    assert [record.args for record in caplog.records] == [("swing",)]


@on_sqlite
def test_known_problems_are_logged_without_a_traceback(store, caplog):
    asked(store, pendulums(2))

    def stateless(segments, row):
        raise DataError("There are no states.")

    with RenderWorker(store, stateless) as worker:
        assert worker.round() == 2
    assert [record.exc_info for record in caplog.records] == [None]
    assert "cannot be drawn: There are no states. Others" in caplog.text


def test_the_most_urgent_comes_first(store):
    asked(store, pendulums(12))
    drawn = []

    def note(segments, row):
        drawn.append(float(segments.observations[segments.start[row], 0]))
        return black(segments, row)

    with RenderWorker(store, note) as worker:
        assert [worker.round() for _ in range(3)] == [8, 4, 0]
    assert sorted(drawn[:2]) == sorted(drawn)[:2], "cosines fall, so the last are least"


@on_sqlite
def test_stopping_leaves_a_clip_as_it_was(store):
    project, clips = asked(store, pendulums(2))
    worker = RenderWorker(store, lambda s, row: stop_midway(s, row))

    def stop_midway(segments, row):
        for picture in black(segments, row):
            yield picture
            worker.stop()

    worker.round()
    worker.wait(SECONDS)
    assert worker.stopped
    assert videos(store, project, clips) == ["none", "none"]


def test_there_is_one_picture_per_step():
    segments = pendulums(1, steps=3)  # two real steps
    for count in (1, 3):
        pictures = np.zeros((count, 16, 16), np.uint8)
        with pytest.raises(DataError, match=rf"2, one per step, got {count}"):
            list(pictures_of(lambda *_, drawn=pictures: drawn, segments, 0))
    assert len([*pictures_of(black, segments, 0)]) == 2


@on_sqlite
def test_a_full_disk_is_no_fault_of_the_clip(store):
    project, clips = asked(store, pendulums(2))
    store.clips.video_path(project.id, clips[0]).parent.parent.write_text("in the way")
    with RenderWorker(store, black) as worker, pytest.raises(StorageError):
        worker.round()
    assert videos(store, project, clips[:1]) == ["none"]


def test_serving_tries_again_what_failed(tmp_path):
    with Store.open(tmp_path) as store:
        project, clips = asked(store, pendulums(2))
        store.clips.video_failed(project.id, clips[0], "no graphics")
    handler = signal.getsignal(signal.SIGTERM)
    assert serve_rendering(tmp_path, function=f"{__name__}:black", once=True) == (2, 0)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert serve_rendering(tmp_path, once=True) == (0, 0)
    thread = threading.Thread(target=serve_rendering, args=(tmp_path,), kwargs={"once": True})
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()
    with pytest.raises(ConfigError, match="function"):
        serve_rendering(tmp_path, function="math:pi")


SERVE = """
import json, os, sys
from preferl.store.rendering.videos import serve_rendering
drawn = serve_rendering(sys.argv[1], parent=os.getppid(), poll_seconds=0.1)
print(json.dumps([drawn, [m for m in ("torch", "stable_baselines3") if m in sys.modules]]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM is not heard there")
def test_the_process_draws_until_a_signal_and_loads_no_torch(tmp_path):
    with Store.open(tmp_path) as store:
        project, clips = asked(store, pendulums(2), frames=PENDULUM)
        command = [sys.executable, "-c", SERVE, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for clip in clips:
                wait_until(store.clips.video_path(project.id, clip).is_file)
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert json.loads(output) == [[2, 0], []]


@pytest.mark.skipif(sys.platform == "win32", reason="processes have no parents there")
def test_the_process_ends_with_the_one_it_belongs_to(tmp_path):
    with Store.open(tmp_path) as store:
        project, clips = asked(store, pendulums(2), frames=PENDULUM)
        # A process that starts the worker in the background, and is killed.
        starts = (
            "import signal, subprocess, sys\n"
            "print(subprocess.Popen([sys.executable, '-c', *sys.argv[1:]]).pid, flush=True)\n"
            "signal.pause()"  # until it is killed
        )
        command = [sys.executable, "-c", starts, SERVE, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as between:
            worker = int(between.stdout.readline())
            wait_until(store.clips.video_path(project.id, clips[1]).is_file)
            os.kill(worker, 0)
            between.kill()
            assert json.loads(between.stdout.readline())[0][0] <= 2  # it ends, and says so
