"""One folder per run: what was asked for, with which versions, and what came of it."""

import json
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self, TypeVar, cast, final

from preferl.configs import from_json, plain, to_json
from preferl.errors import StorageError, mismatch
from preferl.files import write_json

Config = TypeVar("Config")

PACKAGES = (
    *("preferl", "numpy", "torch", "gymnasium", "stable-baselines3"),
    *("mujoco", "gymnasium-robotics", "metaworld"),
    *("transformers", "accelerate"),
)
"""Whose versions can change a result; asked of the installer, never imported."""


@final
@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    A run is *finished* once it has a result. Folders appear whole or not at all, and a new run
    never mixes with an older one.

    Attributes:
        folder: where it is; holds `config.json`, `versions.json` and, at the end, `result.json`.
    """

    folder: Path

    @classmethod
    def create(
        cls, path: Path | str, *, config: object, seed: int, overwrite: bool = False
    ) -> Self:
        """Begin a run: a fresh folder with its configuration and the versions it runs on.

        Args:
            path: the folder. If it holds an older run, that moves aside to `path.1`, `path.2`,
                and so on, so that the plain name is always the latest run.
            config: a dataclass, written by `to_json`.
            seed: what the run draws its randomness from.
            overwrite: delete the older run instead of moving it aside.

        Raises:
            ConfigError: `config` is not a dataclass, or holds what JSON cannot.
            StorageError: the folder cannot be written to, or holds something that is not a run.
        """
        path = Path(path)
        about = {"kind": type(config).__name__, "seed": seed, "config": to_json(config)}
        _require_replaceable(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            holder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            try:
                draft = holder / "draft"
                draft.mkdir()
                write_json(draft / "config.json", about)
                write_json(draft / "versions.json", versions())
                if path.exists():
                    empty = not any(path.iterdir())
                    path.rename(holder / "old" if overwrite or empty else _aside(path))
                draft.rename(path)
            finally:
                shutil.rmtree(holder, ignore_errors=True)
        except OSError as error:
            raise _unwritable(path, error) from error
        return cls(path)

    @property
    def finished(self) -> bool:
        """Whether the run has a result."""
        return self.path("result.json").exists()

    @property
    def seed(self) -> int:
        """What the run draws its randomness from."""
        return int(_read(self.path("config.json"))["seed"])

    def config(self, cls: type[Config]) -> Config:
        """The configuration, read back as the dataclass `cls`.

        Raises:
            StorageError: there is no readable configuration here.
            ConfigError: it is the configuration of something else.
        """
        return from_json(cls, _read(self.path("config.json"))["config"])

    def path(self, name: str) -> Path:
        """Where a file of this run belongs; folders on the way to it are made.

        Raises:
            StorageError: the folder cannot be written to.
        """
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(path.parent, error) from error
        return path

    def result(self, values: Mapping[str, Any]) -> None:
        """Finish the run with `result.json`, which is whole or not there; NaN becomes null.

        Raises:
            ConfigError: a value that JSON cannot hold.
            StorageError: the folder cannot be written to.
        """
        write_json(self.path("result.json"), plain(values))


def versions() -> dict[str, Any]:
    """Python, platform, the packages that matter, and the git revision of the working directory.

    `git` is None outside a checkout; `changed` tells of edits that no revision holds.
    """
    installed = {name: _version(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version for name, version in installed.items() if version},
        "git": _git_state(),
    }


def _require_replaceable(path: Path) -> None:
    try:
        holds_run = (path / "config.json").exists()
        if not path.exists() or holds_run or (path.is_dir() and not any(path.iterdir())):
            return
    except OSError as error:
        raise _unwritable(path, error) from error
    raise StorageError(
        mismatch(
            f"{path}",
            expected="a new or empty folder, or one that holds a run",
            got="something else, which is left alone",
            fix="Choose another path.",
        )
    )


def _aside(path: Path) -> Path:
    """The first of `path.1`, `path.2`, ... that is free."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return aside


def _read(path: Path) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise StorageError(mismatch(f"{path}", expected="a file of a run", got=error)) from error


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        mismatch(
            f"folder {path}",
            expected="a folder that can be written to",
            got=error,
            fix="Choose another path or change its permissions.",
        )
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_state() -> dict[str, Any] | None:
    revision = _git("rev-parse", "HEAD")
    if revision is None:
        return None
    return {"revision": revision, "changed": bool(_git("status", "--porcelain"))}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
