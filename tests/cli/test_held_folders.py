"""Commands refuse a folder in which another run is at work, at once, and name that run."""

import os

import pytest

from helpers.command_line import run
from preferl.online import OnlineConfig
from preferl.runs import open_run
from preferl.runs.folder import LOCK
from preferl.runs.lock import FolderLock

COMMANDS = {
    "demo": ("--smoke",),
    "data record": ("--env", "Pendulum-v1", "--mix", "random:1"),
    "online run": (),
    "offline run": ("--demonstrations", "a", "--labels", "b", "--env", "Pendulum-v1"),
    "reward fit": ("--demonstrations", "a", "--labels", "b"),
}


@pytest.mark.parametrize(
    ("command", "resume"),
    [(command, ()) for command in COMMANDS]
    + [(command, ("--resume",)) for command in COMMANDS if command != "demo"],
)
def test_a_second_run_is_refused(tmp_path, capsys, command, resume):
    out = tmp_path / "run"
    with open_run(out, config=OnlineConfig(), seed=0):
        pass
    lock = FolderLock(out, LOCK, "run")
    lock.take()
    before = {path: path.read_bytes() for path in out.iterdir()}
    words = (*command.split(), *COMMANDS[command], "--out", str(out))
    try:
        assert run(*words, *resume) == 1
        error = " ".join(capsys.readouterr().err.split())
        assert f"one at work already, process {os.getpid()} " in error
        assert {path: path.read_bytes() for path in out.iterdir()} == before
        assert [path.name for path in tmp_path.iterdir()] == ["run"]
    finally:
        lock.release()
