"""What commands print is what they were given, on terminals and elsewhere."""

import pytest

from preferl.cli.console import ProgressLine, echo, interrupt, print_table, require_done


def cells(printed):
    return [line.rstrip() for line in printed.splitlines()]


def test_lines_are_printed_as_they_are(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    text = "[bold]no markup[/bold] " + "x" * 100 + " [1, 2]"
    echo(text)
    assert capsys.readouterr().out == f"{text}\n"


def test_numbers_stand_on_the_right_and_words_on_the_left(capsys):
    rows = [("a", "5", "yes"), ("long name", "1,000", "no"), ("[b]", "–", "7 of 9")]
    print_table("Title [b]", rows, ("who", "count", "what"))
    printed = cells(capsys.readouterr().out)
    assert printed[0] == "Title [b]"
    assert printed[2] == " who        count  what"
    assert printed[4:7] == [
        " a              5  yes",
        " long name  1,000  no",
        " [b]            –  7 of 9",
    ]


def test_names_and_values_have_no_heads(capsys):
    print_table("Title", [("steps", "12"), ("return", "-3.5")])
    printed = [line.split() for line in cells(capsys.readouterr().out) if line]
    assert printed == [["Title"], ["steps", "12"], ["return", "-3.5"]]


def test_a_table_without_rows_shows_its_heads(capsys):
    print_table("Nobody yet", [], ("name", "answers"))
    assert cells(capsys.readouterr().out)[2].split() == ["name", "answers"]


def test_ctrl_c_ends_a_command_as_shells_expect(capsys):
    with pytest.raises(SystemExit) as stopped:
        interrupt("Stopped.")
    assert stopped.value.code == 130
    assert capsys.readouterr().out == "Stopped.\n"


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
