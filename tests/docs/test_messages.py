"""The messages that the page of troubleshooting explains are those of the code."""

import ast
import re
from functools import cache
from pathlib import Path

import preferl

ROOT = Path(__file__).parents[2]
SOURCE = Path(preferl.__file__).parent


@cache
def words_of_the_code():
    """All texts in the code, with `{}` where a value is put in."""
    words = []
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", None) for part in node.values]
                words.append("".join(p if isinstance(p, str) else "{}" for p in parts))
    return "\n".join(words)


def messages(page):
    """Parts of messages in bold code: what is left between dots, "expected" and "got"."""
    found = re.findall(r"\*\*`([^`]+)`\*\*", page.replace("\n", " "))
    parts = [part for message in found for part in re.split(r"…|: expected |, got |\. ", message)]
    return [part.strip(" .:") for part in parts if part.strip(" .:")]


def missing(page):
    return [part for part in messages(page) if part not in words_of_the_code()]


def test_they_are_in_the_code():
    page = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
    assert len(messages(page)) > 20
    assert missing(page) == []
