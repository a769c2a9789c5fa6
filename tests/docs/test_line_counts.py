"""How many lines a user writes: for feedback in a loop of one's own, and for a reward model."""

import ast
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.waiting import SECONDS, wait_until
from preferl.training.publish import newest_reward, versions

EXAMPLES = Path(__file__).parents[2] / "examples"
LOOP = EXAMPLES / "own_training_loop.py"
MARK = "# +"


def without_feedback(text):
    """The program without its marked lines; what these enclose moves to the left."""
    kept = []
    enclosing = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        while enclosing and line.strip() and indent <= enclosing[-1]:
            enclosing.pop()
        if line.endswith(MARK):
            if line.removesuffix(MARK).rstrip().endswith(":"):
                enclosing.append(indent)
        else:
            kept.append(line[4 * len(enclosing) :] if line.strip() else "")
    return "\n".join(kept) + "\n"


def uses_preferl(tree):
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    ]
    return any(module.split(".")[0] == "preferl" for module in modules)


def test_a_loop_of_ones_own_takes_eight_more_lines():
    text = LOOP.read_text("utf-8")
    marked = [line for line in text.splitlines() if line.endswith(MARK)]
    assert 0 < len(marked) <= 8
    assert uses_preferl(ast.parse(text))
    assert not uses_preferl(ast.parse(without_feedback(text)))


@pytest.mark.slow
def test_without_those_lines_the_loop_learns_from_the_environments_own_reward(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(without_feedback(LOOP.read_text("utf-8")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script, "--steps", "1024"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert [file.name for file in (tmp_path / "runs/own").iterdir()] == ["agent.pt"]


@pytest.mark.slow
def test_with_them_a_reward_is_published_while_it_learns(tmp_path):
    rewards = tmp_path / "runs/own/rewards"
    endless = [sys.executable, "-W", "error", LOOP, "--script", "--steps", "1000000000"]
    with subprocess.Popen(endless, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as program:
        wait_until(lambda: versions(rewards) or program.poll() is not None, "no reward")
        program.send_signal(signal.SIGINT)  # it would learn for days
        _, errors = program.communicate(timeout=SECONDS)
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert newest_reward(rewards).number >= 1


def code_lines(node, text):
    """Numbers of the lines of a statement, without docstrings, comments and empty lines."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    numbers = set(range(first, node.end_lineno + 1))
    for part in ast.walk(node):
        is_text = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
        if is_text and isinstance(part.value.value, str):
            numbers -= set(range(part.lineno, part.end_lineno + 1))
    lines = text.splitlines()
    return {
        n for n in numbers if lines[n - 1].strip() and not lines[n - 1].lstrip().startswith("#")
    }


def calls(node, *names):
    """Whether a statement calls one of these functions or methods."""
    found = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    return any(getattr(f, "id", getattr(f, "attr", None)) in names for f in found)


def test_a_reward_model_of_ones_own_is_saved_loaded_and_served_by_twenty_lines():
    text = (EXAMPLES / "custom_reward_model.py").read_text("utf-8")
    tree = ast.parse(text)
    needed = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    needed += [node for node in tree.body if isinstance(node, ast.Expr) and calls(node, "register")]
    simple = [n for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.Expr)]
    needed += [node for node in simple if calls(node, "save_reward", "load_reward")]
    assert len(needed) == 5
    written = set().union(*(code_lines(node, text) for node in needed))
    used = {part.id for node in needed for part in ast.walk(node) if isinstance(part, ast.Name)}
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    imports = [n for n in imports if {a.asname or a.name for a in n.names} & used]
    served = re.findall(r"preferl reward serve --model quadratic --trust \w+$", text, re.M)
    assert len(written) + len(imports) + len(served) <= 20
    assert len(imports) == 5
    assert len(served) == 1


def test_counts_notice_another_line():
    text = "@wrap\nclass A:\n    '''A text\n    of two lines.'''\n\n    # why\n    x = 1\n"
    assert code_lines(ast.parse(text).body[0], text) == {1, 2, 7}
    assert without_feedback("with a:  # +\n    if b:  # +\n        c()\n    d()\ne()") == (
        "c()\nd()\ne()\n"
    )
