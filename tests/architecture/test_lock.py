"""The lock covers what the project names, with the hash of every file."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OWN_BUILDS = {"torch"}
"""Each machine has its own, as the Makefile says."""


def locked():
    """Requirements of the lock by name, with their hashes."""
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text().strip())
    found = {}
    for entry in entries:
        requirement = Requirement(entry.split("\\\n")[0].strip())
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
        found[canonicalize_name(requirement.name)] = requirement, hashes
    return found


def named():
    """What the project needs to run, to be developed and to be built."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = about["project"]
    extras = (line for lines in project["optional-dependencies"].values() for line in lines)
    lines = [*project["dependencies"], *extras, *about["build-system"]["requires"]]
    requirements = [Requirement(line) for line in lines]
    return [r for r in requirements if r.name not in {project["name"], *OWN_BUILDS}]


def test_everything_that_is_named_is_locked():
    lock = locked()
    for requirement in named():
        pinned, _ = lock[canonicalize_name(requirement.name)]
        (pin,) = pinned.specifier
        assert pin.operator == "=="
        assert pin.version in requirement.specifier, f"{requirement}: run `make lock`"


def test_every_file_has_a_hash():
    lock = locked()
    assert len(lock) > 100
    assert not OWN_BUILDS & lock.keys()
    assert [name for name in lock if name.startswith(("nvidia", "cuda", "triton"))] == []
    assert [name for name, (_, hashes) in lock.items() if not hashes] == []
