"""Every recipe runs, in a short form that learns nothing."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NIGHTLY = {
    "door_again.py",
    "door_calibration.py",
    "door_human_reward.py",
    "door_reward_models.py",
    "drlhp_pendulum.py",
    "dt_door_human.py",
    "dt_halfcheetah.py",
    "is_it_working.py",
    "lerobot_reacher.py",
    "metaworld_sweep.py",
    "moving_dot_pixels.py",
    "offline_fits.py",
    "offline_table.py",
    "presets_through_services.py",
    "pt_door_human.py",
    "wrong_answers.py",
}
"""Whose parts other recipes and tests run, too, or which take most of a minute."""
RECIPES = [
    pytest.param(path, marks=pytest.mark.nightly if path.name in NIGHTLY else (), id=path.name)
    for path in sorted((ROOT / "recipes").glob("*.py"))
    if path.name != "result_tables.py"
]
NEEDS_DATA = {
    "door_again.py",
    "dt_door_human.py",
    "lerobot_reacher.py",
    "door_answers.py",
    "door_calibration.py",
    "door_human_reward.py",
    "door_reward_models.py",
    "few_answers.py",
    "pt_door_human.py",
    "metaworld_sweep.py",
}
NEEDS_SIMULATOR = {
    "antmaze_umaze.py": "gymnasium_robotics",
    "door_again.py": "gymnasium_robotics",
    "dt_door_human.py": "gymnasium_robotics",
    "dt_halfcheetah.py": "transformers",
    "lerobot_reacher.py": "transformers",
    "pt_door_human.py": "gymnasium_robotics",
    "metaworld_sweep.py": "metaworld",
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
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


@pytest.mark.slow
def test_stored_rows_are_shared_out_and_drawn(tmp_path):
    rows = ["task,condition,budget,seed,answers,steps,return", "dot,random,0,0,0,0,-10"]
    for seed in range(4):
        for steps in (0, 100):
            of = {"learned": steps / 10 + seed, "true": steps / 5 + seed}
            rows += [
                f"dot,{name},{100 * (name == 'learned')},{seed},{steps},{steps},{value}"
                for name, value in of.items()
            ]
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    options = ["--out", str(tmp_path / "table.csv"), "--pictures", str(tmp_path)]
    command = [sys.executable, str(ROOT / "recipes/online_table.py"), "--share", "--draw", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    share = (11.5 + 10) / (21.5 + 10)
    assert f"learned, 100 answers: 11.5 (4, 9 to 14), share {share:.3f}" in done.stdout
    assert "</svg>" in (tmp_path / "online-table-dot.svg").read_text()


@pytest.mark.slow
def test_offline_rewards_from_fewer_answers_are_compared_with_controls_that_need_none(tmp_path):
    rows = ["data,condition,seed,answers,score"]
    for seed in range(3):
        rows += [f"dot,learned,{seed},500,{2 + seed}"]
        rows += [f"dot,{name},{seed},1000,{seed}" for name in ("zero", "negated")]
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    command = [sys.executable, str(ROOT / "recipes/offline_table.py"), "--summary"]
    command += ["--out", str(tmp_path / "table.csv"), "--runs", str(tmp_path / "runs")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "learned − zero, 500 answers: 2.000" in printed
    assert "learned − negated" not in printed
