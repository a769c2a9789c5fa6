"""Whole runs that are killed with -9 and resumed come to the same, to the last bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "kills.py"
OFFLINE = [pytest.param(run, marks=pytest.mark.nightly) for run in ("iql", "dt")]
"""Tests of their own, of learners and pipelines, resume them in every run."""


@pytest.mark.slow
@pytest.mark.parametrize("run", ["sac", *OFFLINE])
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
