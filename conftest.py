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
