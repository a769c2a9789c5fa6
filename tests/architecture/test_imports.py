"""Imports point one way; the contracts are in `.importlinter`."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "preferl"


def test_imports_point_one_way():
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("import-linter is not installed")
    command = [tool, "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_simulators_and_the_store_name_nothing_above_them_as_text():
    above = re.compile(r"""["']preferl\.(cli|testing|online|offline|annotate|evaluation)\b""")
    files = [*SOURCES.glob("envs/*.py"), *SOURCES.rglob("store/**/*.py")]
    assert len(files) > 20
    assert [file.name for file in files if above.search(file.read_text(encoding="utf-8"))] == []
