"""How many lines a user adds to a training loop of their own."""

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


def test_a_loop_of_ones_own_takes_eight_more_lines():
    lines = LOOP.read_text("utf-8").splitlines()
    marked = [line for line in lines if line.endswith(MARK)]
    assert 0 < len(marked) <= 8
    assert [line for line in lines if "import" in line and "preferl" in line] == marked[:1]


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
