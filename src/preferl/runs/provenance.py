"""Record what made a result: Python, platform, packages and the git revision."""

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
"""Packages whose versions can change a result. Their metadata is read without importing them."""

_LEVELS: Final = 64
"""How many parent folders are searched for a checkout."""

_BYTES: Final = 2**24
"""Most bytes read from a file of git, enough for packed references of a large repository."""

_REVISION: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def versions() -> dict[str, Any]:
    """Return Python, platform, the relevant packages, and the working directory's git revision.

    `git` is None outside a checkout. Changes since that revision are not recorded. To find them,
    git may run programs that the repository's own configuration names.
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
    """Return the revision of the checkout, worktree or submodule around a folder, or None.

    The revision is read from git's files. Git is not called, so no program that a repository
    configures runs.
    """
    # The files may be unreadable or no text, and links may be circular.
    with suppress(OSError, ValueError, RuntimeError):
        for place in [folder.resolve(), *folder.resolve().parents][:_LEVELS]:
            if (place / ".git").exists():
                return _head(place / ".git")
    return None


def _head(git: Path) -> str | None:
    """Return the revision of HEAD; a worktree's branches lie in the shared folder of git."""
    if not git.is_dir():  # in worktrees and submodules, a file names git's folder
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
