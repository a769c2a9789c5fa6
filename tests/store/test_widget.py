import re

import numpy as np
import pytest

from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.store.widget import ANSWERS, NotebookQueue
from preferl.testing.feedback_contracts import example_segments


@pytest.fixture
def dots(tmp_path):
    with Store.open(tmp_path / "store") as store:
        settings = {"repeat_share": 0.0, "known_share": 0.0}
        project = store.projects.create("dots", question="Which is <b>better</b>?", **settings)
        store.queries.ask(project.id, example_segments(0), np.array([[0, 1], [2, 3]]))
        clips = store.clips.without_video(project.id, 10)
        for clip in clips:
            path = store.clips.video_path(project.id, clip)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(clip.encode())
        store.clips.video_ready(project.id, clips)
        yield store, project


def test_answers_in_a_notebook_are_answers_like_any_other(dots):
    store, project = dots
    queue = NotebookQueue(store, project, "Ann")
    assert "Which is &lt;b&gt;better" in queue.html
    assert len(re.findall(r'src="data:video/mp4;base64,', queue.html)) == 2
    first = queue.query
    queue.answer("left")
    assert queue.query.query_id != first.query_id
    votes = store.queries.votes(project.id)
    assert votes.names == ("Ann",)
    assert votes.preference.tolist() == [0.0 if first.swapped else 1.0]
    assert votes.response_ms[0] >= 0
    assert "1 by you, 1 of 2 by all" in queue.html
    queue.undo()
    assert queue.query.query_id == first.query_id
    assert (queue.query.left, queue.query.right) == (first.left, first.right)
    queue.answer("equal")
    queue.answer("cannot_tell")
    assert queue.query is None
    assert "annotate render" in queue.html
    queue.answer("left")  # nothing is asked, so nothing is stored
    assert len(store.queries.votes(project.id).query) == 2


def test_what_was_answered_on_the_page_is_returned(dots):
    store, project = dots
    queue = NotebookQueue(store, project)
    assert queue.person.role == "admin"
    store.queue.answer(queue.person.id, queue.query.token, "on-the-page", "left")
    queue.answer("right")
    assert "answered already" in queue.html
    assert queue.query is not None
    again = NotebookQueue(store, project)
    assert again.query.query_id == queue.query.query_id


def test_buttons_do_what_they_say(dots):
    pytest.importorskip("ipywidgets")
    store, project = dots
    box = StoredFeedback(store, project.slug).widget("Ann")
    screen, row = box.children
    buttons = {button.description: button for button in row.children}
    assert list(buttons) == [*ANSWERS.values(), "Undo", "Look again"]
    buttons["Equal"].click()
    assert "1 by you" in screen.value
    buttons["Undo"].click()
    assert "0 by you" in screen.value
    buttons["Later"].click()
    buttons["Equal"].click()
    buttons["Equal"].click()
    assert buttons["Equal"].disabled
    assert not buttons["Undo"].disabled
    assert store.queries.votes(project.id).preference.tolist() == [0.5, 0.5]


def test_nothing_to_take_back(dots):
    queue = NotebookQueue(*dots)
    queue.undo()
    assert "no answer to undo" in queue.html
