"""The site, built once for all tests of it."""

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
NOTEBOOKS = os.environ.get("PREFERL_NOTEBOOKS", "")


@pytest.fixture(scope="session")
def site():
    """The folder of the built site; any warning of the generator is an error.

    It takes most of a minute, so it is built once for all processes and stages that test one state.
    `make docs` runs the notebooks, too; elsewhere their scripts run by themselves.
    """
    out = ROOT / "docs/_build/html"
    out.parent.mkdir(exist_ok=True)
    with FileLock(out.parent / "lock"):
        of = out / ".built_from"
        now = _state()
        if not of.is_file() or of.read_text() != now:
            shutil.rmtree(out, ignore_errors=True)  # an earlier build may have pages that are gone
            strictly = ["-E", "-W", "--keep-going", "-q"]
            strictly += [] if NOTEBOOKS else ["-D", "nb_execution_mode=off"]
            folders = ["-d", "docs/_build/doctrees", "docs", str(out)]
            command = [sys.executable, "-m", "sphinx", *strictly, "-b", "html", *folders]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            of.write_text(now)
    return out


def _state():
    """A digest of all that pages are made of."""
    made = ROOT / "docs/_build", ROOT / "docs/notebooks"
    files = sorted(
        file
        for folder in ("docs", "src", "examples", "recipes")
        for file in (ROOT / folder).rglob("*")
        if file.is_file()
        and "__pycache__" not in file.parts
        and not any(m in file.parents for m in made)
    )
    digest = sha256(NOTEBOOKS.encode())
    for file in [*sorted(ROOT.glob("*.md")), ROOT / "requirements.lock", *files]:
        digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()
