"""Locks of folders: one holder, who is named, and who is gone once its program is."""

import errno
import json
import logging
import os
import shutil
import sys
import threading

import pytest
from filelock import lock_descriptor

from helpers.waiting import SECONDS
from preferl.errors import StorageError
from preferl.online import OnlineConfig
from preferl.runs import open_run
from preferl.runs.folder import LOCK
from preferl.runs.lock import FolderLock


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def lock_of(folder):
    return FolderLock(folder, LOCK, "run")


def test_options_of_the_command_are_not_written(tmp_path, monkeypatch):
    words = ["/usr/bin/preferl", "reward", "fit", "--store", "postgresql://me:secret@host/db"]
    monkeypatch.setattr(sys, "argv", words)
    with open_run(tmp_path / "run", config=OnlineConfig(), seed=0):
        text = (tmp_path / "run" / LOCK).read_text()
        assert '"command": "preferl reward fit"' in text
        shutil.copy(tmp_path / "run" / LOCK, tmp_path / "kept")
    assert not (tmp_path / "run" / LOCK).exists()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_refused(tmp_path, monkeypatch, code):
    import fcntl

    def unknown(*_):
        raise OSError(code, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unknown)
    with pytest.raises(StorageError, match="can be written and locked, got Operation not supp"):
        lock_of(tmp_path).take()


def test_a_folder_is_held_for_the_block_and_free_after_it_however_it_ends(tmp_path):
    for error in (None, ZeroDivisionError):
        try:
            with lock_of(tmp_path / "new/folder"):
                assert names(tmp_path / "new/folder") == [f".{LOCK}", LOCK]
                if error:
                    raise error
        except ZeroDivisionError:
            pass
        assert names(tmp_path / "new/folder") == []


def test_somebody_who_only_looks_changes_nothing(tmp_path):
    lock_of(tmp_path).require_free()  # nobody has ever held it
    assert names(tmp_path) == []
    with lock_of(tmp_path):
        before = (tmp_path / LOCK).read_text()
        with pytest.raises(StorageError, match=f"its only run, got .*process {os.getpid()} "):
            lock_of(tmp_path).require_free()
        assert (tmp_path / LOCK).read_text() == before
    lock_of(tmp_path).require_free()


@pytest.mark.parametrize("act", [FolderLock.take, FolderLock.holder])
def test_who_only_looks_is_waited_for(tmp_path, act):
    if act is FolderLock.holder:
        (tmp_path / LOCK).write_text('{"pid": 7, "host": "there", "command": "x"}')  # was killed
    lock = FolderLock(tmp_path, LOCK, "run", patience=1.0)
    (tmp_path / f".{LOCK}").touch()
    with (tmp_path / f".{LOCK}").open("r+") as looking:
        lock_descriptor(looking.fileno())
        let_go = threading.Timer(0.2, looking.close)
        let_go.start()
        assert act(lock) is None
        assert looking.closed
    let_go.join()
    lock.release()


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
