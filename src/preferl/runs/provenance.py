"""What a result was made with: Python, platform, packages and the git revision."""

import platform
import re
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from preferl.envs.config import SIMULATORS

PACKAGES: Final = (
    *("preferl", "numpy", "torch", "stable-baselines3", "transformers", "accelerate"),
    *SIMULATORS,
)
"""Whose versions can change a result; asked of the installer, never imported."""

_LEVELS: Final = 64
"""Folders upwards in which a checkout is looked for."""

_BYTES: Final = 2**24
"""Of a file of git that are read: packed references of a large repository."""

_REVISION: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def versions() -> dict[str, Any]:
    """Python, platform, the packages that matter, and the git revision of the working directory.

    `git` is None outside a checkout. Whether files were changed since that revision is not
    recorded: git finds that out by running programs that the repository's own configuration names.
    """
    packages = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    revision = git_revision(Path.cwd())
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "git": None if revision is None else {"revision": revision},
    }


def git_revision(folder: Path) -> str | None:
    """The revision of the checkout, worktree or submodule around a folder; None without one.

    It is read from git's files. Git is not called, so nothing that a repository configures runs.
    """
    # not readable, no text, or links in a circle
    with suppress(OSError, ValueError, RuntimeError):
        for place in [folder.resolve(), *folder.resolve().parents][:_LEVELS]:
            if (place / ".git").exists():
                return _head(place / ".git")
    return None


def _head(git: Path) -> str | None:
    """The revision of HEAD; branches of a worktree lie in the folder that it shares."""
    if not git.is_dir():  # a worktree and a submodule have a file that names the folder
        name, _, path = _text(git).partition(":")
        if name != "gitdir":
            return None
        git = git.parent / path.strip()
    name, _, reference = _text(git / "HEAD").partition(":")
    if name != "ref":
        return _revision(name)
    reference = reference.strip()
    if not reference.startswith("refs/") or ".." in reference:
        return None
    common = git / "commondir"
    shared = git / _text(common).strip() if common.is_file() else git
    for place in (git, shared):
        if (place / reference).is_file():
            return _revision(_text(place / reference))
    packed = shared / "packed-refs"
    lines = _text(packed).splitlines() if packed.is_file() else []
    named = (line.split(" ", 1)[0] for line in lines if line.endswith(f" {reference}"))
    return next(map(_revision, named), None)


def _text(file: Path) -> str:
    if not file.is_file():  # a pipe would never end
        raise ValueError(f"{file} is no file")
    with file.open("rb") as stream:
        return stream.read(_BYTES).decode("utf-8")


def _revision(text: str) -> str | None:
    return text.strip() if _REVISION.fullmatch(text.strip()) else None
