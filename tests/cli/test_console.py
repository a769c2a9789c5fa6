"""What commands print is what they were given, on terminals and elsewhere."""

import time
from io import StringIO

import pytest

from preferl.cli import console
from preferl.cli.console import (
    ProgressLine,
    complain,
    echo,
    note,
    print_table,
    progress_in_words,
    require_done,
)


def test_only_an_interrupted_run_ends_the_command(tmp_path, capsys):
    require_done({"interrupted": False}, tmp_path)
    assert capsys.readouterr().out == ""
    with pytest.raises(SystemExit) as stopped:
        require_done({"interrupted": True, "stage": "training seed 2"}, tmp_path)
    assert stopped.value.code == 130
    printed = capsys.readouterr().out
    assert printed.startswith("Stopped while training seed 2.")
    assert f"{tmp_path}; the same command with --resume continues." in printed


def test_elsewhere_than_on_a_terminal_each_stage_but_the_first_has_a_line(capsys):
    line = ProgressLine("reading")
    assert not line.live
    with line.running():
        for doing, done in (("reading", 1), ("fitting", 0), ("fitting", 5), ("evaluating", 1)):
            line(doing, done, 5, "news")
    assert capsys.readouterr().out == "fitting ...\nevaluating ...\n"


def test_a_long_stage_elsewhere_than_on_a_terminal_prints_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(console, "REPEAT_SECONDS", 0.1)
    line = ProgressLine("reading")
    with line.running():
        line("training 10 agents", 1, 4, "return 3.0")
        time.sleep(0.35)
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "training 10 agents ..."
    assert 1 <= len(others) <= 3
    assert others[0] == "training 10 agents  25 % 0:00:00, left 0:00:00 · return 3.0"


def test_a_wait_is_over_as_soon_as_its_end_is_known(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    line = ProgressLine("learning")
    line.wait("waiting for your answers: 29 of 30")
    line.end_wait("30 of 30 answers are there.")
    assert "waiting" not in f"{line._text()}"
    assert capsys.readouterr().out == "", "the live line is enough"
    monkeypatch.delenv("FORCE_COLOR")
    elsewhere = ProgressLine("learning")
    elsewhere.wait("waiting")
    elsewhere.end_wait("all there")
    elsewhere.wait("waiting")
    assert capsys.readouterr().out == "waiting\nall there\nwaiting\n"


@pytest.mark.parametrize("width", [40, 79, 80, 99, 100, 200])
@pytest.mark.parametrize(
    "doing", ["learning", "training on the true reward, 20,000 steps, to compare"]
)
def test_a_line_of_progress_fits_and_keeps_its_numbers(doing, width):
    news = "return -13.0 (95 % interval -15.0 to -11.0, 10 episodes)"
    line = progress_in_words(doing, 9, 20, seconds=75, news=news, width=width)
    assert len(line) <= width
    assert " 45 % 0:01:15, left 0:01:31" in line
    assert line.startswith(doing[:8])
    assert ("━" in line) == (width == 200)


HOSTILE = "\x1b]0;owned\x07\x9b2J[red]name[/blue]"
SHOWN = r"\x1b]0;owned\x07\x9b2J[red]name[/blue]"


def test_no_terminal_obeys_what_is_printed(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    echo(HOSTILE)
    note(HOSTILE)
    complain(HOSTILE)
    print_table(HOSTILE, [(HOSTILE, HOSTILE)], (HOSTILE, HOSTILE), bold=0)
    ProgressLine()(HOSTILE, 1, 2, HOSTILE)
    printed = capsys.readouterr()
    assert printed.out.count(SHOWN) == 8
    assert printed.err == f"{SHOWN}\n"
    assert not set("\x1b\x07\x9b") & set(printed.out + printed.err)


def test_a_live_line_obeys_no_markup_and_no_control_code(monkeypatch):
    terminal = StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    line = ProgressLine("running")
    assert line.live
    with line.running():
        line(HOSTILE, 1, 2, HOSTILE)
    assert "\x1b]0;" not in terminal.getvalue()
    assert SHOWN in terminal.getvalue()
