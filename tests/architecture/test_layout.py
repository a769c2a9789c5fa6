"""Tests stand where that stands which they test: folders mirror packages, files mirror modules."""

from pathlib import Path

import preferl

SOURCE = Path(preferl.__file__).parent
TESTS = Path(__file__).parents[1]

OF_NO_PACKAGE = {
    "architecture",
    "docs",
    "golden",
    "helpers",
    "hostile",
    "interop",
    "lerobot",
    "migrate",
    "rllib",
}
"""Folders of tests of the whole library, and of what tests share."""

OF_NO_MODULE = {
    ".": {"invariants", "io_errors", "killed_runs", "learning"} | {"power_loss", "recipes"},
    "annotate": {"accessibility", "answering_page", "fuzz", "lost_server"}
    | {"other_addresses", "playing_page", "rating_page", "refusals"}
    | {"small_screens"},
    "cli": {"foreign_folders", "wrong_data", "wrong_input"},
    "feedback": {"named_teachers"},
    "models": {"own_models"},
    "online": {"episode_lengths", "normalised_agents", "pixels", "resumed_answers"},
}
"""By folder: files of tests of what several modules do together."""

FOLDERS = sorted({file.parent.relative_to(TESTS) for file in TESTS.rglob("*.py")})
MIRRORED = [each for each in FOLDERS if not OF_NO_PACKAGE & set(each.parts)]


def subjects(folder):
    """What the files of a folder test, by their names."""
    return {file.stem.removeprefix("test_") for file in (TESTS / folder).glob("test_*.py")}


def test_folders_mirror_packages():
    assert [str(each) for each in MIRRORED if not (SOURCE / each / "__init__.py").exists()] == []


def test_files_are_named_after_a_module_of_their_package():
    found = {}
    for folder in MIRRORED:
        modules = [file.stem for file in (SOURCE / folder).glob("*.py")]
        others = {
            subject
            for subject in subjects(folder)
            if not any(f"{subject}_".startswith(f"{module}_") for module in modules)
        }
        if others:
            found[str(folder)] = others
    assert found == OF_NO_MODULE
