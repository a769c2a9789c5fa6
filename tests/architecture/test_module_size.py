"""Files hold one idea and functions fit on a screen."""

import ast
from pathlib import Path

import pytest

import preferl

FILES = sorted(Path(preferl.__file__).parent.rglob("*.py"))


def function_lengths(file: Path) -> list[int]:
    """Lines of code of each function, without its docstring."""
    lengths = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) is not None
            body = node.body[1:] if documented else node.body
            first = body[0].lineno if body else node.lineno
            lengths.append((node.end_lineno or first) - first + 1)
    return lengths


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_files_are_short(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 450


def test_few_functions_are_long():
    lengths = [length for file in FILES for length in function_lengths(file)]
    long = [length for length in lengths if length > 40]
    assert len(long) < 0.1 * len(lengths)
