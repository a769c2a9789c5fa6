"""What folders of runs show without their models: state, numbers and curves.

Reading changes nothing, loads no model, and imports nothing that a folder names.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, final

from preferl.configs import plain
from preferl.errors import StorageError
from preferl.printing import one_line
from preferl.reading import read_object, reading
from preferl.reporting import read_jsonl
from preferl.runs.folder import FAILURE, LOCK, flat_settings
from preferl.runs.lock import FolderLock, named
from preferl.runs.results import KINDS, Estimate, RunCurve

State = Literal["running", "finished", "interrupted", "failed"]
"""A run that failed ended by an error or was killed; one that was interrupted ended by Ctrl-C."""

NOT_SETTINGS: Final = ("out", "resume", "trust", "typed")
"""Settings of some kinds of runs that say where a run lies and how it was called, and no more."""

CONTENTS: Final = {
    "report.html": "report",
    "result.json": "result",
    "metrics.jsonl": "metrics",
    "reward": "learned reward",
    "policy": "policy",
    "policies": "policies",
    "comparisons": "answers",
    "episodes": "episodes",
    "checkpoints": "checkpoints",
    "training": "state of training, to resume from",
}
"""What may lie in the folder of a run."""


@final
@dataclass(frozen=True, eq=False)
class RunRecord:
    """What the folder of a run shows.

    Attributes:
        path: the folder.
        kind: "online", "offline", "reward" (a fit) or "data" (a recorded data set).
        config_class: the dataclass of its settings, by name.
        config: its settings, as `config.json` has them.
        seed: what its randomness came from.
        state: whether it is at work, and how it ended.
        note: which program is at work, or why it failed; else empty.
        began: seconds since the epoch at which its settings were written.
        seconds: of work; where it runs, since it was begun or last resumed; None if not kept.
        subject: its environment or data.
        steps: environment steps, updates, epochs or recorded steps, by `steps_of`.
        answers: comparisons it learned from.
        score: of the policy it is about, by the environment's reward, in `unit`.
        beside: scores of the policies beside it, such as that of random actions.
        accuracy: of the reward, on answers that it was not fitted to.
        reward: further numbers of the reward by name, such as its log loss.
        curves: metrics over steps.
        versions: of Python and the packages.
    """

    path: Path
    kind: str
    config_class: str
    config: Mapping[str, Any] = field(repr=False)
    seed: int
    state: State
    note: str
    began: float
    seconds: float | None = None
    subject: str = ""
    steps: int | None = None
    steps_of: str = "environment steps"
    answers: int | None = None
    score: Estimate | None = None
    unit: str = "return"
    beside: Mapping[str, Estimate] = field(default_factory=dict)
    accuracy: Estimate | None = None
    reward: Mapping[str, float] = field(default_factory=dict)
    curves: tuple[RunCurve, ...] = field(default=(), repr=False)
    versions: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by dotted name."""
        return flat_settings(plain(self.config))

    def to_json(self) -> dict[str, Any]:
        """Everything but curves and single values as numbers, text and lists."""
        kept = vars(self) | {
            "path": str(self.path),
            "score": _without_values(self.score),
            "beside": {name: _without_values(one) for name, one in self.beside.items()},
            "accuracy": _without_values(self.accuracy),
            "contents": {name: words for name, words in CONTENTS.items() if self._has(name)},
        }
        del kept["curves"]
        return plain(kept)

    def _has(self, name: str) -> bool:
        return (self.path / name).exists()


def find_runs(folder: Path | str) -> tuple[list[RunRecord], list[str]]:
    """Read all runs in a folder and below it, the oldest first, and name what cannot be read.

    Runs within runs, hidden folders and links to folders are not looked at.

    Returns:
        The runs, and a sentence for each folder that is damaged, or not a run of preferl.

    Raises:
        StorageError: there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise StorageError(f"{folder}: expected a folder with runs, got none. Name another one.")
    found: list[RunRecord] = []
    skipped: list[str] = []

    def name_error(error: OSError) -> None:
        skipped.append(one_line(f"{error.filename}: {error.strerror}."))

    for place, folders, files in os.walk(folder, onerror=name_error):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "config.json" not in files:
            continue
        path = Path(place)
        try:
            about = _about(path)
            if about is None:  # runs may lie below another program's folder
                continue
            folders.clear()
            found.append(_record(path, about))
        except StorageError as error:
            skipped.append(one_line(str(error)))
    return sorted(found, key=lambda run: run.began), skipped


def read_run(path: Path | str) -> RunRecord:
    """Read the folder of a run.

    Raises:
        StorageError: there is none, it is damaged, or it is not one of preferl's.
    """
    path = Path(path)
    if not (path / "config.json").is_file():
        raise StorageError(
            f"{path}: expected the folder of a run, got one without config.json, or none."
        )
    about = _about(path)
    if not about:
        raise StorageError(f"{path}: expected the folder of a run, got that of a reward.")
    return _record(path, about or {})


def _about(path: Path) -> dict[str, Any] | None:
    """What `config.json` holds of a run; None of a reward, `StorageError` of anything else."""
    about = read_file(path / "config.json")
    if "observation_space" in about and "model" in about:
        return None
    kind, config, seed = (about.get(name) for name in ("kind", "config", "seed"))
    if not (kind in KINDS and isinstance(config, dict) and isinstance(seed, int)):
        raise StorageError(
            f"{path / 'config.json'}: expected the settings of a run, got those of something "
            "else, which is left alone."
        )
    return about


def _record(path: Path, about: Mapping[str, Any]) -> RunRecord:
    """The record of a folder whose settings were read; damage becomes one `StorageError`."""
    config = about["config"]
    kind = about["kind"]
    fix = "A file in it is damaged."
    with reading(path, expected="the folder of a run", fix=fix, error=StorageError):
        lock = FolderLock(path, LOCK, "run")
        holder = lock.holder()  # before the result, which is there once the run has let go
        result = read_file(path / "result.json") if (path / "result.json").exists() else {}
        state, note = _state(path, result, holder, lock.left())
        if state not in ("finished", "interrupted"):  # the result is older than what came since
            result = {}
        began = (path / "config.json").stat().st_mtime
        versions = read_file(path / "versions.json") if (path / "versions.json").exists() else {}
        has_metrics = (path / "metrics.jsonl").is_file()
        metrics = read_jsonl(path / "metrics.jsonl") if has_metrics else {}
        metrics = metrics if "step" in metrics else {}
        name, read = KINDS[kind]
        record = RunRecord(
            path, name, kind, config, about["seed"], state, note, began, versions=versions
        )
        record = replace(record, **read(path, config, result, metrics))
        seconds = _at_work(path, began) if state == "running" else record.seconds
        subject = one_line(record.subject)
        note = one_line(note)
        record = replace(record, seconds=seconds, subject=subject, note=note)
        record.to_json(), record.settings  # whatever is wrong shows now
        return record


def _state(
    path: Path, result: Mapping[str, Any], holder: Mapping[str, Any] | None, left: Mapping[str, Any]
) -> tuple[State, str]:
    """The state, and who is at work or why it failed.

    A run that was interrupted has a result as well, which says nothing once it is resumed.
    """
    if result and not result.get("interrupted"):
        return "finished", ""
    if (path / FAILURE).is_file():
        return "failed", str(read_file(path / FAILURE).get("error", ""))
    if holder is not None:
        return "running", named(holder)
    if left:
        return "failed", f"killed: {named(left)}"
    return "interrupted", ""


def _at_work(path: Path, began: float) -> float:
    """Seconds since the program at work took the folder, which it may have done to resume a run."""
    holder = FolderLock(path, LOCK, "run").holder() or {}
    with suppress(ValueError):
        began = datetime.fromisoformat(str(holder.get("since"))).timestamp()
    return max(time.time() - began, 0.0)


def read_file(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run; raises `StorageError`."""
    with reading(path, expected="a file of a run", error=StorageError):
        return read_object(path)


def _without_values(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {name: value for name, value in vars(estimate).items() if name != "values"}
