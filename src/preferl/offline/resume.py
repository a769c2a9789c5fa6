"""Runs that stop and go on: the folder, the settings it was begun with, and training states."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from preferl.configs import to_json
from preferl.errors import CheckpointError, ConfigError, DataError, StorageError, mismatch
from preferl.files import write_json, writing
from preferl.offline.config import OfflineRun
from preferl.offline.learner import Metrics, OfflineLearner
from preferl.offline.transitions import Transitions
from preferl.runs import RunFolder

DATA = "data.json"

REPORT_EVERY = 1000
"""Updates between two reports of progress."""


def open_run(
    out: Path | str, run: OfflineRun, data: Mapping[str, Any], *, resume: bool
) -> RunFolder:
    """A fresh folder, or the one of the same run that was interrupted.

    Args:
        out: the folder. Without `resume`, an older run there moves aside.
        run: all that decides what the run comes to.
        data: what the episodes are told by.
        resume: go on where the run that is there stopped; begin if there is none.

    Raises:
        ConfigError: the run that is there has other settings; the message names them.
        DataError: it was begun with other data.
        StorageError: the folder cannot be read or written.
    """
    out = Path(out)
    if not (resume and (out / "config.json").is_file()):
        folder = RunFolder.create(out, config=run, seed=run.seeds[0])
        write_json(folder.path(DATA), dict(data))
        return folder
    folder = RunFolder(out)
    _require_same(out, to_json(folder.config(OfflineRun)), to_json(run))
    begun = read_json(folder.path(DATA))
    if begun != data:
        raise DataError(
            mismatch(
                f"data of the run in {out}",
                expected=f"those it was begun with, {begun}",
                got=dict(data),
                fix="Restore the data, or begin another run without --resume.",
            )
        )
    return folder


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
        with writing(state) as draft:
            save_file(learner.state(), draft)


def read_json(path: Path) -> dict[str, Any]:
    """A file that a run wrote.

    Raises:
        StorageError: it is missing or damaged.
    """
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(mismatch(f"{path}", expected="a file of a run", got=error)) from error
    return values


def _load(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            mismatch(
                f"training state {path}",
                expected="a whole file",
                got=error,
                fix="Remove it to train from the beginning.",
            )
        ) from error
    return state


def _require_same(out: Path, begun: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    old, new = _flat(begun), _flat(asked)
    different = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if different:
        raise ConfigError(
            mismatch(
                f"settings of the run in {out} to go on with",
                expected=", ".join(f"{name}={old.get(name)}" for name in different),
                got=", ".join(f"{name}={new.get(name)}" for name in different),
                fix="Use the settings it was begun with, or begin another run without --resume.",
            )
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        # `config` holds all settings but the seeds; naming it would only lengthen names.
        inner = "" if name == "config" and not prefix else f"{prefix}{name}."
        flat |= _flat(value, inner) if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat
