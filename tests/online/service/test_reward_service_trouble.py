"""Nothing that happens to the service is lost or reported wrongly."""

import shutil
import sqlite3
import threading
from dataclasses import replace

import pytest

from helpers.serving_rewards import QUICK, Serving, quick_service, serve_once, state
from helpers.waiting import wait_until
from preferl.errors import StorageError
from preferl.online.service import reward_service as serving
from preferl.online.service.reward_service import serve_reward
from preferl.store.store import Store
from preferl.training.publish import Publisher, version_folder, versions


@pytest.fixture
def config(tmp_path):
    return quick_service(tmp_path / "rewards")


def test_a_damaged_version_is_passed_over_and_its_number_not_used_again(world, config, caplog):
    world.ask(40)
    for count in (12, 6):
        world.answer(count)
        serve_once(config, world)
    (version_folder(config.out, 2) / "model.safetensors").write_bytes(b"half")
    world.answer(6)
    ((number, metrics),) = serve_once(config, world)
    assert number == 3
    assert metrics["answers"] == 24
    assert "Version 2 is passed over" in caplog.text


@pytest.mark.parametrize("harm", ["trainer", "settings"])
def test_what_cannot_be_gone_on_from_is_fitted_anew(world, config, harm, caplog):
    world.ask(40)
    world.answer(12)
    serve_once(config, world)
    if harm == "trainer":
        (version_folder(config.out, 1) / "trainer/tensors.safetensors").write_bytes(b"half")
    else:
        config = replace(config, reward=replace(QUICK, hidden=(8,)))
    world.answer(6)
    ((number, metrics),) = serve_once(config, world)
    assert (number, metrics["epochs"]) == (2, 10), "a first fit"
    assert "anew" in caplog.text or "new model" in caplog.text


def test_no_number_is_used_twice_where_the_folder_was_lost(world, config):
    world.ask(40)
    world.answer(12)
    serve_once(config, world)
    shutil.rmtree(config.out)
    ((number, _),) = serve_once(config, world)
    assert number == 2
    assert [row.version for row in world.store.reports.rewards(world.project.id)] == [1, 2]


def test_a_version_that_was_not_reported_is_reported_at_the_next_start(world, config, monkeypatch):
    world.ask_and_answer(12)

    class KilledError(BaseException):
        pass

    def die(*_, **__):
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(serving._Service, "_announce", die)
        with pytest.raises(KilledError):
            serve_once(config, world)
    assert versions(config.out) == [1]
    assert not world.store.reports.rewards(world.project.id)
    with Serving(config, world):
        wait_until(lambda: len(world.store.reports.rewards(world.project.id)) == 1)
    assert versions(config.out) == [1]


def test_a_failed_publication_is_reported_and_made_again_without_another_fit(
    world, config, monkeypatch
):
    monkeypatch.setattr(serving, "RETRIES", (0.05,))
    world.ask_and_answer(12)
    publish = Publisher.publish
    room = threading.Event()

    def full(self, *arguments, **more):
        if not room.is_set():
            raise StorageError("No space left on device")
        return publish(self, *arguments, **more)

    monkeypatch.setattr(Publisher, "publish", full)
    fitted = []
    fit = serving.OngoingFit.fit
    monkeypatch.setattr(serving.OngoingFit, "fit", lambda *a, **k: fitted.append(1) or fit(*a, **k))
    with Serving(config, world) as service:
        wait_until(lambda: state(world).state == "failed")
        assert "No space left" in state(world).problem
        room.set()
        wait_until(lambda: service.versions == [1])
        wait_until(lambda: state(world).state == "waiting")
        assert state(world).problem is None
    assert len(fitted) == 1


def test_a_locked_store_is_waited_for(world, config, monkeypatch):
    monkeypatch.setattr(serving, "RETRIES", (0.05,))
    world.ask_and_answer(12)
    file = world.store.files / "labels.db"
    monkeypatch.setattr("preferl.store.database.BUSY_SECONDS", 0.1)
    with Store.open(world.store.files) as impatient:
        held = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        held.execute("BEGIN IMMEDIATE")
        world.store = impatient
        with Serving(config, world) as service:
            wait_until(lambda: versions(config.out) == [1])
            service.look(3)
            held.execute("ROLLBACK")
            wait_until(lambda: len(impatient.reports.rewards(world.project.id)) == 1)
        assert (service.versions, service.error) == ([1], None)
        held.close()


def test_two_services_never_share_a_folder(world, config):
    with Serving(config, world) as first:
        wait_until(lambda: state(world).state == "waiting")
        with pytest.raises(StorageError, match="only publisher"):
            serve_reward(config, world.store)
        assert state(world).state != "failed", "the first one's signs of life are its own"
    assert first.error is None


def test_stopping_ends_a_long_fit_at_once_and_loses_nothing(world, config):
    world.ask_and_answer(12)
    long = replace(config, reward=replace(QUICK, epochs=10**6))
    with Serving(long, world) as service:
        wait_until(lambda: state(world).state == "fitting")
    assert service.error is None
    assert state(world).state == "stopped"
    assert versions(config.out) == []
    assert [n for n, _ in serve_once(config, world)] == [1]


def test_a_fit_that_hangs_is_distinguished_from_one_that_works(world, config, monkeypatch):
    world.ask_and_answer(12)
    go_on = threading.Event()
    fit = serving.OngoingFit.fit
    monkeypatch.setattr(serving.OngoingFit, "fit", lambda *a: go_on.wait() and fit(*a))
    with Serving(replace(config, stuck_after=0.2), world) as service:
        wait_until(lambda: state(world).state == "stuck")
        go_on.set()
        wait_until(lambda: service.versions == [1])
