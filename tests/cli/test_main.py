"""The command line: help, usage errors, worded errors, and each command once for real."""

import errno
import json
import logging
import os
import subprocess
import sys
import warnings
from io import BytesIO, TextIOWrapper

import numpy as np
import pytest

from helpers import written_runs
from helpers.command_line import run
from preferl.cli.annotate import ExportConfig
from preferl.cli.console import echo, note
from preferl.cli.demo import play_pendulums
from preferl.cli.main import COMMANDS, COMMON


def test_help_lists_every_command(capsys):
    assert run("--help") == 0
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)


def test_group_help_lists_its_commands_only(capsys):
    assert run("reward") == 0
    out = capsys.readouterr().out
    assert "reward fit" in out
    assert "data inspect" not in out


@pytest.mark.parametrize("words", [["nonsense"], ["reward", "nonsense"], ["--nonsense"]])
def test_unknown_command_is_a_usage_error(words, capsys):
    assert run(*words) == 2
    assert "no such command" in capsys.readouterr().err


def test_version(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("preferl 0.")


def test_verbose_shows_where_an_error_comes_from(tmp_path, capsys):
    words = ("annotate", "report", "--store", str(tmp_path / "none"))
    assert run(*words, "--verbose") == 1
    *trace, last = capsys.readouterr().err.splitlines()
    assert trace[0].startswith("Traceback")
    assert last.startswith("preferl annotate report: store ")
    for anywhere in (("--quiet", *words), (*words, "--quiet")):
        assert run(*anywhere) == 1
        assert capsys.readouterr().err == f"{last}\n"


@pytest.fixture
def logged_by(monkeypatch, caplog):
    """The messages logged by a command that warns, logs and prints."""

    def command(config):
        warnings.warn("a warning", stacklevel=2)
        for level in ("debug", "error"):
            getattr(logging.getLogger("preferl.cli"), level)("logged at %s", level)
        note("what it does")
        echo("what it found")

    monkeypatch.setattr("preferl.cli.annotate.annotate_export", command)
    command.__annotations__["config"] = ExportConfig
    return lambda *words: (run("annotate", "export", "x.csv", *words), caplog.messages)[1]


@pytest.mark.parametrize(
    ("words", "logged", "printed", "warned"),
    [
        ((), ["logged at error"], ["what it does", "what it found"], True),
        (("--quiet",), ["logged at error"], ["what it found"], False),
        (
            ("--verbose",),
            ["logged at debug", "logged at error"],
            ["what it does", "what it found"],
            True,
        ),
    ],
)
def test_how_much_a_command_reports(logged_by, capsys, words, logged, printed, warned):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        assert logged_by(*words) == logged
    assert capsys.readouterr().out.splitlines() == printed
    assert [str(each.message) for each in seen] == ["a warning"] * warned


def test_help_names_the_options_of_every_command(capsys):
    for words in ((), ("reward",), ("annotate", "export")):
        assert run(*words, "--help") == 0
        out = capsys.readouterr().out
        assert [option for option in COMMON if option not in out] == []


def test_output_that_nobody_reads_ends_the_command(monkeypatch):
    """As for `head`, but for certain: the other end of the pipe is closed before anything comes."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "preferl", "online", "run", "--help"],
        stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.slow
def test_demo_answered_at_the_terminal(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "preferl", "demo", "--smoke", "--ask", "--out", "run"],
        input="l\nr\ne\nn\n" * 5,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100"},
        check=True,
    )
    assert "left" in done.stdout
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert (result["comparisons"], result["declined"]) == (15, 5)
    assert "(5 more were declined)" in (tmp_path / "run/report.html").read_text()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp932"])
def test_an_encoding_that_lacks_a_character_ends_no_command(encoding, tmp_path, monkeypatch):
    written_runs.online(tmp_path / "\u0144\u00b7\u65e5\u2013")
    for command in (("runs", "list", tmp_path), ("runs", "show", next(tmp_path.iterdir()))):
        output = TextIOWrapper(BytesIO(), encoding=encoding, errors="strict")
        monkeypatch.setattr("sys.stdout", output)
        assert run(*command) == 0
        printed = output.buffer.getvalue().decode(encoding)
        assert "?" in printed
        assert "Pendulum-v1" in printed


def test_a_disk_that_becomes_read_only_ends_a_command_in_words(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "metrics.jsonl"))

    monkeypatch.setattr("preferl.cli.runs.find_runs", fail)
    assert run("runs", "list", tmp_path) == 1
    words = f"preferl runs list: Read-only file system: {tmp_path / 'metrics.jsonl'}.\n"
    assert capsys.readouterr().err == words
    assert run("--verbose", "runs", "list", tmp_path) == 1
    assert "Traceback" in capsys.readouterr().err


def test_pair_is_printed_where_nothing_can_move(capsys):
    play_pendulums(np.tile([1.0, 0.0, 0.0], (2, 5, 1)))
    assert capsys.readouterr().out.count("●") == 2
