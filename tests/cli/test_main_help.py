"""Help says of each option what it is."""

import re
from itertools import pairwise

import pytest

from helpers.command_line import run
from preferl.cli.main import COMMANDS


def help_by_option(printed):
    """Options in their order, each with its text, from a command's help."""
    found: list[list[str]] = []
    for line in printed.splitlines():
        line = line.strip("│").rstrip()
        option = re.match(r" +(--[a-z][\w.-]*)\S*", line)
        if option and option.start(1) <= 2:
            found.append([option[1], line[option.end() :].partition("  ")[2]])
        elif found and line.startswith("    "):
            found[-1][1] += f" {line}"
    without_default = r"\((?:default|required|repeatable|optional).*"
    texts = [" ".join(text.split()) for _, text in found]
    names = [name for name, _ in found]
    return [
        (name, re.sub(without_default, "", text).strip())
        for name, text in zip(names, texts, strict=True)
    ]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "completion"])
def test_no_option_has_the_help_of_the_one_before(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert run(*command.split(), "--help") == 0
    options = help_by_option(capsys.readouterr().out)
    assert len(options) > 2
    same = [(name, text) for (_, before), (name, text) in pairwise(options) if text == before]
    assert same == []
