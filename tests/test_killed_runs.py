"""Whole runs that are killed with -9 and resumed come to the same, to the last bit."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.resumable_runs import KilledError
from helpers.terminal_run import CONFIG
from preferl.online import learn_from_preferences

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "kills.py"


@pytest.mark.slow
@pytest.mark.nightly  # tests of their own, of runs, learners and pipelines, kill and resume each
@pytest.mark.parametrize("run", ["sac", "iql", "dt"])
def test_a_run_that_was_killed_comes_to_the_same(tmp_path, run):
    out = tmp_path / "kills.json"
    short = ["--runs", run, "--kills", "1", "--share", "0.1", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, SCRIPT, *short], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads(out.read_text())["runs"][run]
    assert row["kills"] == 1
    assert row["compared"] > 10


def test_answers_leave_the_journal_once_a_checkpoint_holds_them(tmp_path, monkeypatch):
    asked = []

    def teacher(shown, _):
        asked.append(len(shown))
        return np.ones(len(shown))

    def killed(*_, **__):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("preferl.online.loop.write_checkpoint", killed)
        with pytest.raises(KilledError):
            learn_from_preferences(CONFIG, teacher=teacher, checkpoints=tmp_path)
    assert 0 < sum(asked) < CONFIG.comparisons
    learn_from_preferences(CONFIG, teacher=teacher, checkpoints=tmp_path)
    assert sum(asked) == CONFIG.comparisons
