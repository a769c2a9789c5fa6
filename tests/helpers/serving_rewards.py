"""A service that fits in no time, here or in a thread, and the status that it reports."""

import threading

from helpers.waiting import SECONDS, wait_until
from preferl.online.service.reward_service import serve_reward
from preferl.online.service.service_config import ServiceConfig
from preferl.store.status import Status
from preferl.training.reward_presets import RewardSettings

QUICK = RewardSettings(hidden=(16,), epochs=4, members=2)


def quick_service(out):
    """Settings by which a few answers make a version at once."""
    return ServiceConfig(
        out=out,
        reward=QUICK,
        initial_epochs=10,
        min_answers=10,
        min_new_answers=5,
        max_wait=3600,
        poll_seconds=0.01,
        beat_seconds=0.05,
    )


def serve_once(config, world, until=1):
    """Serve until so many versions were published by this service."""
    stop = threading.Event()
    versions = []

    def on_version(number, metrics):
        versions.append((number, metrics))
        if len(versions) >= until:
            stop.set()

    timer = threading.Timer(SECONDS, stop.set)
    timer.start()
    try:
        newest = serve_reward(config, world.store, stop=stop, on_version=on_version)
    finally:
        timer.cancel()
    assert len(versions) == until, "it took too long"
    assert newest == versions[-1][0]
    return versions


class CountedLooks(threading.Event):
    """Stops a service, and counts how often it has looked for answers: it waits after each."""

    looks = 0

    def wait(self, timeout=None):
        self.looks += 1
        return super().wait(timeout)


class Serving:
    """A service in a thread."""

    def __init__(self, config, world):
        self.stop = CountedLooks()
        self.versions = []
        self.error = None
        self.thread = threading.Thread(target=self.run, args=(config, world))

    def run(self, config, world):
        try:
            serve_reward(
                config, world.store, stop=self.stop, on_version=lambda n, _: self.versions.append(n)
            )
        except Exception as error:
            self.error = error

    def look(self, times=2):
        """Wait until the service has looked so often from now on; the first may be under way."""
        before = self.stop.looks
        wait_until(lambda: self.stop.looks >= before + times, "the service looks")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()


def state(world):
    """What the service reports of itself; one that has just started, until it does."""
    services = {each.name: each.status for each in world.store.reports.services(world.project.id)}
    return services.get("reward", Status())
