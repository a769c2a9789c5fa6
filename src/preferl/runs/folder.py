"""One folder per run: its configuration, the versions it ran on, and its result."""

import itertools
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, final

from preferl.configs import from_json, plain, resolved_to_json, to_json
from preferl.errors import ConfigError, DataError, ResumeError, StorageError
from preferl.files import make_folder, remove_drafts, sync_all, write_json, writing
from preferl.reading import read_object, reading
from preferl.runs.lock import FolderLock
from preferl.runs.provenance import versions
from preferl.runs.summary import SUMMARY, RunSummary

Config = TypeVar("Config")

LOCK: Final = "run.lock"
"""File that names the program that works in the folder, while one does."""

DATA: Final = "data.json"

FAILURE: Final = "failure.json"
"""File with the error that ended the run, until it is resumed."""


@final
@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    It holds `config.json`, `versions.json`, `summary.json` and, at the end, `result.json`. Folders
    appear whole or not at all, and a new run never mixes with an older one.
    """

    folder: Path

    @property
    def finished(self) -> bool:
        """Whether the run has a result and was not interrupted."""
        file = self.folder / SUMMARY
        return file.exists() and read_file(file).get("finished") is True

    def config(self, cls: type[Config]) -> Config:
        """Read the configuration as a `cls`; raise `ConfigError` if it is of another class."""
        return from_json(cls, read_file(self.path("config.json"))["config"])

    def path(self, name: str) -> Path:
        """Return where a file of this run belongs, after making the folders on the way."""
        path = self.folder / name
        with _writing_to(path.parent):
            make_folder(path.parent)
        return path

    def result(self, values: Mapping[str, Any], summary: RunSummary | None = None) -> None:
        """Finish the run: write `result.json`, which is complete or absent, and then its summary.

        Everything in the folder is on disk before `result.json` is written, and both files are on
        disk when this returns. A run whose values say `interrupted` is not finished.

        Args:
            values: the result that this kind of run keeps; NaN becomes null.
            summary: the numbers that lists and comparisons of runs show.

        Raises:
            ConfigError: JSON cannot hold a value.
            StorageError: the folder cannot be written to.
        """
        with _writing_to(self.folder):
            sync_all(self.folder)
        write_json(self.path("result.json"), plain(values))
        finished = not values.get("interrupted", False)
        summary = replace(summary or RunSummary(), finished=finished)
        write_json(self.path(SUMMARY), to_json(summary))


@contextmanager
def open_run(
    path: Path | str,
    *,
    config: object,
    seed: int,
    resume: bool = False,
    data: Mapping[str, Any] | None = None,
    may_differ: Collection[str] = (),
    resolved: Mapping[str, Any] | None = None,
    summary: RunSummary | None = None,
) -> Iterator[RunFolder]:
    """Hold the folder of a new or resumed run while the block works in it.

    Check settings before you call this, so that a mistake does not move an older run aside.
    The lock ends with the block or with the process. An error that ends the block is kept in
    `failure.json` until the run is resumed.

    Args:
        path: the folder. Without `resume`, an older run there moves aside to `path.1`, `path.2`,
            and so on, so that the plain name is always the latest run.
        config: a dataclass of everything that decides the run's result, written by `to_json`.
        seed: the seed of the run's randomness.
        resume: whether to resume the run in the folder.
        data: identifies the run's data, kept in `data.json`; a resumed run must have the same.
        may_differ: settings, as `"name"` or `"section.name"`, that a resumed run may change.
        resolved: settings that the config leaves open and the run has chosen, by name;
            `resolved_to_json` writes them beside the config.
        summary: what the run is about, and which curves to draw of its metrics.

    Raises:
        ConfigError: `config` is not a dataclass, or JSON cannot hold a value of it; or the run to
            resume has other settings, which the message names.
        DataError: the run to resume was begun with other data.
        ResumeError: the run to resume is finished, or there is none.
        StorageError: another run is at work in the folder, which the message names; or the folder
            cannot be read or written, or holds something that is not a run.
    """
    path = Path(path)
    require_openable(path, resume=resume)
    initial_summary = to_json(summary or RunSummary())
    folder_status = (
        path.stat() if resume else _begin(path, config, seed, data, resolved or {}, initial_summary)
    )
    folder = RunFolder(path)
    with FolderLock(path, LOCK, "run"):
        if not os.path.samestat(folder_status, path.stat()):
            raise StorageError(
                f"{path}: expected this run to be its only one, got a newer run. Let one program "
                "write there at a time."
            )
        if resume:
            # Checked again, now that no other program can change the folder.
            require_openable(path, resume=True, is_held=True, config=config, may_differ=may_differ)
            _require_same_data(path / DATA, data)
            remove_drafts(path)
            write_json(path / SUMMARY, initial_summary)
            (path / FAILURE).unlink(missing_ok=True)
        try:
            yield folder
        except Exception as error:  # the folder must record any failure
            with suppress(StorageError):  # a full disk may prevent that
                write_json(path / FAILURE, plain({"error": f"{type(error).__name__}: {error}"}))
            raise


def require_openable(
    path: Path | str,
    *,
    resume: bool,
    is_held: bool = False,
    config: object | None = None,
    may_differ: Collection[str] = (),
) -> None:
    """Raise what `open_run` would raise about a folder, before expensive work; change nothing.

    Args:
        path: the folder.
        resume: whether to resume the run in the folder.
        is_held: whether this program holds the folder.
        config: the configuration to compare with that of the run to resume, if known already.
        may_differ: settings that a resumed run may change, as for `open_run`.

    Raises:
        ConfigError: the run to resume has other settings, which the message names.
        ResumeError: the run to resume is finished, or there is none.
        StorageError: another run is at work in the folder, or the folder holds no run.
    """
    path = Path(path)
    if not resume:
        _require_replaceable(path)
    elif not (path / "config.json").is_file():
        raise ResumeError(f"{path}: there is no run here to resume. Begin one without resuming.")
    elif RunFolder(path).finished:
        result_file = path / ("report.html" if (path / "report.html").exists() else "result.json")
        raise ResumeError(
            f"{path}: this run is finished, see {result_file}. Nothing is left to resume."
        )
    elif config is not None:
        _require_same_settings(RunFolder(path), config, may_differ)
    if not is_held:
        FolderLock(path, LOCK, "run").require_free()


def _begin(
    path: Path,
    config: object,
    seed: int,
    data: Mapping[str, Any] | None,
    resolved: Mapping[str, Any],
    summary: Mapping[str, Any],
) -> os.stat_result:
    """Make a new folder with the configuration of a run and the versions it runs on.

    The returned status shows later whether another program has replaced the folder.
    """
    settings = {
        "kind": type(config).__name__,
        "seed": seed,
        "config": to_json(config),
        "resolved": resolved_to_json(resolved),
    }
    with writing(path) as draft:
        draft.mkdir()
        write_json(draft / "config.json", settings)
        write_json(draft / SUMMARY, summary)
        write_json(draft / "versions.json", versions())
        if data is not None:
            write_json(draft / DATA, dict(data))
        if path.exists() and any(path.iterdir()):
            _move_aside(path)
        return draft.stat()


def _require_same_settings(folder: RunFolder, config: Any, may_differ: Collection[str]) -> None:
    try:
        written = to_json(folder.config(type(config)))
    except ConfigError:  # code may have passed a function, which no file can name
        written = read_file(folder.path("config.json"))["config"]
    saved_settings = flat_settings(written)
    present_settings = flat_settings(to_json(config))
    different = [
        name
        for name in {**saved_settings, **present_settings}
        if saved_settings.get(name) != present_settings.get(name) and name not in may_differ
    ]
    if different:
        saved_text, present_text = (
            ", ".join(f"{name}={values.get(name)}" for name in different)
            for values in (saved_settings, present_settings)
        )
        raise ConfigError(
            f"settings to resume the run in {folder.folder} with: expected {saved_text}, got "
            f"{present_text}. Use the settings it was begun with, or begin another run without "
            "resuming."
        )


def _require_same_data(file: Path, data: Mapping[str, Any] | None) -> None:
    saved = read_file(file) if file.exists() else None
    if saved != (None if data is None else json.loads(json.dumps(dict(data)))):
        raise DataError(
            f"data of the run in {file.parent}: expected the data with which it was begun, "
            f"{saved}, got {data}. Restore the data, or begin another run without resuming."
        )


def flat_settings(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return settings by dotted name; names leave out a run's outermost section, `config`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner_prefix = "" if name == "config" and not prefix else f"{prefix}{name}."
        setting = {f"{prefix}{name}": value}
        flat |= flat_settings(value, inner_prefix) if isinstance(value, Mapping) else setting
    return flat


def place_aside(path: Path) -> Path:
    """Return the path to which a new run moves an older one: the first free of `path.1`, ..."""
    numbered = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    return next(name for name in numbered if not name.exists())


def _move_aside(path: Path) -> None:
    """Rename the folder of an older run, unless a program is at work in it."""
    with FolderLock(path, LOCK, "run") as lock:
        lock.move(place_aside(path))


def _require_replaceable(path: Path) -> None:
    with _writing_to(path):
        holds_run = (path / "config.json").exists()
        is_empty = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    if not (holds_run or is_empty):
        raise StorageError(
            f"{path}: expected a new or empty folder, or one that holds a run, got something "
            "else, which is left alone. Choose another path."
        )


def read_file(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run; raise `StorageError` if that fails."""
    with reading(path, expected="a file of a run", error=StorageError):
        return read_object(path)


def _writing_to(path: Path) -> AbstractContextManager[None]:
    expected = "a folder that can be written to"
    fix = "Choose another path or change its permissions."
    return reading(f"folder {path}", expected=expected, fix=fix, error=StorageError)
