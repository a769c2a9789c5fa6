"""Every call of the atomic writer fails once: old content stays or new content is whole."""

import errno
import io
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from preferl import files
from preferl.errors import StorageError
from preferl.files import write_json, writing
from preferl.runs import open_run

CODES = (errno.EIO, errno.ENOSPC, errno.EACCES)
CALLS = ("mkdir", "open", "fsync", "close", "chmod", "rename", "replace", "listdir", "scandir")


@dataclass(frozen=True)
class Fit:
    epochs: int = 3


class FailingFile:
    """A file whose calls may fail."""

    def __init__(self, file, count):
        self._file = file
        self._count = count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self._count("closing")

    def write(self, text):
        self._file.write(text[: len(text) // 2])
        self._file.flush()
        self._count("writing")
        self._file.seek(0)
        return int(self._file.write(text))


@contextmanager
def failing(patch, at, code):
    """Fail the call number `at` of this thread; the calls that there were, by name."""
    calls = []
    own = threading.get_ident()  # others, which earlier tests left, read their folders meanwhile

    def count(name):
        if threading.get_ident() != own:
            return
        calls.append(name)
        if len(calls) == at:
            raise OSError(code, os.strerror(code))

    def counted(name, call):
        def instead(*args, **options):
            if name != "close":
                count(name)
                return call(*args, **options)
            call(*args, **options)  # what is closed is closed, whatever that reports
            return count(name)

        return instead

    opened = io.open

    def open_or_fail(*args, **options):
        count("opening")
        file = opened(*args, **options)
        return FailingFile(file, count) if threading.get_ident() == own else file

    with patch.context() as inner:
        for name in CALLS:
            inner.setattr(os, name, counted(name, getattr(os, name)))
        inner.setattr(files, "exchange", counted("exchange", files.exchange))
        inner.setattr(files.shutil, "rmtree", _unhurt(inner, files.shutil.rmtree))
        inner.setattr(io, "open", open_or_fail)
        yield calls


def _unhurt(patch, remove):
    """What cleans up is not under test here."""

    def instead(*args, **options):
        patch.undo()
        remove(*args, **options)

    return instead


def write_file(path, text):
    write_json(path, [text] * 3)


def read_file(path):
    (text,) = set(path.read_text().replace("[", "").replace("]", "").replace(",", "").split())
    return text.strip('"')


def write_folder(path, text):
    with writing(path) as draft:
        draft.mkdir()
        for name in ("one", "two"):
            (draft / name).write_text(text)


def read_folder(path):
    one, two = ((path / name).read_text() for name in ("one", "two"))
    assert one == two
    return one


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    ("write", "read"),
    [(write_file, read_file), (write_folder, read_folder)],
    ids=["file", "folder"],
)
def test_old_or_new_and_nothing_else_whatever_fails(
    tmp_path, monkeypatch, write, read, there, exchange
):
    if not exchange:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    failed = []
    for code in CODES:
        for at in range(1, 1000):
            folder = tmp_path / f"{code}-{at}"
            folder.mkdir()
            if there:
                write(folder / "it", "old")
            try:
                with failing(monkeypatch, at, code) as calls:
                    write(folder / "it", "new")
            except StorageError:
                failed.append(calls[at - 1])
                left = read(folder / "it") if (folder / "it").exists() else "nothing"
                # The last call of all waits for a name that is there already.
                assert left in ("new", "old" if there else "nothing"), (code, at, calls)
            else:
                assert read(folder / "it") == "new"
                if len(calls) < at:
                    break  # it has run out of calls
            found = [path.name for path in folder.iterdir()]
            assert found == (["it"] if there or found else []), (code, at, calls)
    assert {"mkdir", "open", "fsync", "close", "chmod", "writing"} <= set(failed)
    assert ("exchange" if there and write is write_folder and exchange else "replace") in failed


def test_what_cannot_be_removed_stays_and_is_no_error(tmp_path, monkeypatch):
    write_folder(tmp_path / "it", "old")

    def refuse(*_, **__):
        raise OSError(errno.EIO, "I/O error")

    with monkeypatch.context() as patch:
        for name in ("unlink", "rmdir"):
            patch.setattr(os, name, refuse)
        write_folder(tmp_path / "it", "new")
    assert read_folder(tmp_path / "it") == "new"


@pytest.mark.parametrize("code", CODES)
def test_a_result_that_cannot_be_written_leaves_the_run_unfinished(tmp_path, monkeypatch, code):
    with open_run(tmp_path / "run", config=Fit(), seed=0) as folder:
        pass
    for at in range(1, 1000):
        try:
            with failing(monkeypatch, at, code) as calls:
                folder.result({"return": 1.0})
        except StorageError:
            assert len(calls) >= at
            if folder.finished:  # only its last wait for the disk failed
                break
        else:
            break
    assert folder.finished
    assert at > 10
    assert sorted(path.name for path in folder.folder.iterdir()) == [
        "config.json",
        "result.json",
        "summary.json",
        "versions.json",
    ]
