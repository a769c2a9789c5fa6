"""How many lines a user adds to a training loop of their own."""

import ast
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
def test_with_them_a_reward_is_published_while_it_learns(tmp_path):
    rewards = tmp_path / "runs/own/rewards"
    endless = [sys.executable, "-W", "error", LOOP, "--script", "--steps", "1000000000"]
    with subprocess.Popen(endless, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as program:
        wait_until(lambda: versions(rewards) or program.poll() is not None, "no reward")
        program.send_signal(signal.SIGINT)  # it would learn for days
        _, errors = program.communicate(timeout=SECONDS)
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert newest_reward(rewards).number >= 1
