"""Names are the field's words, and each public class has one of its own."""

import ast
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

import preferl

ROOT = Path(preferl.__file__).parent
NOT_OURS = {
    "arm",
    "arms",
    "dear",
    "handover",
    "lived",
    "lives",
    "owe",
    "owed",
    "owing",
    "paid",
    "pay",
    "payer",
    "paying",
    "pays",
    "repay",
    "said",
    "sight",
    "told",
    "verdict",
    "waiting_room",
    "worth",
}
"""Words of no paper and no library of the field; `_` joins those that are wrong together only."""


@pytest.fixture(scope="module")
def trees():
    """The syntax of each module, by its file."""
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in ROOT.rglob("*.py")}


def identifiers(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.name


def words(identifier):
    """An identifier's words in lower case, and each two neighbours joined."""
    spelled = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower()
    parts = [part for part in re.split(r"[_.]", spelled) if part]
    return {*parts, *(f"{a}_{b}" for a, b in pairwise(parts))}


def test_identifiers_are_words_of_the_field(trees):
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for file, tree in trees.items()
        for name in [*identifiers(tree), file.stem]
        if words(name) & NOT_OURS
    }
    assert not found


def test_public_classes_have_names_of_their_own(trees):
    files = defaultdict(list)
    for file, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(str(file.relative_to(ROOT)))
    assert {name: where for name, where in files.items() if len(where) > 1} == {}
