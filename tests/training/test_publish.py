"""Published rewards are whole or absent, whatever happens to their publisher or their disk."""

import os
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from gymnasium import spaces

from helpers.waiting import SECONDS, wait_until
from preferl.errors import CheckpointError, ConfigError, StorageError
from preferl.models import MLPReward, MLPRewardConfig
from preferl.runs import lock as folder_lock, versioned
from preferl.training import publish as publishing
from preferl.training.publish import (
    PublishedReward,
    Publisher,
    newest_reward,
    publish,
    read_spaces,
    version_folder,
    versions,
    write_spaces,
)
from preferl.training.reward_function import RewardFunction, save_reward

OBSERVATIONS = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Box(-1, 1, (1,))
STEP = (np.ones((1, 1, 3)), np.ones((1, 1, 1)), np.ones((1, 1), bool))


def reward_of(seed=0, hidden=(8,)):
    return RewardFunction(MLPReward(OBSERVATIONS, ACTIONS, MLPRewardConfig(hidden), seed=seed))


def value(reward):
    return float(reward(*STEP)[0])


def test_rewards_in_object_storage_reach_other_machines(bucket, tmp_path, monkeypatch, caplog):
    url = f"{bucket}/rewards"
    monkeypatch.setenv("PREFERL_CACHE", str(tmp_path / "there"))
    agent = PublishedReward(url)
    monkeypatch.setenv("PREFERL_CACHE", str(tmp_path / "here"))
    assert (agent.refresh(), read_spaces(url)) == (False, None)
    for number in range(1, 9):
        assert publish(url, reward_of(number), metrics={"n": number}) == number
        assert agent.refresh()
    assert (agent.version, agent.metrics, value(agent.reward)) == (8, {"n": 8}, value(reward_of(8)))
    assert newest_reward(url).number == 8
    assert versions(agent.synced) == [4, 5, 6, 7, 8], "as many as the publisher keeps"
    assert versions(agent.folder) == [4, 5, 6, 7, 8], "and no more copies of them"
    write_spaces(agent.synced, OBSERVATIONS, ACTIONS)
    assert read_spaces(url) == (OBSERVATIONS, ACTIONS)
    monkeypatch.setattr(agent.synced._storage, "ls", fail)
    publish(tmp_path / "other", reward_of())
    assert not agent.refresh()
    assert (agent.version, "Rewards cannot be read" in caplog.text) == (8, True)


def fail(*_, **__):
    raise TimeoutError("no reply")


def test_a_folder_that_was_emptied_brings_no_rewards_of_before(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFERL_CACHE", str(tmp_path))
    url = f"{bucket}/rewards"
    publish(url, reward_of(1))
    assert value(newest_reward(url).reward) == value(reward_of(1))
    copy = tmp_path / "copy"
    shutil.copytree(PublishedReward(url).folder, copy)
    PublishedReward(url).synced.remove("00001")
    with pytest.raises(CheckpointError, match="expected published rewards, got none"):
        newest_reward(url)
    monkeypatch.setenv("PREFERL_CACHE", str(tmp_path / "elsewhere"))
    publish(url, reward_of(2))
    monkeypatch.setenv("PREFERL_CACHE", str(tmp_path))
    shutil.copytree(copy, PublishedReward(url).folder, dirs_exist_ok=True)  # an old copy
    assert value(newest_reward(url).reward) == value(reward_of(2))


def test_of_two_publishers_on_two_machines_one_is_refused(bucket, tmp_path, monkeypatch):
    publishers = []
    for machine in ("here", "there"):
        monkeypatch.setenv("PREFERL_CACHE", str(tmp_path / machine))
        publishers.append(Publisher(f"{bucket}/rewards"))
    here, there = publishers
    with here, there:
        at_once = versions(there.synced)
        assert here.publish(reward_of(1)) == 1
        monkeypatch.setattr(publishing, "versions", lambda _: at_once)  # had looked before
        with pytest.raises(StorageError, match="nobody has sent"):
            there.publish(reward_of(2))
    monkeypatch.undo()


def test_versions_rise_and_the_newest_is_read(tmp_path):
    folder = tmp_path / "rewards"
    published = PublishedReward(folder)
    assert (published.version, published.reward, published.refresh()) == (0, None, False)
    assert [publish(folder, reward_of(seed), metrics={"n": seed}) for seed in (1, 2)] == [1, 2]
    assert published.version == 0, "nothing changes before it is asked for"
    assert published.refresh()
    assert (published.version, published.metrics, published.problem) == (2, {"n": 2}, None)
    assert value(published.reward) == value(reward_of(2)) != value(reward_of(1))
    assert not published.refresh()
    assert publish(folder, reward_of(7), version=42) == 42
    assert published.refresh()
    assert published.version == 42
    assert sorted(p.name for p in folder.iterdir()) == ["00001", "00002", "00042"]
    assert newest_reward(folder).number == 42
    assert newest_reward(folder / "00002").number == 2
    save_reward(tmp_path / "own", reward_of())
    assert newest_reward(tmp_path / "own").number == 1
    with pytest.raises(CheckpointError):
        newest_reward(tmp_path / "none")


def test_wrong_numbers_and_metrics_are_refused(tmp_path):
    reward = reward_of()
    unnamed = RewardFunction(reward.model, combine=lambda members: members[0])
    publish(tmp_path, reward, version=5)
    for wrong, how, words in (
        (reward, {"version": 5}, "above 5"),
        (reward, {"metrics": {"loss": float("nan")}}, "what JSON holds"),
        (reward, {"metrics": {"what": object()}}, "what JSON holds"),
        (reward, {"keep": 0}, "keep"),
        (unnamed, {}, "combine"),
    ):
        with pytest.raises(ConfigError, match=words):
            publish(tmp_path, wrong, **how)
    assert versions(tmp_path) == [5]


@pytest.mark.parametrize(
    ("name", "harm"),
    [("model.safetensors", "cut"), ("config.json", "gone"), ("reward.json", "changed")],
)
def test_a_broken_version_is_reported_and_the_older_one_stays(tmp_path, name, harm, caplog):
    publish(tmp_path, reward_of(1))
    published = PublishedReward(tmp_path)
    published.refresh()
    publish(tmp_path, reward_of(2))
    file = version_folder(tmp_path, 2) / name
    whole = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(whole[:-7] if harm == "cut" else whole[:-1] + b"?")
    for _ in range(2):
        assert not published.refresh()
    assert published.version == 1
    assert "version 2 cannot be read" in published.problem
    assert name in published.problem
    assert [r.getMessage().endswith("Version 1 stays in use.") for r in caplog.records] == [True]
    file.write_bytes(whole)
    assert published.refresh(), "it is tried again"
    assert (published.version, published.problem) == (2, None)


def test_what_is_published_counts_though_the_oldest_cannot_be_found(tmp_path, monkeypatch, caplog):
    looks = iter([[], [], StorageError("stale handle")])
    own = threading.get_ident()
    real = versioned.names_in

    def away(folder):
        if threading.get_ident() != own:  # of another test, which watches its folder
            return real(folder)
        found = next(looks)
        if isinstance(found, StorageError):
            raise found
        return found

    monkeypatch.setattr(versioned, "names_in", away)
    assert publish(tmp_path, reward_of()) == 1
    assert "stays for now: stale handle" in caplog.text


def test_what_a_killed_publisher_left_is_ignored_and_cleaned(tmp_path):
    publish(tmp_path, reward_of(1))
    draft = tmp_path / ".00002.abc123" / "00002"
    shutil.copytree(version_folder(tmp_path, 1), draft)
    shutil.copytree(version_folder(tmp_path, 1), tmp_path / ".00001.old")
    published = PublishedReward(tmp_path)
    assert published.refresh()
    assert (published.version, published.problem) == (1, None)
    assert publish(tmp_path, reward_of(2)) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00001", "00002"]


def test_a_write_that_fails_publishes_nothing(tmp_path, monkeypatch):
    publish(tmp_path, reward_of(1))

    def full(*_):
        raise OSError(28, "No space left on device")

    with Publisher(tmp_path) as publisher:
        with pytest.raises(StorageError, match="No space left"):
            publisher.publish(reward_of(2), write_extra=full)
        monkeypatch.setattr(publishing, "digests", full)
        with pytest.raises(StorageError, match="No space left"):
            publisher.publish(reward_of(2))
        monkeypatch.undo()
        assert versions(tmp_path) == [1]
        assert not [*tmp_path.glob(".0*")]  # no draft
        assert publisher.publish(reward_of(2)) == 2


def test_a_full_disk_publishes_nothing_until_there_is_room(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can only be mounted by root")
    try:
        publish(disk, reward_of(1))
        published = PublishedReward(disk)
        filler = disk / "filler"
        filler.write_bytes(bytes(180 * 1024))
        for _ in range(2):
            with pytest.raises(StorageError, match="free some space"):
                publish(disk, reward_of(2, hidden=(128, 128)))
            assert versions(disk) == [1]
        assert published.refresh()
        assert (published.version, published.problem) == (1, None)
        filler.unlink()
        assert publish(disk, reward_of(2, hidden=(128, 128))) == 2
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_another_process_is_refused_until_it_dies_and_then_replaced(tmp_path, caplog):
    code = (
        "import pathlib, runpy, sys\n"
        "of = runpy.run_path(sys.argv[1])['FolderLock']\n"
        "lock = of(pathlib.Path(sys.argv[2]), 'publisher', 'publisher')\n"
        "lock.take(); print('mine', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, folder_lock.__file__, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as other:
        assert other.stdout.readline() == "mine\n"
        with pytest.raises(StorageError, match=f"process {other.pid} on "):
            publish(tmp_path, reward_of())
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert publish(tmp_path, reward_of()) == 1
    assert f"process {other.pid} on " in caplog.text
    caplog.clear()
    assert publish(tmp_path, reward_of()) == 2
    assert not caplog.text, "who leaves in order is not missed"


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "published-reward"]


def test_watching_reads_and_taking_brings_into_use(tmp_path, monkeypatch):
    others = watchers()
    with PublishedReward(tmp_path).watch(0.01) as published:
        assert not published.switch()
        publish(tmp_path, reward_of(1))
        wait_until(lambda: published.next is not None)
        assert published.version == 0
        assert published.switch()
        assert (published.version, value(published.reward)) == (1, value(reward_of(1)))
        publish(tmp_path, reward_of(2))
        wait_until(lambda: published.next.number == 2)
        version_folder(tmp_path, 2).rename(tmp_path / "elsewhere")
        assert published.switch(), "it needs no disk"
        assert not published.switch()
        assert len(set(watchers()) - set(others)) == 1
    wait_until(lambda: set(watchers()) <= set(others))
    assert published.version == 2


def test_closing_waits_for_no_disk_that_hangs(tmp_path, monkeypatch):
    hangs = threading.Event()
    answers = threading.Event()

    def hang(_):
        hangs.set()
        answers.wait()
        return []

    monkeypatch.setattr(publishing, "versions", hang)
    others = watchers()
    published = PublishedReward(tmp_path).watch(0.01)
    (hung,) = set(watchers()) - set(others)
    assert hangs.wait(SECONDS)
    closing = threading.Thread(target=published.close, args=(0.05,), daemon=True)
    closing.start()
    closing.join(SECONDS)
    closed = not closing.is_alive()
    published.watch(0.01)
    answers.set()
    assert closed
    hung.join(SECONDS)
    assert not hung.is_alive(), "it ends once the disk answers, though another one watches"
    published.close()


def test_spaces_are_left_for_who_fits(tmp_path):
    assert read_spaces(tmp_path) is None
    write_spaces(tmp_path / "rewards", OBSERVATIONS, spaces.Discrete(4))
    assert read_spaces(tmp_path / "rewards") == (OBSERVATIONS, spaces.Discrete(4))
    (tmp_path / "rewards" / "spaces.json").write_text("{}")
    with pytest.raises(CheckpointError, match="two spaces"):
        read_spaces(tmp_path / "rewards")
