"""Locks of folders: one holder, who is named, and who is gone once its program is."""

import json
import logging
import os
import shutil
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.waiting import SECONDS
from preferl.errors import StorageError
from preferl.runs import lock as folder_lock, open_run
from preferl.runs.folder import LOCK
from preferl.runs.lock import FolderLock, boot_id


@dataclass(frozen=True)
class Fit:
    epochs: int = 3
    out: str = "here"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def lock_of(folder: Path) -> FolderLock:
    return FolderLock(folder, LOCK, "run")


def test_a_lock_that_its_last_holder_removed_meanwhile_is_not_taken_for_one(tmp_path, monkeypatch):
    first, second = (FolderLock(tmp_path, LOCK, "run") for _ in range(2))
    first.take()
    opened = Path.open

    def open_and_lose(self, *args, **kwargs):
        file = opened(self, *args, **kwargs)
        monkeypatch.undo()
        first.release()  # between opening and locking
        return file

    monkeypatch.setattr(Path, "open", open_and_lose)
    second.take()
    third = FolderLock(tmp_path, LOCK, "run")
    with pytest.raises(StorageError, match="one at work already"):
        third.take()
    second.release()
    assert names(tmp_path) == []


def test_options_of_the_command_are_not_written(tmp_path, monkeypatch):
    words = ["/usr/bin/preferl", "reward", "fit", "--store", "postgresql://me:secret@host/db"]
    monkeypatch.setattr(sys, "argv", words)
    with open_run(tmp_path / "run", config=Fit(), seed=0):
        text = (tmp_path / "run" / LOCK).read_text()
        assert '"command": "preferl reward fit"' in text
        shutil.copy(tmp_path / "run" / LOCK, tmp_path / "kept")
    assert not (tmp_path / "run" / LOCK).exists()


@pytest.mark.parametrize(
    ("changes", "taken"),
    [({}, True), ({"pid": 2**22 + 1}, False), ({"boot": "another"}, False), ({"host": "x"}, True)],
)
def test_without_locks_a_disk_is_shared_by_process_and_boot(tmp_path, monkeypatch, changes, taken):
    import fcntl

    def unknown(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unknown)
    first = FolderLock(tmp_path, LOCK, "publisher")
    first.take()
    owner = json.loads((tmp_path / LOCK).read_text())
    (tmp_path / LOCK).write_text(json.dumps(owner | changes))
    second = FolderLock(tmp_path, LOCK, "publisher")
    if taken:
        with pytest.raises(StorageError):
            second.take()
    else:
        second.take()
    first.release()
    second.release()


def test_a_folder_is_held_for_the_block_and_free_after_it_however_it_ends(tmp_path):
    for error in (None, ZeroDivisionError):
        try:
            with lock_of(tmp_path / "new/folder"):
                assert names(tmp_path / "new/folder") == [LOCK]
                if error:
                    raise error
        except ZeroDivisionError:
            pass
        assert names(tmp_path / "new/folder") == []


def test_the_file_names_its_holder(tmp_path):
    with lock_of(tmp_path):
        holder = json.loads((tmp_path / LOCK).read_text())
    assert (holder["pid"], holder["boot"]) == (os.getpid(), boot_id())
    assert holder["since"].endswith("+00:00")


def test_somebody_who_only_looks_changes_nothing(tmp_path):
    lock_of(tmp_path).require_free()  # nobody has ever held it
    assert names(tmp_path) == []
    with lock_of(tmp_path):
        before = (tmp_path / LOCK).read_text()
        with pytest.raises(StorageError, match=f"its only run, got .*process {os.getpid()} "):
            lock_of(tmp_path).require_free()
        assert (tmp_path / LOCK).read_text() == before
    lock_of(tmp_path).require_free()


def test_several_may_look_at_once(tmp_path, monkeypatch):
    (tmp_path / LOCK).write_text('{"pid": 7, "host": "there", "command": "x"}')  # it was killed
    seen = []
    locked = folder_lock._lock

    def look_twice(file, before, **how):
        found = locked(file, before, **how)
        if not seen:
            seen.append(None)
            seen.append(lock_of(tmp_path).holder())
        return found

    monkeypatch.setattr(folder_lock, "_lock", look_twice)
    assert lock_of(tmp_path).holder() is None
    assert seen == [None, None]


def test_who_only_looks_is_waited_for(tmp_path):
    import fcntl

    (tmp_path / LOCK).touch()
    with (tmp_path / LOCK).open("r+") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        let_go = threading.Timer(0.5, looking.close)  # longer than for a holder, which has a name
        let_go.start()
        with lock_of(tmp_path):
            assert looking.closed
    let_go.join()


def test_a_holder_is_waited_for_with_patience(tmp_path, caplog):
    with lock_of(tmp_path) as first:
        patient = FolderLock(tmp_path, LOCK, "run", patience=SECONDS)
        nameless = threading.Timer(0.5, (tmp_path / LOCK).write_text, [""])  # as it is for a moment
        end = threading.Timer(1.0, first.release)
        nameless.start()
        end.start()
        with patient:
            pass
    end.join()
    (line,) = caplog.messages
    assert line.startswith(f"Waits up to 180 s for process {os.getpid()} on ")


def test_a_folder_is_renamed_while_it_is_held(tmp_path):
    lock = lock_of(tmp_path / "draft")
    lock.take()
    lock.move(tmp_path / "whole")
    with pytest.raises(StorageError, match="whole: expected to be its only run"):
        lock_of(tmp_path / "whole").take()
    lock.release()
    assert names(tmp_path) == ["whole"]
    assert names(tmp_path / "whole") == []


@pytest.mark.parametrize(
    ("left", "warned"),
    [
        ('{"pid": 7, "host": "there", "command": "x"}', "process 7 on there (`x`) ended without"),
        ('{"pid": 7, "ho', ""),
        ("[7]", ""),
    ],
)
def test_the_lock_of_one_that_is_gone_is_taken_over(tmp_path, caplog, left, warned):
    (tmp_path / LOCK).write_text(left)
    with caplog.at_level(logging.WARNING), lock_of(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    assert warned in caplog.text
    assert bool(warned) == bool(caplog.text)


def test_releasing_what_is_not_held_is_no_error(tmp_path):
    with lock_of(tmp_path) as held:
        lock_of(tmp_path).release()
        assert names(tmp_path) == [LOCK]
    held.release()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a file that can be written"):
        lock_of(tmp_path / "file").take()


def test_a_disk_that_became_read_only_does_not_hide_what_ended_a_run(tmp_path, monkeypatch, caplog):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    lock = lock_of(tmp_path)
    lock.take()
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        lock.release()
    assert "stays, though nobody holds it" in caplog.text
    lock_of(tmp_path).require_free()
