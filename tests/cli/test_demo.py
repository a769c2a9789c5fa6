"""The demo with people: the real page and its programs, and somebody who answers at the store."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import pytest

from helpers.waiting import SECONDS, wait_until
from preferl.cli.demo import DemoConfig, _project_of_run, demo
from preferl.errors import ConfigError, StorageError
from preferl.online import OnlineConfig
from preferl.runs import open_run
from preferl.store import Store


def test_one_way_of_asking(tmp_path):
    with pytest.raises(ConfigError, match="one of"):
        demo(DemoConfig(ask=True, people=True, out=tmp_path / "run"))


class Somebody(threading.Thread):
    """Answers whatever is asked in the newest project of a store, so many times.

    After `rests_after` answers it goes on once there is a reward.
    """

    def __init__(self, labels: Path, most: float = math.inf, rests_after: float = math.inf) -> None:
        super().__init__()
        self.labels, self.most, self.rests_after, self.given = labels, most, rests_after, 0
        self.done, self.had_enough = threading.Event(), threading.Event()
        self.open_after_reward: list[int] = []  # pairs, whenever a reward was just published

    def run(self) -> None:
        wait_until((self.labels / "labels.db").is_file, "no labels were made")
        with Store.open(self.labels) as store:
            projects = wait_until(store.projects.all, "no project was made")
            project = projects[-1]
            known = {person.name: person for person in store.people.all(project.id)}
            ann = known.get("Ann") or store.people.invite(project.id, "Ann").annotator
            while not self.done.wait(0.05):
                rewards = len(store.reports.rewards(project.id))
                if rewards > len(self.open_after_reward):
                    self.open_after_reward.append(store.reports.open(project.id))
                if self.given >= self.most:
                    self.had_enough.set()
                rests = self.given >= self.rests_after and not rewards
                if self.given >= self.most or rests:
                    continue
                for question in store.queue.claim(project.id, ann.id, 1).questions:
                    key = f"answer-{time.monotonic_ns()}"
                    store.queue.answer(ann.id, question.token, key, "left")
                    self.given += 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.join()


def test_a_resumed_demo_has_the_project_of_its_run(tmp_path):
    with open_run(tmp_path / "run", config=OnlineConfig(), seed=0):
        pass
    began = (tmp_path / "run/config.json").stat().st_mtime
    with Store.open(tmp_path / "labels") as store:
        with pytest.raises(StorageError, match="the answers that it was begun with, got none"):
            _project_of_run(store, tmp_path / "run")
        for name in ("pendulum-1", "pendulum-2"):
            store.projects.create(name)
        first, second = (project.created_at for project in store.projects.all())
        os.utime(tmp_path / "run/config.json", (began, (first + second) / 2))
        assert _project_of_run(store, tmp_path / "run").slug == "pendulum-1"
        os.utime(tmp_path / "run/config.json", (began, second + 1))
        assert _project_of_run(store, tmp_path / "run").slug == "pendulum-2"


@pytest.mark.slow
def test_people_teach_the_pendulum_in_their_browser(tmp_path):
    labels = tmp_path / "run-labels"
    config = DemoConfig(people=True, browser=False, smoke=True, comparisons=8, out=tmp_path / "run")
    with Somebody(labels, rests_after=2) as person:
        demo(config)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["comparisons"] == 8
    assert not result["interrupted"]
    videos = list((labels / "videos").rglob("*.mp4"))
    assert len(videos) == 16, "people saw what they judged"
    assert person.open_after_reward[0] > 0, "there is something to answer while the agent learns"
    with Store.open(labels) as store:
        (project,) = store.projects.all()
        rewards = store.reports.rewards(project.id)
        (agent,) = [s for s in store.reports.services(project.id) if s.name == "agent"]
    assert [reward.version for reward in rewards] == list(range(1, len(rewards) + 1))
    assert agent.status.steps == result["env_steps"]
    assert agent.status.reward_version == len(rewards)
    assert agent.status.mean_return < 0


@pytest.mark.slow
def test_an_interrupted_demo_goes_on_with_its_labels(tmp_path):
    labels, out = tmp_path / "run-labels", tmp_path / "run"
    words = ["demo", "--people", "--no-browser", "--smoke", "--comparisons", "8", "--out", str(out)]
    command = [sys.executable, "-m", "preferl", *words]
    with (
        Somebody(labels, most=3) as person,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program,
    ):
        wait_until(person.had_enough.is_set, "nothing was asked")
        program.send_signal(signal.SIGINT)
        printed, _ = program.communicate(timeout=SECONDS)
    assert program.returncode == 130
    assert "--resume" in printed
    config = DemoConfig(people=True, browser=False, smoke=True, comparisons=8, out=out, resume=True)
    with Somebody(labels) as other:
        demo(config)
    result = json.loads((out / "result.json").read_text())
    assert result["comparisons"] == 8
    assert person.given + other.given == 8, "nobody was asked twice"
    with Store.open(labels) as store:
        assert len(store.projects.all()) == 1
