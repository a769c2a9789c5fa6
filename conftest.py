"""Which files pytest reads."""

from pathlib import Path

SOURCES = Path(__file__).parent / "src"
ELSEWHERE = "hugging_face.py"
"""Importing it takes as long as all others; a test has its example."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules without an example in a docstring, which importing alone would test."""
    if collection_path.suffix != ".py" or SOURCES not in collection_path.parents:
        return None
    text = collection_path.read_text(encoding="utf-8")
    return True if ">>>" not in text or collection_path.name == ELSEWHERE else None
