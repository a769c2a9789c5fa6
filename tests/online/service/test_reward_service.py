"""Answers become versions, as often as is wanted and as if nobody had ever stopped."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from helpers.serving_rewards import Serving, quick_service, serve_once, state
from helpers.waiting import wait_until
from preferl.data.validation import TRAIN, validation_split
from preferl.errors import ConfigError
from preferl.online.service.ongoing_fit import OngoingFit
from preferl.online.service.reward_service import serve_reward
from preferl.reporting import read_jsonl
from preferl.store.feedback import Answered, StoredFeedback
from preferl.store.progress import Reports
from preferl.training.publish import PublishedReward, publish, read_version, write_spaces
from preferl.training.reward_presets import RewardSettings


@pytest.fixture
def config(tmp_path):
    return quick_service(tmp_path / "rewards")


def test_answers_become_versions(world, config):
    world.ask_and_answer(60)
    longer = replace(config, initial_epochs=40, reward_deviation=0.05)
    ((number, metrics),) = serve_once(longer, world)
    assert number == 1
    published = PublishedReward(config.out)
    assert published.refresh()
    assert published.metrics == metrics
    assert metrics["answers"] == 60
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics
    assert metrics["trained_on"] + metrics["held_out"] == 60
    assert metrics["low"] <= metrics["accuracy"] <= metrics["high"]
    assert metrics["accuracy"] >= 0.7, "the better clip has the higher first observation"
    (row,) = world.store.reports.rewards(world.project.id)
    assert (row.version, row.answers, row.accuracy) == (1, 60, metrics["accuracy"])
    assert (row.low, row.high, row.detail) == (metrics["low"], metrics["high"], metrics)
    given = world.store.answers.page(world.project.id, size=60).answers
    right = [(row.predicted > 0.5) == (row.answer.kind == "left") for row in given]
    assert sum(right) / 60 > 0.7, "people see what it predicts of their answers"
    assert state(world).state == "stopped"
    comparisons = StoredFeedback(world.store).comparisons()
    reward = published.reward
    rewards = reward.scaler(reward.member_rewards(comparisons.segments.episodes()))
    assert np.abs(rewards.mean(1)).max() < 1e-3, "the scale is that of the answered clips"
    np.testing.assert_allclose(rewards.std(1), 0.05, rtol=1e-3)


def test_trust_in_people_is_published_where_it_is_known_who_answered(world, config):
    world.ask_and_answer(40)
    ((_, metrics),) = serve_once(replace(config, combine="each"), world)
    (about,) = metrics["trust"].values()
    assert about["low"] < about["value"] < about["high"]
    assert world.store.reports.rewards(world.project.id)[0].metrics.trust == metrics["trust"]
    answered = StoredFeedback(world.store, combine="each").answers()
    assert set(metrics["trust"]) == {answered.names[row] for row in answered.comparisons.annotator}


def test_it_waits_for_enough_answers_and_then_for_enough_new_ones(world, config):
    world.ask(40)
    with Serving(config, world) as service:
        world.answer(9)
        wait_until(lambda: state(world).behind == 9)
        assert state(world).first_at == 10
        service.look()
        assert service.versions == []
        world.answer(1)
        wait_until(lambda: service.versions == [1])
        wait_until(lambda: state(world).next_at == 15)
        world.answer(4)
        wait_until(lambda: state(world).behind == 4)
        service.look()
        assert service.versions == [1]
        world.answer(1)
        wait_until(lambda: service.versions == [1, 2])
        wait_until(lambda: state(world).next_at == 20)
    assert service.error is None


def test_an_answer_that_comes_while_it_looks_waits_for_the_next_look(world, config, monkeypatch):
    world.ask(20)
    world.answer(9)
    read = Reports.revision

    def then_another_answer(reports, project):
        found = read(reports, project)
        if found == 9:
            world.answer(1)
        return found

    monkeypatch.setattr(Reports, "revision", then_another_answer)
    ((_, metrics),) = serve_once(config, world)
    assert (metrics["revision"], metrics["answers"]) == (10, 10)


def test_a_single_answer_is_enough_after_a_while(world, config):
    world.ask(20)
    world.answer(10)
    with Serving(replace(config, max_wait=0.2), world) as service:
        wait_until(lambda: service.versions == [1])
        world.answer(1)
        wait_until(lambda: service.versions == [1, 2])
        service.look(30)  # longer than an answer waits
        assert service.versions == [1, 2], "without news there is nothing to fit"
        wait_until(lambda: state(world).state == "waiting")


def test_what_changes_no_answer_makes_no_version(world, config):
    world.ask(20)
    world.answer(10)
    with Serving(replace(config, max_wait=0.0), world) as service:
        wait_until(lambda: service.versions == [1])
        question = world.store.queue.claim(world.project.id, world.person, 1).queries[0]
        world.store.queue.answer(world.person, question.token, "cannot-tell-this", "cannot_tell")
        wait_until(lambda: state(world).behind == 1)
        service.look()
        assert service.versions == [1]


@pytest.fixture(params=["folder", "storage"])
def machines(request, config, tmp_path, monkeypatch):
    """Settings of a service that goes on in the same folder, or on another machine each time."""

    def settings():
        nonlocal number
        number += 1
        monkeypatch.setenv("PREFERL_CACHE", str(tmp_path / f"machine-{number}"))
        return config if request.param == "folder" else replace(config, out=url)

    number = 0
    url = None
    if request.param == "storage":
        url = f"{request.getfixturevalue('bucket')}/rewards"
    return settings


def test_stopped_and_started_again_is_as_if_it_had_never_stopped(world, config, machines):
    world.ask(24)
    world.answer(12)
    serve_once(machines(), world)
    world.answer(6)
    serve_once(machines(), world)
    stopped = read_version(machines().out, 2)

    answered = StoredFeedback(world.store).answers()
    asked = world.store.queries.query_clips(world.project.id)
    side = dict(
        zip(
            [a for a, _, _ in asked],
            validation_split([(b, c) for _, b, c in asked], 0.2),
            strict=True,
        )
    )
    unbroken = OngoingFit(config, lambda: None)
    for count in (12, 18):
        some = Answered(answered.queries[:count], answered.comparisons[:count])
        chosen = np.array([side[query] for query in some.queries])
        reward, _ = unbroken.fit(some, chosen, None)
    for name, value in reward.model.state_dict().items():
        torch.testing.assert_close(stopped.reward.model.state_dict()[name], value)
    trained_on = sum(side[query] == TRAIN for query in answered.queries.tolist())
    assert stopped.metrics["trained_on"] == trained_on


@pytest.mark.parametrize("model", ["nmr", "pt"])
def test_published_models_are_served_and_gone_on_with(world, config, model):
    small = RewardSettings(model=model, epochs=1)
    config = replace(config, reward=small, initial_epochs=2, context=6 if model == "nmr" else None)
    world.ask(24)
    epochs = []
    for count in (12, 6):
        world.answer(count)
        ((_, metrics),) = serve_once(config, world)
        epochs.append(metrics["epochs"])
    assert epochs == [2, 1], "the second service goes on from the first"
    assert read_version(config.out, 2).reward.context == {"nmr": 6, "pt": 4}[model]


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


def test_spaces_that_are_written_later_make_another_version_without_another_answer(world, config):
    written = (spaces.Box(-9, 9, (3,)), spaces.Box(-1, 1, (1,)))
    world.ask_and_answer(12)
    with Serving(config, world) as service:
        wait_until(lambda: service.versions == [1])
        write_spaces(config.out, *written)
        wait_until(lambda: service.versions == [1, 2])
        service.look()
    assert service.versions == [1, 2]
    reward = read_version(config.out, 2).reward
    assert (reward.observation_space, reward.action_space) == written
    others = (spaces.Box(-8, 8, (3,)), written[1])
    write_spaces(config.out, *others)
    ((number, metrics),) = serve_once(config, world)
    assert (number, metrics["answers"]) == (3, 12), "also where it was told while it was away"


def test_metrics_of_each_version_are_reported_by_answers(world, config):
    world.ask_and_answer(40)
    with pytest.raises(ConfigError, match="jsonl, tensorboard, wandb"):
        serve_reward(config, world.store, world.project.id, report_to=("pigeon",))
    assert not config.out.exists()
    stop = threading.Event()
    found = {}

    def published(_, metrics):
        found.update(metrics)
        stop.set()

    options = {"stop": stop, "on_version": published, "report_to": ("jsonl",)}
    serve_reward(config, world.store, world.project.id, **options)
    written = read_jsonl(config.out / "metrics.jsonl")
    expected = {
        "step": 40,
        "reward/version": 1,
        "reward/validation_accuracy": found["accuracy"],
        "reward/validation_accuracy_low": found["low"],
        "reward/validation_answers": found["decided"],
    }
    assert {name: written[name].tolist() for name in expected} == {
        name: [value] for name, value in expected.items()
    }


def test_a_service_stops_publishing_beside_another_one(world, bucket, tmp_path, monkeypatch):
    """On one machine a lock keeps the second from starting; on two there is none."""
    url = f"{bucket}/rewards"
    monkeypatch.setenv("PREFERL_CACHE", str(tmp_path / "one"))
    world.ask_and_answer(12)
    with Serving(quick_service(url), world) as service:
        wait_until(lambda: service.versions == [1])
        monkeypatch.setenv("PREFERL_CACHE", str(tmp_path / "other"))
        publish(url, read_version(url, 1).reward)
        world.ask_and_answer(6)
        wait_until(lambda: state(world).state == "failed")
        assert "version 2 of another service. Stop one of the two" in state(world).problem
        assert service.versions == [1]
