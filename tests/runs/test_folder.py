"""A folder of a run: whole, held by one run at a time, and resumed where something is left."""

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pytest

from helpers.folder_contents import contents
from helpers.waiting import SECONDS
from preferl.errors import ConfigError, DataError, ResumeError, StorageError
from preferl.runs import RunFolder, folder as folders, open_run, require_openable
from preferl.runs.folder import LOCK

HOLD = """
import sys
from dataclasses import dataclass
from preferl.runs import open_run

@dataclass(frozen=True)
class Fit:
    epochs: int = 3
    out: str = "here"

with open_run(sys.argv[1], config=Fit(), seed=0, resume="--resume" in sys.argv):
    print("held", flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Fit:
    epochs: int = 3
    out: str = "here"


def seed_of(folder):
    return json.loads((folder / "config.json").read_text())["seed"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def holder(tmp_path):
    """Starts programs that hold `tmp_path / "run"`, and ends them."""
    with ExitStack() as stack:

        def start(*words):
            command = [sys.executable, "-c", HOLD, str(tmp_path / "run"), *words]
            program = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(program.kill)
            assert program.stdout.readline() == "held\n"
            return program

        yield start


def begin(folder, seed=0):
    with open_run(folder, config=Fit(), seed=seed) as run:
        return run


def test_a_run_is_held_for_the_block_and_leaves_no_lock(tmp_path):
    with open_run(tmp_path / "a/run", config=Fit(), seed=7, data={"rows": 3}) as run:
        assert (seed_of(run.folder), run.config(Fit)) == (7, Fit())
        assert LOCK in names(run.folder)
        assert not run.finished
    packages = json.loads(run.path("versions.json").read_text())
    assert packages["packages"]["numpy"] == np.__version__
    assert {"python", "platform", "git"} <= set(packages)
    run.result({"return": np.float32(1.5), "lost": math.nan, "curve": np.arange(2)})
    assert run.finished
    result = json.loads(run.path("result.json").read_text())
    assert result == {"return": 1.5, "lost": None, "curve": [0, 1]}
    files = ["config.json", "data.json", "result.json", "summary.json", "versions.json"]
    assert names(run.folder) == files


def test_why_a_run_failed_is_kept_without_passwords(tmp_path):
    store = "postgresql://me:secret@host/labels"
    with pytest.raises(ValueError), open_run(tmp_path, config=Fit(), seed=0):  # noqa: PT011
        raise ValueError(f"no database {store}")
    kept = json.loads((tmp_path / "failure.json").read_text())
    assert kept == {"error": "ValueError: no database postgresql://me:***@host/labels"}


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_run_is_refused_and_the_first_is_named(tmp_path, holder, resume, monkeypatch):
    first = holder()
    before = contents(tmp_path / "run")
    named = rf"one at work already, process {first.pid} on .*`-c`\) since 20\d\d-"
    second = open_run(tmp_path / "run", config=Fit(), seed=0, resume=resume)
    with pytest.raises(StorageError, match=named):
        require_openable(tmp_path / "run", resume=resume)
    monkeypatch.setattr("preferl.runs.folder.require_openable", lambda *_, **__: None)
    with pytest.raises(StorageError, match=named), second:  # it came between the check and the lock
        pass
    assert contents(tmp_path / "run") == before
    assert names(tmp_path) == ["run"]


def test_a_run_is_not_at_work_in_the_folder_of_another_that_began_just_after(tmp_path, monkeypatch):
    begin = folders._begin

    def twice(*arguments):
        first = begin(*arguments)
        monkeypatch.setattr(folders, "_begin", begin)
        with open_run(tmp_path / "run", config=Fit(), seed=2):
            pass
        return first

    monkeypatch.setattr(folders, "_begin", twice)
    with (
        pytest.raises(StorageError, match="expected this run to be its only one"),
        open_run(tmp_path / "run", config=Fit(), seed=1),
    ):
        raise AssertionError("this is the folder of another run")


def test_a_killed_run_leaves_its_folder_free(tmp_path, holder):
    first = holder()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert LOCK in names(tmp_path / "run")
    second = holder("--resume")
    with pytest.raises(StorageError, match=f"process {second.pid} "):
        require_openable(tmp_path / "run", resume=False)
    second.kill()
    second.wait()
    with open_run(tmp_path / "run", config=Fit(), seed=0):
        assert names(tmp_path) == ["run", "run.1"]
        assert LOCK not in names(tmp_path / "run.1")


def held_with_children(folder, method, ready, stop):
    with open_run(folder, config=Fit(), seed=0):
        context = multiprocessing.get_context(method)
        child = context.Process(target=waits, args=(ready, stop))
        child.start()
        child.join()


def waits(ready, stop):
    ready.put(os.getpid())  # by itself, since it begins by closing what it inherited
    stop.wait(SECONDS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_children_do_not_keep_the_lock_of_a_parent_that_died(tmp_path, method):
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    stop = context.Event()
    parent = context.Process(
        target=held_with_children, args=(tmp_path / "run", method, ready, stop)
    )
    parent.start()
    child = ready.get(timeout=SECONDS)
    try:
        with pytest.raises(StorageError, match=f"process {parent.pid} "):
            require_openable(tmp_path / "run", resume=True)
        parent.kill()
        parent.join()
        os.kill(child, 0)  # it is alive
        require_openable(tmp_path / "run", resume=True)
    finally:
        stop.set()


def test_a_finished_run_is_not_resumed_and_nothing_changes(tmp_path):
    with open_run(tmp_path / "run", config=Fit(), seed=0) as folder:
        folder.result({"interrupted": False})
    before = contents(tmp_path)
    for config in (Fit(), Fit(4)):
        with (
            pytest.raises(ResumeError, match=r"run is finished, see .*result\.json"),
            open_run(tmp_path / "run", config=config, seed=0, resume=True),
        ):
            pass
    assert contents(tmp_path) == before


def test_an_interrupted_run_is_resumed(tmp_path):
    with open_run(tmp_path / "run", config=Fit(), seed=0) as folder:
        folder.result({"interrupted": True})
        assert not folder.finished
    with open_run(
        *(tmp_path / "run",), config=Fit(out="there"), seed=0, resume=True, may_differ=["out"]
    ) as folder:
        folder.result({"interrupted": False})
        assert folder.finished
    assert names(tmp_path) == ["run"]


def test_other_settings_or_data_are_named_and_change_nothing(tmp_path):
    with open_run(tmp_path / "run", config=Fit(), seed=0, data={"rows": 3}):
        pass
    other = open_run(tmp_path / "run", config=Fit(4, "x"), seed=0, resume=True, may_differ=["out"])
    with pytest.raises(ConfigError, match=r"expected epochs=3, got epochs=4"), other:
        pass
    for data in ({"rows": 4}, None):
        again = open_run(tmp_path / "run", config=Fit(), seed=0, resume=True, data=data)
        with pytest.raises(DataError, match=r"was begun, \{'rows': 3\}, got"), again:
            pass
    assert names(tmp_path / "run") == ["config.json", "data.json", "summary.json", "versions.json"]


def test_a_resumed_run_holds_nothing_that_a_killed_writer_left(tmp_path):
    with open_run(tmp_path / "run", config=Fit(), seed=0) as folder:
        before = names(folder.folder)
        draft = folder.path(".reward.abcd1234/reward")
        draft.write_text("ha")
    with open_run(tmp_path / "run", config=Fit(), seed=0, resume=True) as folder:
        assert names(folder.folder) == before


def test_an_older_run_moves_aside_and_nothing_mixes(tmp_path):
    for seed in range(3):
        run = begin(tmp_path / "run", seed=seed)
        run.path(f"only-{seed}").write_text("")
    assert {p.name for p in tmp_path.iterdir()} == {"run", "run.1", "run.2"}
    assert [seed_of(tmp_path / name) for name in ("run.1", "run.2", "run")] == [0, 1, 2]
    assert not run.path("only-0").exists()


def test_an_empty_folder_is_used_and_a_foreign_one_left_alone(tmp_path):
    (tmp_path / "empty").mkdir()
    begin(tmp_path / "empty")
    assert [p.name for p in tmp_path.iterdir()] == ["empty"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("words")
    with pytest.raises(StorageError, match="left alone"):
        begin(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "words"


def test_unwritable_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="can be written to"):
        begin(tmp_path / "file" / "run")
    with pytest.raises(StorageError, match="can be written to"):
        RunFolder(tmp_path / "file").result({})
    with pytest.raises(StorageError, match="file of a run"):
        RunFolder(tmp_path).config(Fit)
