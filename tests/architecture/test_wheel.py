"""The wheel holds all that lies in the package: templates, presets, migrations, pages."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(ZipFile(wheel).namelist())
    files = [file for file in (ROOT / "src/preferl").rglob("*") if file.is_file()]
    files = [file for file in files if "__pycache__" not in file.parts]
    kinds = {file.suffix for file in files}
    assert {".html", ".js", ".css", ".yaml", ".mako"} <= kinds
    assert {file.relative_to(ROOT / "src").as_posix() for file in files} - held == set()
    assert any("migrations/versions/" in name for name in held)
    assert [name for name in held if not name.startswith(("preferl/", "preferl-"))] == []
