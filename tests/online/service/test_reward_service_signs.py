"""What the reward service reports to the store, for the pages that people see."""

import threading

from helpers.waiting import SECONDS, wait_until
from preferl.online.service.reward_service import serve_reward
from preferl.online.service.service_config import ServiceConfig
from preferl.store.status import Status
from preferl.training.reward_presets import RewardSettings


def status(world):
    services = {s.name: s for s in world.store.reports.services(world.project.id)}
    return services["reward"].status if "reward" in services else Status()


def test_the_service_reports_when_it_learns_next(world, tmp_path):
    config = ServiceConfig(
        out=tmp_path / "rewards",
        reward=RewardSettings(hidden=(16,), epochs=2, members=1),
        initial_epochs=2,
        min_answers=10,
        min_new_answers=5,
        max_wait=3600,
        poll_seconds=0.01,
        beat_seconds=0.05,
    )
    world.ask(40)
    stop = threading.Event()
    thread = threading.Thread(
        target=serve_reward, args=(config, world.store), kwargs={"stop": stop}
    )
    thread.start()
    try:
        wait_until(lambda: status(world).first_at == 10)
        world.answer(12)
        wait_until(lambda: status(world).version == 1)
        wait_until(lambda: status(world).next_at == status(world).looked_at + 5)
        newest = status(world).looked_at
        assert newest <= 12, "it may have looked before the tenth, and learned from it"
        world.answer(newest + 5 - world.store.reports.revision(world.project.id))
        wait_until(lambda: status(world).version == 2)
        wait_until(lambda: status(world).next_at == newest + 10)
    finally:
        stop.set()
        thread.join(SECONDS)
        assert not thread.is_alive()
