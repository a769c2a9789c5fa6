"""Programs that are killed with -9 at random times, and started again until they are through."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from helpers import killable_run
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.training.checkpoint_folder import has_run

SECONDS = 120.0


@contextmanager
def running(folder: Path, algorithm: str, steps: int) -> Iterator[subprocess.Popen[bytes]]:
    """The program, from its first step on."""
    command = [sys.executable, killable_run.__file__, str(folder), algorithm, str(steps)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline().startswith(b"after ")
        yield program


def through(folder: Path, algorithm: str, steps: int) -> float:
    """Let it come to its end; the seconds it took."""
    with running(folder, algorithm, steps) as program:
        began = time.monotonic()
        assert program.wait(SECONDS) == 0
        return time.monotonic() - began


def answers(folder: Path) -> int:
    with Store.open(folder / "store") as store:
        return store.progress(StoredFeedback(store).project.id).answered


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "steps"), [("PPO", 4_096), ("SAC", 2_000)])
def test_a_program_killed_at_random_times_comes_to_the_same(tmp_path, algorithm, steps):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for folder in (undisturbed, killed):
        folder.mkdir()
        killable_run.prepare(folder)
    seconds = through(undisturbed, algorithm, steps)
    rng = np.random.default_rng(0)
    kills = answered = 0
    for after in rng.uniform(0, 0.4 * seconds, 8):
        with running(killed, algorithm, steps) as program:
            try:
                program.wait(float(after))
            except subprocess.TimeoutExpired:
                program.kill()
                kills += 1
        now = answers(killed)
        assert now >= answered
        answered = now
    assert kills >= 3
    assert has_run(killed / "run")
    through(killed, algorithm, steps)
    np.testing.assert_array_equal(
        np.load(killed / "parameters.npy"), np.load(undisturbed / "parameters.npy")
    )
    assert answers(killed) >= answered
    with Store.open(killed / "store") as store:
        assert len(store.questions.asked(StoredFeedback(store).project.id)) <= 40
