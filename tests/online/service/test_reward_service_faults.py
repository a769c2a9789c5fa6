"""The service killed at any moment, under load, with readers beside it: nothing half, nothing lost.

`PREFERL_KILLS` sets how often it is killed; the default is quick.
"""

import os
import random
import time

import numpy as np
import pytest

from helpers.answered_store import Answering
from helpers.programs import PROGRAMS
from helpers.waiting import SECONDS, wait_until
from preferl.online.service.reward_service import serve_reward
from preferl.online.service.service_config import ServiceConfig
from preferl.store.store import Store
from preferl.training.publish import PublishedReward, versions
from preferl.training.reward_presets import RewardSettings

KILLS = int(os.environ.get("PREFERL_KILLS", "10"))

pytestmark = pytest.mark.slow


def serve(folder, out):
    """What a process does that serves rewards."""
    config = ServiceConfig(
        out=out,
        reward=RewardSettings(hidden=(64,), epochs=3, members=3),
        initial_epochs=3,
        min_answers=5,
        min_new_answers=1,
        max_wait=0.0,
        poll_seconds=0.01,
        beat_seconds=0.1,
    )
    with Store.open(folder) as store:
        serve_reward(config, store)


def read(out, stop, seen):
    """What a process does that computes rewards: switches versions as fast as it can."""
    published = PublishedReward(out)
    step = (np.ones((1, 1, 3), np.float32), np.ones((1, 1, 1), np.float32), np.ones((1, 1), bool))
    while not stop.wait(0.002):
        before = published.version
        changed = published.refresh()
        if published.problem is not None:
            seen.put(("problem", published.problem))
        if changed:
            whole = published.version > before and np.isfinite(published.reward(*step)).all()
            seen.put(("version" if whole else "half", published.version))


@pytest.fixture
def processes():
    """Processes that start as programs do, with their imports done once."""
    return PROGRAMS


def go_on(world):
    """There always is something to answer, and somebody does."""
    if not world.answer(1):
        world.ask(20)
        world.answer(1)
    time.sleep(0.02)  # the pace of somebody who answers fast


def drain(queue):
    found = []
    while not queue.empty():
        found.append(queue.get())
    return found


def test_killed_at_random_it_loses_nothing_and_readers_see_whole_versions(tmp_path, processes):
    out = tmp_path / "rewards"
    folder = tmp_path / "store"
    rng = random.Random(7)
    stop = processes.Event()
    seen = processes.Queue()
    reader = processes.Process(target=read, args=(out, stop, seen), daemon=True)
    with Store.open(folder) as store:
        world = Answering(store)
        reader.start()
        restarted_at = []
        for _ in range(KILLS):
            service = processes.Process(target=serve, args=(folder, out), daemon=True)
            service.start()
            known = max(versions(out), default=0)
            wait_until(
                lambda: go_on(world) or max(versions(out), default=0) > known,  # noqa: B023
                "another version",
            )
            moment = time.monotonic() + rng.uniform(0.0, 0.5)
            while time.monotonic() < moment:
                go_on(world)
            service.kill()
            service.join()
            assert service.exitcode == -9, "it was at work until it was killed"
            restarted_at.append(max(versions(out), default=0))
        assert restarted_at == sorted(set(restarted_at)), "each one went on from the last"

        go_on(world)
        answers = store.progress(world.project.id).answered
        service = processes.Process(target=serve, args=(folder, out), daemon=True)
        service.start()

        def newest():
            return next(iter(store.reports.rewards(world.project.id)[-1:]), None)

        wait_until(lambda: newest() and newest().answers == answers, "a version of every answer")
        rewards = store.reports.rewards(world.project.id)
        events = []

        def is_read():
            events.extend(drain(seen))
            return events and events[-1][1] == rewards[-1].version

        wait_until(is_read, "the newest version is read")
        service.kill()
        service.join()
        stop.set()
        reader.join(SECONDS)
        assert {kind for kind, _ in events} == {"version"}, events
        assert [number for _, number in events] == sorted({number for _, number in events})
        assert rewards[-1].version == max(versions(out)) == events[-1][1]
        hidden = {path.name for path in out.iterdir() if path.name.startswith(".")}
        assert hidden == {".publisher"}, "the lock stays, and no draft does"
        assert PublishedReward(out).refresh()
        assert rewards[-1].accuracy is not None
