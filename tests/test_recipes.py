"""Every recipe runs, in a short form that learns nothing."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").glob("*.py"))
NEEDS_DATA = {
    "dt_door_human.py",
    "door_answers.py",
    "door_calibration.py",
    "door_human_reward.py",
    "door_reward_models.py",
    "pt_door_human.py",
    "metaworld_sweep.py",
}
NEEDS_SIMULATOR = {
    "dt_door_human.py": "gymnasium_robotics",
    "dt_halfcheetah.py": "transformers",
    "pt_door_human.py": "gymnasium_robotics",
    "metaworld_sweep.py": "metaworld",
}


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_runs(recipe, request, tmp_path):
    simulator = NEEDS_SIMULATOR.get(recipe.name)
    if simulator is not None and find_spec(simulator) is None:
        pytest.skip(f"{simulator} is not installed; {recipe.name} says how")
    environment = dict(os.environ)
    if recipe.name in NEEDS_DATA:
        environment["PREFERL_SHARED"] = str(request.getfixturevalue("shared").resolve())
    done = subprocess.run(
        [sys.executable, recipe, "--smoke"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
