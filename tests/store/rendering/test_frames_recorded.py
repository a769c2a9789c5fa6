"""Pictures that were recorded while an agent acted, in a store and as videos."""

import av
import numpy as np
import pytest

from helpers.gardens import Garden
from preferl.data.segments import Segments
from preferl.errors import DataError
from preferl.store.rendering.frames import EnvFrames, RecordedFrames, frame_source
from preferl.store.rendering.videos import RenderWorker
from preferl.store.stages import picture_state


@pytest.fixture
def walks():
    """Two clips of three steps, with their pictures."""
    env = Garden("rgb_array")
    seen = []
    states = []
    for seed in range(2):
        observation, _ = env.reset(seed=seed)
        for _ in range(3):
            seen.append(observation)
            states.append(picture_state(env.render()))
            observation = env.step(np.ones(2))[0]
    columns = np.stack(seen), np.zeros((6, 2)), np.zeros(6)
    return Segments(*columns, np.array([0, 3]), np.array([3, 3]), 3, states=np.stack(states))


def test_a_store_keeps_and_plays_them(walks, store):
    project = store.projects.create("walks", frames={"kind": "recorded"}, fps=5).id
    clips = store.clips.put(project, walks)
    store.queries.ask(project, walks, np.array([[0, 1]]))
    with RenderWorker(store) as worker:
        worker.round()
        assert worker.rendered == (2, 0)
    with av.open(str(store.clips.video_path(project, clips[0]))) as video:
        assert sum(1 for _ in video.decode(video=0)) == 3


def test_an_environment_that_is_not_here_is_not_needed(walks):
    source = EnvFrames("nowhere:Garden-v0")
    drawn = list(source(walks, 1))
    np.testing.assert_array_equal(drawn, list(RecordedFrames()(walks, 1)))
    assert drawn[0].shape == (60, 90, 3)


def test_where_none_were_recorded_the_message_explains_how(walks):
    bare = Segments(walks.observations, walks.actions, walks.rewards, walks.start, walks.real, 3)
    with pytest.raises(DataError, match=r"recorded pictures: expected some.*`states=True`"):
        next(frame_source({"kind": "recorded"})(bare, 0))
