"""Which files pytest reads."""

from pathlib import Path

SOURCES = Path(__file__).parent / "src"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules without an example in a docstring, which importing alone would test."""
    if collection_path.suffix != ".py" or SOURCES not in collection_path.parents:
        return None
    return None if ">>>" in collection_path.read_text(encoding="utf-8") else True
