"""The demo with people: the real page and its programs, and somebody who answers at the store."""

import json
import threading
import time

import pytest

from helpers.waiting import wait_until
from preferl.cli.demo import DemoConfig, demo
from preferl.errors import ConfigError
from preferl.store import Store


def test_one_way_of_asking(tmp_path):
    with pytest.raises(ConfigError, match="one of"):
        demo(DemoConfig(ask=True, people=True, out=tmp_path / "run"))


@pytest.mark.slow
def test_people_teach_the_pendulum_in_their_browser(tmp_path):
    labels, done = tmp_path / "run-labels", threading.Event()

    def somebody() -> None:
        wait_until((labels / "labels.db").is_file, "no labels were made")
        with Store.open(labels) as store:
            (project,) = wait_until(store.projects.all, "no project was made")
            ann = store.people.invite(project.id, "Ann").annotator.id
            while not done.wait(0.05):
                for question in store.queue.claim(project.id, ann, 1).questions:
                    key = f"answer-{time.monotonic_ns()}"
                    store.queue.answer(ann, question.token, key, "left")

    person = threading.Thread(target=somebody)
    person.start()
    try:
        demo(
            DemoConfig(people=True, browser=False, smoke=True, comparisons=4, out=tmp_path / "run")
        )
    finally:
        done.set()
        person.join()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["comparisons"] == 4
    assert not result["interrupted"]
    videos = list((labels / "videos").rglob("*.mp4"))
    assert len(videos) == 8, "people saw what they judged"
