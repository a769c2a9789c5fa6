"""Programs that are killed with -9 all along the way, and started again until they are through."""

import signal

import numpy as np
import pytest

from helpers.killable_run import main, prepare
from helpers.programs import status_of
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.training.checkpoint_folder import has_run

TOUCHES = (0, 12, 45, 90, 0, 93)
"""Of a checkpoint, where the program ends: in its writing, or before it; 91 put it in its place."""


def answers(folder):
    with Store.open(folder / "store") as store:
        return store.progress(StoredFeedback(store).project.id).answered


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "steps"), [("PPO", 2_048), ("SAC", 800)])
def test_a_program_killed_all_along_the_way_comes_to_the_same(tmp_path, algorithm, steps):
    undisturbed = tmp_path / "undisturbed"
    killed = tmp_path / "killed"
    for folder in (undisturbed, killed):
        folder.mkdir()
        prepare(folder)
    assert status_of(main, undisturbed, algorithm, steps) == 0
    answered = 0
    for number, touch in enumerate(TOUCHES, start=1):
        at = number * steps // (len(TOUCHES) + 1)
        status = status_of(main, killed, algorithm, steps, at, touch)
        assert status == -signal.SIGKILL, "it ended by itself"
        now = answers(killed)
        assert now >= answered
        answered = now
    assert has_run(killed / "run")
    assert status_of(main, killed, algorithm, steps) == 0
    np.testing.assert_array_equal(
        np.load(killed / "parameters.npy"), np.load(undisturbed / "parameters.npy")
    )
    assert answers(killed) >= answered
    with Store.open(killed / "store") as store:
        assert len(store.queries.query_clips(StoredFeedback(store).project.id)) <= 40
