"""Whole episodes are looked at and then forgotten; clips of questions stay."""

import numpy as np
import pytest

from helpers.numbered_videos import random_segments
from helpers.queue_steps import on_sqlite
from preferl.store import clip_ids
from preferl.store.clips import EPISODES_KEPT
from preferl.store.rendering.videos import RenderWorker


def put(store, project, *seeds):
    return [
        store.clips.put(project, random_segments(1, 6, seed), kind="episode")[0] for seed in seeds
    ]


def there(store, project, clips):
    return [store.clips.get(project, clip) is not None for clip in clips]


def shards(store, project):
    return sum(1 for _ in (store.files / "clips" / str(project)).iterdir())


@pytest.fixture
def project(store):
    return store.projects.create("dots").id


def test_queries_do_not_wait_for_a_backlog_of_episodes(store, project):
    episodes = put(store, project, *range(10))
    segments = random_segments(10, 4, seed=99)
    store.queries.ask(project, segments, np.arange(10).reshape(5, 2))
    first = store.clips.without_video(project, 4)
    assert first == [*clip_ids(segments)[:3], episodes[-1]]
    store.clips.video_ready(project, first)
    rest = store.clips.without_video(project, 100)
    assert sorted(rest) == sorted(clip_ids(segments)[3:]), "older episodes need no drawing"


def test_old_episodes_go_with_their_files(store, project):
    episodes = put(store, project, *range(10))
    assert there(store, project, episodes) == [False] * 6 + [True] * EPISODES_KEPT
    assert shards(store, project) == EPISODES_KEPT
    for clip in episodes[6:]:
        assert store.clips.segments(project, [clip]).steps == 6
    again = put(store, project, 0)  # what had gone can come back
    assert store.clips.segments(project, again).steps == 6


def test_what_the_page_shows_stays(store, project):
    episodes = put(store, project, *range(3))
    store.clips.video_ready(project, episodes)
    videos = [store.clips.video_path(project, clip) for clip in episodes]
    for video in videos:
        video.parent.mkdir(parents=True, exist_ok=True)
        video.write_bytes(b"film")
    put(store, project, *range(3, 9))  # and none of these is drawn
    assert there(store, project, episodes) == [False, True, True]
    assert [video.exists() for video in videos] == [False, True, True]
    shown = store.reports.last_episode(project)
    assert shown.id == episodes[2]


@on_sqlite
def test_clips_that_share_a_file_with_old_episodes_stay(store, project):
    first, second = store.clips.put(project, random_segments(2, 4, seed=50), kind="episode")
    other = put(store, project, 0)
    store.queries.ask_stored(project, [(first, other[0])])
    put(store, project, *range(1, 9))
    assert there(store, project, [first, second]) == [True, False]
    assert store.clips.segments(project, [first]).steps == 4


@on_sqlite
def test_an_episode_that_goes_while_it_is_drawn_leaves_no_video(store, project, caplog):
    (slow,) = put(store, project, 0)

    def others_come(segments, row):
        put(store, project, *range(1, 9))
        return np.zeros((segments.real[row], 16, 16), np.uint8)

    with RenderWorker(store, others_come) as worker:
        assert worker.round() == 1
        assert worker.rendered == (0, 0)
    assert there(store, project, [slow]) == [False]
    video = store.clips.video_path(project, slow)
    assert not video.exists()
    assert not caplog.messages
