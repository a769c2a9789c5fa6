"""The site, built once for all tests of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built site; any warning of the generator is an error."""
    out = ROOT / "docs/_build/html"
    shutil.rmtree(out, ignore_errors=True)  # pages of an earlier build may be in no contents now
    strictly = ["-E", "-W", "--keep-going", "-q"]
    folders = ["-d", "docs/_build/doctrees", "docs", str(out)]
    command = [sys.executable, "-m", "sphinx", *strictly, "-b", "html", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out
