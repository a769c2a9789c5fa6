"""Small files that would take all memory or time are refused within bounds."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile_files import BOMBS

MOST_MEGABYTES, MOST_SECONDS = 200, 2


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """How each is refused, in a child of a program that has finished importing."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("measure_hostile.py")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=True,
        timeout=600,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", BOMBS)
def test_hostile_files_are_refused_in_bounds(measured, name):
    told = measured[name]
    assert told["end"].startswith("refused: "), told
    assert told["megabytes"] <= MOST_MEGABYTES, told
    assert told["seconds"] <= MOST_SECONDS, told
