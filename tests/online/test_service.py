"""Answers become versions; nothing that happens to the service is lost or told wrongly."""

import json
import os
import shutil
import sqlite3
import subprocess
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from answered_store import Answering
from gymnasium import spaces

from preferl.errors import ConfigError, FeedbackError, StorageError
from preferl.online import service as serving
from preferl.online.ongoing_fit import OngoingFit
from preferl.online.service import serve_reward
from preferl.online.service_config import ServiceConfig
from preferl.online.sides import TRAIN, sides
from preferl.store.feedback import Answered, StoredFeedback
from preferl.store.store import Store
from preferl.threads import half_of_the_cores, torch_threads
from preferl.training.publish import PublishedReward, Publisher
from preferl.training.reward_presets import RewardSettings
from preferl.training.versions import read_version, tell_spaces, version_folder, versions

QUICK = RewardSettings(hidden=(16,), epochs=4, members=2)


@pytest.fixture
def world(tmp_path):
    with Store.open(tmp_path / "store") as store:
        yield Answering(store)


@pytest.fixture
def config(tmp_path):
    return ServiceConfig(
        out=tmp_path / "rewards",
        reward=QUICK,
        first_epochs=10,
        min_answers=10,
        min_new_answers=5,
        poll_seconds=0.01,
        beat_seconds=0.05,
    )


def serve_once(config, world, until=1):
    """Serve until so many versions were published by this service."""
    stop, told = threading.Event(), []

    def on_version(number, metrics):
        told.append((number, metrics))
        if len(told) >= until:
            stop.set()

    timer = threading.Timer(120, stop.set)
    timer.start()
    newest = serve_reward(config, world.store, stop=stop, on_version=on_version)
    timer.cancel()
    assert len(told) == until, "it took too long"
    assert newest == told[-1][0]
    return told


class Serving:
    """A service in a thread."""

    def __init__(self, config, world):
        self.stop = threading.Event()
        self.told = []
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(config, world))

    def _run(self, config, world):
        try:
            serve_reward(
                config, world.store, stop=self.stop, on_version=lambda n, _: self.told.append(n)
            )
        except Exception as error:
            self.error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def wait_for(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def state(world):
    return {s.name: s for s in world.store.live.services(world.project.id)}.get("reward")


def test_answers_become_versions(world, config):
    world.ask_and_answer(60)
    (number, metrics), = serve_once(replace(config, first_epochs=40), world)  # fmt: skip
    assert number == 1
    published = PublishedReward(config.out)
    assert published.refresh()
    assert published.metrics == metrics
    assert metrics["answers"] == 60
    assert metrics["trained_on"] + metrics["held_out"] == 60
    assert metrics["low"] <= metrics["accuracy"] <= metrics["high"]
    assert metrics["accuracy"] >= 0.7, "the better clip has the higher first observation"
    (row,) = world.store.live.rewards(world.project.id)
    assert (row.version, row.answers, row.accuracy) == (1, 60, metrics["accuracy"])
    assert (row.low, row.high, row.detail) == (metrics["low"], metrics["high"], metrics)
    assert state(world).state == "stopped"
    comparisons = StoredFeedback(world.store).comparisons()
    paid = published.reward.combine(
        published.reward.member_rewards(comparisons.segments.episodes())
    )
    assert abs(paid.mean()) < 1e-3, "the scale is that of the clips that were answered"


def test_members_keep_their_deviation(world, config):
    world.ask_and_answer(20)
    serve_once(replace(config, deviation=0.05, reward=replace(QUICK, members=1)), world)
    reward = read_version(config.out, 1).reward
    comparisons = StoredFeedback(world.store).comparisons()
    paid = reward.combine(reward.member_rewards(comparisons.segments.episodes()))
    assert paid.std() == pytest.approx(0.05, rel=1e-3)


def test_it_waits_for_enough_answers_and_then_for_enough_new_ones(world, config):
    world.ask(40)
    with Serving(replace(config, max_wait=3600), world) as service:
        world.answer(9)
        wait_for(lambda: state(world) and state(world).detail.get("behind") == 9)
        time.sleep(0.1)
        assert service.told == []
        world.answer(1)
        wait_for(lambda: service.told == [1])
        world.answer(4)
        wait_for(lambda: state(world).detail.get("behind") == 4)
        time.sleep(0.1)
        assert service.told == [1]
        world.answer(1)
        wait_for(lambda: service.told == [1, 2])
    assert service.error is None


def test_a_single_answer_is_enough_after_a_while(world, config):
    world.ask(20)
    world.answer(10)
    with Serving(replace(config, max_wait=0.2), world) as service:
        wait_for(lambda: service.told == [1])
        world.answer(1)
        wait_for(lambda: service.told == [1, 2])
        time.sleep(0.5)
        assert service.told == [1, 2], "without news there is nothing to fit"
        assert state(world).state == "waiting"


def test_what_changes_no_answer_makes_no_version(world, config):
    world.ask(20)
    world.answer(10)
    with Serving(replace(config, max_wait=0.0), world) as service:
        wait_for(lambda: service.told == [1])
        question = world.store.queue.claim(world.project.id, world.person, 1).questions[0]
        world.store.queue.answer(world.person, question.token, "cannot-tell-this", "cannot_tell")
        wait_for(lambda: state(world).detail.get("behind") == 1)
        time.sleep(0.2)
        assert service.told == [1]


def test_stopped_and_started_again_is_as_if_it_had_never_stopped(world, config):
    world.ask(24)
    world.answer(12)
    serve_once(config, world)
    world.answer(6)
    serve_once(config, world)
    stopped = read_version(config.out, 2)

    answered = StoredFeedback(world.store).answered()
    asked = world.store.questions.asked(world.project.id)
    side = dict(
        zip([a for a, _, _ in asked], sides([(b, c) for _, b, c in asked], 0.2), strict=True)
    )
    unbroken = OngoingFit(config, lambda: None)
    for count in (12, 18):
        some = Answered(answered.queries[:count], answered.comparisons[:count])
        chosen = np.array([side[query] for query in some.queries])
        reward = unbroken.fit(some, chosen, None).reward
    for name, value in reward.model.state_dict().items():
        torch.testing.assert_close(stopped.reward.model.state_dict()[name], value)
    trained_on = sum(side[query] == TRAIN for query in answered.queries.tolist())
    assert stopped.metrics["trained_on"] == trained_on


@pytest.mark.parametrize("model", ["mr", "nmr", "pt"])
def test_published_models_are_served_and_gone_on_with(world, config, model):
    small = RewardSettings(model=model, epochs=1, hidden=(8,) if model == "mr" else None)
    config = replace(config, reward=small, first_epochs=2, context=6 if model == "nmr" else None)
    world.ask(24)
    epochs = []
    for count in (12, 6):
        world.answer(count)
        ((_, metrics),) = serve_once(config, world)
        epochs.append(metrics["epochs"])
    assert epochs == [2, 1], "the second service goes on from the first"
    assert read_version(config.out, 2).reward.context == {"mr": 1, "nmr": 6, "pt": 4}[model]


def test_started_again_without_news_it_publishes_nothing(world, config):
    world.ask_and_answer(12)
    serve_once(config, world)
    with Serving(replace(config, max_wait=0.0), world) as service:
        wait_for(lambda: state(world).state == "waiting")
        time.sleep(0.2)
    assert service.told == []
    assert versions(config.out) == [1]


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
        (version_folder(config.out, 1) / "trainer.safetensors").write_bytes(b"half")
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
    assert [row.version for row in world.store.live.rewards(world.project.id)] == [1, 2]


def test_a_version_that_nobody_was_told_of_is_told_at_the_next_start(world, config, monkeypatch):
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
    assert not world.store.live.rewards(world.project.id)
    with Serving(config, world):
        wait_for(lambda: len(world.store.live.rewards(world.project.id)) == 1)
    assert versions(config.out) == [1]


def test_a_failed_publication_is_said_and_made_again_without_another_fit(
    world, config, monkeypatch
):
    monkeypatch.setattr(serving, "RETRIES", (0.05,))
    world.ask_and_answer(12)
    publish, room = Publisher.publish, threading.Event()

    def full(self, *arguments, **more):
        if not room.is_set():
            raise StorageError("No space left on device")
        return publish(self, *arguments, **more)

    monkeypatch.setattr(Publisher, "publish", full)
    fitted = []
    fit = serving.OngoingFit.fit
    monkeypatch.setattr(serving.OngoingFit, "fit", lambda *a, **k: fitted.append(1) or fit(*a, **k))
    with Serving(config, world) as service:
        wait_for(lambda: state(world) and state(world).state == "failed")
        assert "No space left" in state(world).detail["problem"]
        room.set()
        wait_for(lambda: service.told == [1])
        wait_for(lambda: state(world).state == "waiting")
        assert state(world).detail["problem"] is None
    assert len(fitted) == 1


def test_a_full_disk_delays_a_version_and_loses_nothing(world, config, monkeypatch, tmp_path):
    monkeypatch.setattr(serving, "RETRIES", (0.1,))
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can only be mounted by root")
    try:
        out = disk / "rewards"
        published = PublishedReward(out)
        world.ask(40)
        world.answer(10)  # before it starts, so that the first version is from all of them
        # The fit may begin before the last answers, and fewer than five then wait for this long.
        soon = replace(config, out=out, max_wait=0.1)
        with Serving(soon, world) as service:
            wait_for(lambda: service.told == [1])
            with (disk / "filler").open("ab", buffering=0) as filler:
                while free := shutil.disk_usage(disk).free:
                    filler.write(bytes(free))
            world.answer(10)
            wait_for(lambda: state(world).state == "failed")
            assert "space" in state(world).detail["problem"]
            assert published.refresh()
            assert (published.version, published.problem) == (1, None)
            (disk / "filler").unlink()
            wait_for(lambda: world.store.live.rewards(world.project.id)[-1].answers == 20)
        assert service.told[:2] == [1, 2]
        assert published.refresh()
        assert published.metrics["answers"] == 20
    finally:
        subprocess.run(["umount", str(disk)], check=True)


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
            wait_for(lambda: versions(config.out) == [1])
            time.sleep(0.5)
            held.execute("ROLLBACK")
            wait_for(lambda: len(impatient.live.rewards(world.project.id)) == 1)
        assert (service.told, service.error) == ([1], None)
        held.close()


def test_two_services_never_share_a_folder(world, config):
    with Serving(config, world) as first:
        wait_for(lambda: state(world) is not None)
        with pytest.raises(StorageError, match="only publisher"):
            serve_reward(config, world.store)
        assert state(world).state != "failed", "the first one's signs of life are its own"
    assert first.error is None


def test_questions_of_old_rewards_are_asked_no_more_where_that_is_wanted(world, config):
    world.ask_and_answer(20)
    old = world.ask(3, model_version=0)
    new = world.ask(2, model_version=1)
    serve_once(replace(config, cancel_after=1), world)
    assert world.store.progress(world.project.id).open == 5, "version 1 is not after 0 by more"
    world.answer(1)
    serve_once(replace(config, cancel_after=1, max_wait=0.0), world)
    assert world.store.progress(world.project.id).open == 2
    assert len(old) + len(new) == 5


def test_told_spaces_are_those_of_the_model(world, config):
    told = (spaces.Box(-9, 9, (3,)), spaces.Box(-1, 1, (1,)))
    tell_spaces(config.out, *told)
    world.ask_and_answer(12)
    serve_once(config, world)
    reward = read_version(config.out, 1).reward
    assert (reward.observation_space, reward.action_space) == told


def test_spaces_that_are_told_later_make_another_version_without_another_answer(world, config):
    told = (spaces.Box(-9, 9, (3,)), spaces.Box(-1, 1, (1,)))
    world.ask_and_answer(12)
    with Serving(config, world) as service:
        wait_for(lambda: service.told == [1])
        tell_spaces(config.out, *told)
        wait_for(lambda: service.told == [1, 2])
        time.sleep(0.2)
    assert service.told == [1, 2]
    reward = read_version(config.out, 2).reward
    assert (reward.observation_space, reward.action_space) == told
    others = (spaces.Box(-8, 8, (3,)), told[1])
    tell_spaces(config.out, *others)
    ((number, metrics),) = serve_once(config, world)
    assert (number, metrics["answers"]) == (3, 12), "also where it was told while it was away"


def test_stopping_ends_a_long_fit_at_once_and_loses_nothing(world, config):
    world.ask_and_answer(12)
    long = replace(config, reward=replace(QUICK, epochs=10**6))
    with Serving(long, world) as service:
        wait_for(lambda: state(world) and state(world).state == "fitting")
    assert service.error is None
    assert state(world).state == "stopped"
    assert versions(config.out) == []
    assert [n for n, _ in serve_once(config, world)] == [1]


def test_a_fit_that_hangs_is_told_from_one_that_works(world, config, monkeypatch):
    world.ask_and_answer(12)
    go_on = threading.Event()
    fit = serving.OngoingFit.fit
    monkeypatch.setattr(serving.OngoingFit, "fit", lambda *a: go_on.wait() and fit(*a))
    with Serving(replace(config, stuck_after=0.2), world) as service:
        wait_for(lambda: state(world) and state(world).state == "stuck")
        go_on.set()
        wait_for(lambda: service.told == [1])


def test_an_error_that_nobody_expected_ends_it_with_words(world, config, monkeypatch):
    world.ask_and_answer(12)

    def broken(*_):
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(serving.OngoingFit, "fit", broken)
    with pytest.raises(ZeroDivisionError):
        serve_reward(config, world.store)
    assert state(world).state == "failed"
    assert state(world).detail["problem"] == "ZeroDivisionError: by nought"


def test_settings_that_do_not_go_together_are_told_at_once(config, world):
    for wrong in ({"validation": 1.0}, {"keep": 0}, {"deviation": 0.0}, {"cancel_after": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            replace(config, **wrong)
    with pytest.raises(ConfigError, match="hidden"):
        replace(config, reward=RewardSettings(model="nmr", hidden=(8,)))
    with pytest.raises((ConfigError, FeedbackError)):
        serve_reward(config, world.store, "nobody")


def test_metrics_are_json(world, config):
    world.ask_and_answer(12)
    ((_, metrics),) = serve_once(replace(config, validation=0.0), world)
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics
    assert (metrics["accuracy"], metrics["held_out"]) == (None, 0)


@pytest.mark.parametrize(("model", "threads", "taken"), [("mlp", None, 1), ("pt", 1, 1)])
def test_a_fit_takes_threads_that_others_do_not_need(tmp_path, model, threads, taken) -> None:
    config = ServiceConfig(tmp_path, RewardSettings(model), threads=threads)
    assert config.fit_threads == taken
    assert ServiceConfig(tmp_path, RewardSettings("nmr")).fit_threads == half_of_the_cores()
    with pytest.raises(ConfigError, match="threads"):
        replace(config, threads=0)


def test_threads_are_put_back_when_the_service_ends(world, config, monkeypatch) -> None:
    world.ask_and_answer(60)
    during = []
    fit = OngoingFit.fit

    def spy(self, *words):
        during.append(torch.get_num_threads())
        return fit(self, *words)

    monkeypatch.setattr(OngoingFit, "fit", spy)
    with torch_threads(2):
        serve_once(replace(config, threads=1), world)
        assert torch.get_num_threads() == 2
    assert during == [1]
