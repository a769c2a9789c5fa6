"""Read the state, numbers and curves of runs from their folders, without their models.

Reading changes nothing, loads no model, and imports nothing that a folder names.
"""

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, final

import numpy as np

from preferl.configs import from_json, plain
from preferl.errors import StorageError
from preferl.printing import one_line
from preferl.reading import reading
from preferl.reporting import common_series, read_jsonl, series
from preferl.runs.folder import FAILURE, LOCK, flat_settings, read_file
from preferl.runs.lock import FolderLock, named
from preferl.runs.summary import SUMMARY, UNSEEN, Estimate, MetricCurve, RunSummary
from preferl.shapes import Array, FloatArray
from preferl.statistics import mean_interval

Metrics = Mapping[str, FloatArray]
"""Columns of `metrics.jsonl`; empty if there are none."""

State = Literal["running", "finished", "interrupted", "failed"]
"""State of a run. "failed" ended by an error or was killed; "interrupted" ended by Ctrl-C."""

NOT_SETTINGS: Final = ("out", "resume", "trust", "typed")
"""Settings that are only about where a run is and how it was started."""

CONTENTS: Final = {
    "report.html": "report",
    "summary.json": "summary",
    "result.json": "result",
    "metrics.jsonl": "metrics",
    "reward": "learned reward",
    "policy": "policy",
    "policies": "policies",
    "comparisons": "answers",
    "episodes": "episodes",
    "checkpoints": "checkpoints",
    "training": "state from which training is resumed",
}
"""Files and folders that a run's folder may hold."""


class RunCurve(NamedTuple):
    """A metric of a run over its steps.

    Attributes:
        title: name of the metric for people.
        unit: unit of the values.
        x_unit: unit of the steps.
        steps: `[n]`.
        values: `[n]`, or `[S, n]` for several agents.
        interval: `[2, n]` ends of the 95 % interval of the mean; None if it is not known.
    """

    title: str
    unit: str
    x_unit: str
    steps: Array
    values: FloatArray
    interval: FloatArray | None = None


@final
@dataclass(frozen=True, eq=False)
class RunRecord:
    """The state, settings and numbers of a run, read from its folder.

    Attributes:
        path: the folder.
        config_class: name of the dataclass of its settings.
        config: its settings, as in `config.json`.
        seed: the seed of its randomness.
        state: whether it is running, or how it ended.
        note: which program runs it, or why it failed; otherwise empty.
        began: when its settings were written, in seconds since the epoch.
        summary: its numbers, including those that only the metrics have so far. For a running run,
            `seconds` counts from when it was begun or last resumed.
        curves: metrics over steps.
        versions: versions of Python and the packages.
    """

    path: Path
    config_class: str
    config: Mapping[str, Any] = field(repr=False)
    seed: int
    state: State
    note: str
    began: float
    summary: RunSummary
    curves: tuple[RunCurve, ...] = field(default=(), repr=False)
    versions: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def settings(self) -> dict[str, Any]:
        """Return all settings by dotted name."""
        return flat_settings(plain(self.config))

    def to_json(self) -> dict[str, Any]:
        """Return everything but curves as numbers, text and lists."""
        contents = {name: words for name, words in CONTENTS.items() if (self.path / name).exists()}
        shown = vars(self) | vars(self.summary) | {"path": str(self.path), "contents": contents}
        return plain({name: shown[name] for name in shown if name not in ("curves", "summary")})


def find_runs(folder: Path | str) -> tuple[list[RunRecord], list[str]]:
    """Read all runs in a folder and below it, oldest first; report folders that cannot be read.

    Runs within runs, hidden folders and links to folders are skipped.

    Returns:
        The runs, and a sentence for each folder that is damaged or is not a run of preferl.

    Raises:
        StorageError: the folder does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise StorageError(f"{folder}: expected a folder with runs, got none. Name another folder.")
    records: list[RunRecord] = []
    skipped: list[str] = []

    def name_error(error: OSError) -> None:
        skipped.append(one_line(f"{error.filename}: {error.strerror}."))

    for place, folders, files in os.walk(folder, onerror=name_error):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "config.json" not in files:
            continue
        path = Path(place)
        try:
            settings = _settings(path)
            if settings is None:  # another program's folder may contain runs
                continue
            folders.clear()
            records.append(_record(path, settings))
        except StorageError as error:
            skipped.append(one_line(str(error)))
    return sorted(records, key=lambda run: run.began), skipped


def read_run(path: Path | str) -> RunRecord:
    """Read the folder of a run.

    Raises:
        StorageError: the folder has no run, the run is damaged, or it is another program's run.
    """
    path = Path(path)
    if not (path / "config.json").is_file():
        raise StorageError(
            f"{path}: expected the folder of a run, but it has no config.json or does not exist."
        )
    settings = _settings(path)
    if not settings:
        raise StorageError(f"{path}: expected the folder of a run, got that of a reward.")
    return _record(path, settings)


def _settings(path: Path) -> dict[str, Any] | None:
    """Read the `config.json` of a run; return None if it is a reward's.

    Raises:
        StorageError: the file is damaged, or belongs to another program.
    """
    settings = read_file(path / "config.json")
    if "observation_space" in settings and "model" in settings:
        return None
    kind, config, seed = (settings.get(name) for name in ("kind", "config", "seed"))
    is_run = isinstance(kind, str) and isinstance(config, dict) and isinstance(seed, int)
    if not (is_run and (path / SUMMARY).is_file()):
        raise StorageError(
            f"{path / 'config.json'}: expected the settings of a run, got those of something else, "
            "which is left alone."
        )
    return settings


def _record(path: Path, settings: Mapping[str, Any]) -> RunRecord:
    """Return the record of a folder whose settings were read; raise `StorageError` for damage."""
    fix = "A file in it is damaged."
    with reading(path, expected="the folder of a run", fix=fix, error=StorageError):
        lock = FolderLock(path, LOCK, "run")
        # read before the summary, which is complete when the holder has released the folder
        holder = lock.holder()
        summary = from_json(RunSummary, read_file(path / SUMMARY))
        state, note = _state(path, summary, holder, lock.left())
        began = (path / "config.json").stat().st_mtime
        has_metrics = (path / "metrics.jsonl").is_file()
        metrics = read_jsonl(path / "metrics.jsonl") if has_metrics else {}
        if "step" not in metrics:
            metrics = {}
        if not summary.finished:
            summary = _so_far(summary, metrics)
        if state == "running":
            summary = replace(summary, seconds=_at_work(holder or {}, began))
        accuracy = summary.accuracy or _newest_accuracy(metrics)
        summary = replace(summary, accuracy=accuracy, subject=one_line(summary.subject))
        record = RunRecord(
            path=path,
            config_class=settings["kind"],
            config=settings["config"],
            seed=settings["seed"],
            state=state,
            note=one_line(note),
            began=began,
            summary=summary,
            curves=tuple(_curves(summary.curves, metrics)),
            versions=read_file(path / "versions.json"),
        )
        record.to_json(), record.settings  # any damage is found now
        return record


def _state(
    path: Path, summary: RunSummary, holder: Mapping[str, Any] | None, left: Mapping[str, Any]
) -> tuple[State, str]:
    """Return the state of a run, and which program runs it, or why it failed."""
    if summary.finished:
        return "finished", ""
    if (path / FAILURE).is_file():
        return "failed", str(read_file(path / FAILURE).get("error", ""))
    if holder is not None:
        return "running", named(holder)
    if left:
        return "failed", f"killed: {named(left)}"
    return "interrupted", ""


def _so_far(summary: RunSummary, metrics: Metrics) -> RunSummary:
    """Return an unfinished run's summary, with the counts that its metrics have reached."""
    steps = _larger(summary.steps, _last(metrics, "step"))
    return replace(
        summary, steps=steps, answers=_larger(summary.answers, _last(metrics, "feedback/answers"))
    )


def _larger(count: int | None, logged: float | None) -> int | None:
    return count if logged is None else max(count or 0, int(logged))


def _at_work(holder: Mapping[str, Any], began: float) -> float:
    """Return the seconds since the running program took the folder, to begin or resume the run."""
    with suppress(ValueError):
        began = datetime.fromisoformat(str(holder.get("since"))).timestamp()
    return max(time.time() - began, 0.0)


def _newest_accuracy(metrics: Metrics) -> Estimate | None:
    """Return the accuracy of the last fit on answers outside of that fit."""
    for kind, words in UNSEEN.items():
        name = f"reward/{kind}_accuracy"
        share = _last(metrics, name)
        if share is not None:
            steps, _ = series(metrics, name)
            beside = (f"{name}_low", f"{name}_high", f"reward/{kind}_answers")
            low, high, count = (_last(metrics, other, at=steps[-1]) for other in beside)
            interval = None if low is None or high is None else (low, high)
            return Estimate(share, int(count or 0), f"{words} answers", interval)
    return None


def _last(metrics: Metrics, name: str, *, at: float | None = None) -> float | None:
    """Return a metric's newest value, or its value at a step; None if it was not logged."""
    if name not in metrics:
        return None
    steps, values = series(metrics, name)
    values = values if at is None else values[steps == at]
    return float(values[-1]) if len(values) else None


def _curves(curves: Iterable[MetricCurve], metrics: Metrics) -> Iterable[RunCurve]:
    """Read the curves whose metrics were logged."""
    for curve in curves:
        names = [name for name in curve.metrics if name in metrics]
        steps, values = common_series(series(metrics, name) for name in names)
        if not len(steps):
            continue
        interval: FloatArray | None
        if len(names) > 1:
            interval = np.array([mean_interval(column) for column in values.T]).T  # [2, n]
        else:
            interval = _logged_interval(metrics, names[0], steps)
            values = values[0]
        yield RunCurve(curve.title, curve.unit, curve.x_unit, steps, values, interval)


def _logged_interval(metrics: Metrics, name: str, steps: Array) -> FloatArray | None:
    """Return the ends `[2, n]` of a metric's interval, if they were logged at all of its steps."""
    ends = [end for end in (f"{name}_low", f"{name}_high") if end in metrics]
    logged_at, values = common_series(series(metrics, end) for end in ends)
    return values if len(ends) == 2 and np.array_equal(logged_at, steps) else None
