"""Whatever moment the power goes: readers find the old or the new, and what was known to be there.

See `helpers.crashing_disk` for what a disk may do.
"""

import json
import os
from dataclasses import dataclass

import numpy as np
import pytest
from gymnasium import spaces

from helpers.clips import at
from helpers.crashing_disk import Recorder, after_every_loss
from preferl.data import Comparisons, load_comparisons, save_comparisons
from preferl.files import write_text, writing
from preferl.models import MLPReward, MLPRewardConfig
from preferl.online.checkpoints.answer_journal import AnswerJournal
from preferl.runs import RunFolder, open_run
from preferl.store.store import stored_key
from preferl.training import RewardFunction
from preferl.training.checkpoint_folder import has_run, read_checkpoint, write_checkpoint
from preferl.training.publish import PublishedReward, publish, versions


@dataclass(frozen=True)
class Fit:
    epochs: int = 3


@pytest.fixture
def recorder(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "states").mkdir()
    return Recorder(tmp_path / "disk")


def write(recorder, monkeypatch, steps):
    """Take steps from 1 on, each acknowledged when it returns."""
    with recorder.recording(monkeypatch):
        for number, step in enumerate(steps, start=1):
            step(recorder.root)
            recorder.acknowledge(number)


def check(recorder, read, steps):
    return after_every_loss(recorder, recorder.root.with_name("states"), read, len(steps))


def text_of(path):
    return int(path.read_text()) if path.exists() else 0


def test_a_file_is_old_or_new(recorder, monkeypatch):
    steps = [lambda root, n=n: write_text(root / "deep/it", f"{n:09d}") for n in (1, 2, 3)]
    write(recorder, monkeypatch, steps)
    assert check(recorder, lambda root: text_of(root / "deep/it"), steps) > 20


def test_a_folder_is_old_or_new(recorder, monkeypatch):
    def save(root, number):
        with writing(root / "it") as draft:
            draft.mkdir()
            for name in ("one", "two"):
                (draft / name).write_text(f"{number:09d}")

    def read(root):
        if not (root / "it").is_dir():
            return 0
        one, two = (int((root / "it" / name).read_text()) for name in ("one", "two"))
        assert one == two
        return one

    steps = [lambda root, n=n: save(root, n) for n in (1, 2, 3)]
    write(recorder, monkeypatch, steps)
    assert check(recorder, read, steps) > 50


@pytest.mark.parametrize(
    ("save", "found"),
    [
        (lambda path: write_text(path, "1", durable=False), "invalid literal|known to be there"),
        (lambda path: path.write_text("1"), "invalid literal|known to be there"),
    ],
)
def test_what_does_not_wait_for_the_disk_is_found_out(recorder, monkeypatch, save, found):
    steps = [lambda root: save(root / "it")]
    write(recorder, monkeypatch, steps)
    with pytest.raises(AssertionError, match=found):
        check(recorder, lambda root: text_of(root / "it"), steps)


def test_names_that_do_not_wait_for_the_disk_are_found_out(recorder, monkeypatch):
    def save(root):
        with (root / "draft").open("w") as file:
            file.write("1")
            file.flush()
            os.fsync(file.fileno())
        (root / "draft").rename(root / "it")  # and no fsync of the folder

    write(recorder, monkeypatch, [save])
    with pytest.raises(AssertionError, match="1 was known to be there, 0 is"):
        check(recorder, lambda root: text_of(root / "it"), [save])


def test_a_run_is_whole_and_so_is_its_result(recorder, monkeypatch):
    def read(root):
        folder = RunFolder(root / "runs/run")
        if not folder.folder.exists():
            return 0
        assert folder.config(Fit) == Fit()
        assert json.loads((folder.folder / "config.json").read_text())["seed"] == 7
        assert json.loads((folder.folder / "versions.json").read_text())["packages"]
        if not folder.finished:
            return 1
        assert (folder.folder / "policy/kept").read_text() == "learned"
        return 2

    def finish(root):
        folder = RunFolder(root / "runs/run")
        folder.path("policy/kept").write_text("learned")  # nothing waited for this
        folder.result({"interrupted": False})

    def begin(root):
        with open_run(root / "runs/run", config=Fit(), seed=7):
            pass

    steps = [begin, finish]
    write(recorder, monkeypatch, steps)
    assert check(recorder, read, steps) > 20


def test_checkpoints_are_whole_and_the_one_before_stays_until_then(recorder, monkeypatch):
    run = {"seed": 0}

    def read(root):
        if not has_run(root / "runs/checkpoints"):
            return 0
        found = read_checkpoint(root / "runs/checkpoints", run=run)
        assert found.steps == found.state["steps"]
        return found.steps

    steps = [
        lambda root, n=n: write_checkpoint(
            root / "runs/checkpoints", {"steps": n, "weights": np.full(9, n)}, steps=n, run=run
        )
        for n in (1, 2)
    ]
    write(recorder, monkeypatch, steps)
    assert check(recorder, read, steps) > 50


def test_published_rewards_are_whole(recorder, monkeypatch):
    box = spaces.Box(-1, 1, (2,))
    reward = RewardFunction(MLPReward(box, box, MLPRewardConfig((4,)), seed=0))

    def read(root):
        published = PublishedReward(root / "rewards")
        published.refresh()
        assert published.problem is None
        assert published.version == max(versions(root / "rewards"), default=0)
        return published.version

    steps = [lambda root: publish(root / "rewards", reward, keep=1)] * 2
    write(recorder, monkeypatch, steps)
    assert check(recorder, read, steps) > 50


def answers_of(numbers):
    clips = at(0, 1, 2, 3, length=2)
    return Comparisons.of(clips, np.array([[0, 1]] * len(numbers)), np.array(numbers))


def test_each_answer_is_there_once_it_was_given(recorder, monkeypatch):
    rng = np.random.default_rng(0)

    def read(root):
        kept = list(AnswerJournal(root / "checkpoints/answers", 0, run={}).read())
        assert [answers.preference[0] for answers, _ in kept] == [1.0, 0.0, 0.5][: len(kept)]
        return len(kept)

    def add(root, answer):
        journal = AnswerJournal(root / "checkpoints/answers", 0, run={})
        journal.add(answers_of([answer]), rng)

    steps = [lambda root, a=a: add(root, a) for a in (1.0, 0.0, 0.5)]
    write(recorder, monkeypatch, steps)
    assert check(recorder, read, steps) > 50


def test_all_answers_are_old_or_new(recorder, monkeypatch):
    def read(root):
        path = root / "run/comparisons"
        return len(load_comparisons(path, memory_map=False)) if path.exists() else 0

    steps = [
        lambda root, n=n: save_comparisons(root / "run/comparisons", answers_of([1.0] * n))
        for n in (1, 2)
    ]
    write(recorder, monkeypatch, steps)
    assert check(recorder, read, steps) > 50


def test_a_key_is_whole_or_made_again(recorder, monkeypatch):
    key = b""

    def make(root):
        nonlocal key
        key = stored_key(root / "store/key")

    def read(root):
        file = root / "store/key"
        if file.exists():
            assert file.read_bytes() == key
        return int(file.exists())

    write(recorder, monkeypatch, [make])
    assert check(recorder, read, [make]) > 5
