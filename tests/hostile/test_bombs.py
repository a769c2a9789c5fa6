"""Small files that would take all memory or time are refused within bounds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.hostile_files import BOMBS

ROOT = Path(__file__).parents[2]
MOST_MEGABYTES = 200  # of processor time: the slowest took 1.1 beside other work
MOST_SECONDS = 6


@pytest.mark.slow
def test_hostile_files_are_refused_in_bounds():
    """In children of one program that has finished importing, which takes most of the time."""
    done = subprocess.run(
        [sys.executable, "-m", "helpers.measure_hostile"],
        cwd=ROOT / "tests",
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        timeout=600,
    )
    measured = json.loads(done.stdout)
    assert set(measured) == set(BOMBS)
    beyond = {
        name: measures
        for name, measures in measured.items()
        if not measures["end"].startswith("refused: ")
        or measures["megabytes"] > MOST_MEGABYTES
        or measures["seconds"] > MOST_SECONDS
    }
    assert not beyond
