"""Numbered folders of what a run remembers; the one before stays until the next is whole."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from preferl.errors import CheckpointError, ConfigError, StorageError
from preferl.files import write_json, writing
from preferl.reading import read_object, reading
from preferl.runs import versions as package_versions
from preferl.training.state_files import read_state, write_state
from preferl.versioned import (
    digests,
    is_left,
    names_in,
    remove_versions,
    require_whole,
    version_folder,
    versions,
)

LOGGER = logging.getLogger(__name__)

FORMAT: Final = 2
"""Version of what a checkpoint holds, raised when it changes so that older readers say so."""

ABOUT: Final = "checkpoint.json"

RESTORE: Final = "Restore it from a copy, or remove it and begin anew."

JOURNAL: Final = "answers"
"""Folder of answers that came after the newest checkpoint, see `AnswerJournal`."""


class Checkpoint(NamedTuple):
    """What was read: where from, after how many steps, and all the rest."""

    path: Path
    steps: int
    state: Any


def write_checkpoint(folder: Path | str, state: Any, *, steps: int, run: Mapping[str, Any]) -> Path:
    """Write a checkpoint to the disk; earlier ones go when this one is whole.

    Args:
        folder: of one run's checkpoints alone; made if it is not there.
        state: what `write_state` takes.
        steps: that the run has made.
        run: what has to be the same for it to go on, as JSON.

    Returns:
        The checkpoint's own folder.

    Raises:
        CheckpointError: the newest checkpoint there is damaged.
        ConfigError: the run in the folder has come further than this one, or a state that cannot
            be written.
        StorageError: the folder cannot be written to, is full, or holds something else.
    """
    folder = Path(folder)
    before = require_own(folder, steps)
    path = version_folder(folder, max(before, default=0) + 1)
    with writing(path) as draft:
        draft.mkdir()
        write_state(draft, state)
        files = {name: digest for name, (_, digest) in digests(draft).items()}
        about = {"format": FORMAT, "steps": steps, "run": dict(run)}
        write_json(draft / ABOUT, about | {"versions": package_versions(), "files": files})
    try:
        remove_versions(folder, before)
    except StorageError as error:  # the new one is whole, and the next takes these along
        LOGGER.warning("Earlier checkpoints in %s stay for now: %s", folder, error)
    return path


def read_checkpoint(folder: Path | str, *, run: Mapping[str, Any]) -> Checkpoint:
    """Read the newest checkpoint of a run that was begun in the same way.

    Args:
        folder: into which `write_checkpoint` wrote.
        run: as it was then.

    Raises:
        CheckpointError: there is none, it is damaged, or it is of another run.
        StorageError: the folder cannot be read.
    """
    found = versions(folder)
    if not found:
        raise CheckpointError.mismatch(
            f"{folder}",
            expected="a folder of checkpoints",
            got="none in it" if Path(folder).is_dir() else "no such folder",
            fix="Name the folder that the run was saved to, or begin without resuming.",
        )
    path = version_folder(folder, found[-1])
    about = _told(path)
    with reading(path, expected="a whole checkpoint", fix=RESTORE):
        require_whole(path, about["files"])
    require_same(path, about["run"], run)
    _warn_of_versions(about["versions"])
    return Checkpoint(path, about["steps"], read_state(path))


def has_run(folder: Path | str) -> bool:
    """Whether a folder has a checkpoint, whole or not, of a run that can be resumed."""
    return bool(versions(folder))


def require_own(folder: Path | str, steps: int) -> list[int]:
    """Numbers of the checkpoints in a folder, which may be none, for a run to put its own there.

    Raises:
        CheckpointError: the newest one is damaged.
        ConfigError: the run in the folder has come further than these steps.
        StorageError: the folder holds something else, or cannot be read.
    """
    found = versions(folder)
    if found:
        reached = _told(version_folder(folder, found[-1]))["steps"]
        if reached > steps:
            raise ConfigError.mismatch(
                f"{folder}",
                expected=f"a run that has made the {reached} steps of the one there",
                got=f"one of {steps} steps",
                fix="Go on from what is there, or save to another folder.",
            )
    elif any(name != JOURNAL and not is_left(name) for name in names_in(folder)):
        raise StorageError.mismatch(
            f"{folder}",
            expected="an empty folder or one of checkpoints",
            got="one that holds something else",
            fix="Choose another name.",
        )
    return found


def _told(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    with reading(path, expected="a whole checkpoint", fix=RESTORE):
        about = read_object(path / ABOUT)
        found, about["steps"] = about["format"], int(about["steps"])
        if found != FORMAT:
            raise CheckpointError.mismatch(
                f"format of {path}",
                expected=FORMAT,
                got=found,
                fix="Resume it with the version of preferl that wrote it.",
            )
        for name in ("run", "versions", "files"):
            if not isinstance(about[name], dict):
                raise TypeError(f"{name} of {type(about[name]).__name__}")
        if not isinstance(about["versions"].get("packages", {}), dict):
            raise TypeError("versions of packages without names")
    return about


def require_same(path: Path, saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` unless a run is the one that was saved, and name what differs."""
    for name, value in json.loads(json.dumps(dict(here))).items():
        if saved.get(name) != value:
            raise CheckpointError.mismatch(
                f"{name} of the run in {path}",
                expected=f"{saved.get(name)}, as when it was saved",
                got=value,
                fix="Build everything as when the run began, or begin another run.",
            )


def _warn_of_versions(saved: Mapping[str, Any]) -> None:
    there, here = saved.get("packages", {}), package_versions()["packages"]
    changed = [
        f"{name} {there.get(name)} to {here.get(name)}"
        for name in sorted(here | there)
        if there.get(name) != here.get(name)
    ]
    if changed:
        LOGGER.warning("The run goes on, but not to the last bit: %s.", ", ".join(changed))
