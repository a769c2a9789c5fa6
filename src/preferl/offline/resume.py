"""Training that stops and goes on: states on disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from preferl.errors import StorageError
from preferl.files import writing
from preferl.offline.learner import Metrics, OfflineLearner
from preferl.offline.transitions import Transitions
from preferl.reading import read_object, reading

REPORT_EVERY = 1000
"""Updates between two reports of progress."""


def train(
    learner: OfflineLearner,
    data: Transitions,
    state: Path,
    *,
    checkpoint_every: int,
    on_progress: Callable[[int, Metrics], None],
) -> None:
    """Train to the planned number of updates, from the last state that was written if there is one.

    Args:
        learner: freshly built.
        data: what it learns from.
        state: file of its state, written every `checkpoint_every` updates; whole or not there.
        checkpoint_every: updates.
        on_progress: told every thousand updates and at each state.

    Raises:
        CheckpointError: the state is damaged or of another learner.
    """
    if state.is_file():
        learner.load_state(_load(state))
    while learner.step < learner.steps:
        ahead = checkpoint_every - learner.step % checkpoint_every
        steps = min(ahead, learner.steps - learner.step)
        learner.fit(data, steps, on_progress=on_progress, every=REPORT_EVERY)
        with writing(state, durable=True) as draft:
            save_file(learner.state(), draft)


def read_json(path: Path) -> dict[str, Any]:
    """A file that a run wrote.

    Raises:
        StorageError: it is missing or damaged.
    """
    with reading(path, expected="a file of a run", error=StorageError):
        return read_object(path)


def _load(path: Path) -> dict[str, Any]:
    fix = "Remove it to train from the beginning."
    with reading(f"training state {path}", expected="a whole file", fix=fix):
        state: dict[str, Any] = load_file(path)
    return state
