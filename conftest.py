"""Which files pytest reads, and at what cost."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "src"
ELSEWHERE = "hugging_face.py"
"""Importing it takes as long as all others; a test has its example."""

# Tests are compiled, and start many programs that import much: where no bytecode may be written,
# each compiles all of it again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
gc.disable()  # what is imported and collected stays

# What tests write need not outlast a loss of power: in memory no commit waits for a disk, which
# took up to half of the time of tests of the store.
MEMORY = Path("/dev/shm")
ENOUGH = 4 * 2**30
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of what tests and their programs leave behind, which pytest removes."""
    folder = tmp_path_factory.mktemp("t")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest tests in both halves, of which each of two processes gets one.

    A process that has ended its half takes short tests from the end of the other, so that none
    waits for a long one in the end.
    """
    if hasattr(config, "workerinput"):
        long = [item for item in items if _is_long(item)]
        short = [item for item in items if not _is_long(item)]
        first = len(long) // 2
        rest = len(items) // 2 - first
        items[:] = [*long[:first], *short[:rest], *long[first:], *short[rest:]]


def _is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "browser"))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what is there, a fifth of the time of short tests."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules without an example in a docstring, which importing alone would test."""
    if collection_path.suffix != ".py" or SOURCES not in collection_path.parents:
        return None
    text = collection_path.read_text(encoding="utf-8")
    return True if ">>>" not in text or collection_path.name == ELSEWHERE else None
