"""What no import shows; the contracts of imports are in `.importlinter`, and `make imports`."""

import re
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src/preferl"


def test_simulators_and_the_store_name_nothing_above_them_as_text():
    above = re.compile(r"""["']preferl\.(cli|testing|online|offline|annotate|evaluation)\b""")
    files = [*SOURCES.glob("envs/*.py"), *SOURCES.rglob("store/**/*.py")]
    assert len(files) > 20
    assert [file.name for file in files if above.search(file.read_text(encoding="utf-8"))] == []
