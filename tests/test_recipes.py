"""Every recipe runs, in a short form that learns nothing."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box

from preferl.data import Segments
from preferl.models import MLPReward, MLPRewardConfig
from preferl.training import RewardFunction

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
    "metaworld_sweep.py",
    "moving_dot_pixels.py",
    "presets_through_services.py",
    "wrong_answers.py",
}
"""Whose parts other recipes and tests run, too."""
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
    "door_again.py": "gymnasium_robotics",
    "dt_door_human.py": "gymnasium_robotics",
    "dt_halfcheetah.py": "transformers",
    "lerobot_reacher.py": "transformers",
    "pt_door_human.py": "gymnasium_robotics",
    "metaworld_sweep.py": "metaworld",
}


def test_rows_of_a_table_replace_those_of_the_same_key(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "recipes")
    from result_tables import keep, read

    table = tmp_path / "new/table.csv"
    keep(table, [], ("name", "seed"))
    assert not table.exists()
    keep(table, [{"name": "a", "seed": seed, "score": 0.5} for seed in (10, 9)], ("name", "seed"))
    keep(table, [{"name": "a", "seed": 10, "score": 2}], ("name", "seed"))
    assert [(row["seed"], row["score"]) for row in read(table)] == [("9", "0.5"), ("10", "2")]


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


def table(folder):
    """The command of a small table with its folders and files in one folder."""
    more = folder.with_suffix(".yaml")
    few = {"eval_episodes": 1, "eval_every": 300, "iterations": 4, "initial_epochs": 2}
    few |= {"trainer": {"epochs": 2}}
    more.write_text(json.dumps({"learned": few, "true": few}))
    command = [sys.executable, str(ROOT / "recipes/online_table.py"), "--tasks", "pendulum"]
    command += ["--conditions", "learned", "true", "--seeds", "1", "--steps", "2000"]
    command += ["--comparisons", "20", "--processes", "2", "--more", str(more)]
    return [*command, "--runs", str(folder / "runs"), "--out", str(folder / "table.csv")]


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
def test_online_agents_that_are_stored_are_left_out(tmp_path):
    rows = [
        "task,condition,budget,seed,answers,steps,return",
        "pendulum,random,0,1,0,0,-1200",
        "pendulum,learned,20,1,20,2000,-150",
        "pendulum,true,0,1,0,2000,-150",
    ]
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    command = [*table(tmp_path), "--conditions", "learned", "true", "random"]
    subprocess.run(command, check=True, capture_output=True)
    assert not (tmp_path / "runs").exists()
    command += ["--steps", "1000"]
    other = subprocess.run(command, check=False, capture_output=True, text=True)
    assert other.returncode == 2
    assert "expected agents of 1,000 steps, got 2,000 steps. Name another table" in other.stderr
    assert not (tmp_path / "runs").exists()


def offline(folder, *options):
    """What the offline table prints of `table.csv`, with its runs beside."""
    command = [sys.executable, str(ROOT / "recipes/offline_table.py"), *options]
    command += ["--out", str(folder / "table.csv"), "--runs", str(folder / "runs")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_regressed_reward_is_the_true_one_up_to_its_scale(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "recipes")
    from online_table import regressed

    rng = np.random.default_rng(0)
    box = Box(-np.inf, np.inf, (3,))
    model = MLPReward(box, Box(-1, 1, (1,)), MLPRewardConfig(hidden=(32,), members=2), seed=0)
    states = rng.normal(size=(2_000, 3))
    actions = rng.uniform(-1, 1, (2_000, 1))
    true = 5 + 3 * np.abs(states[:, 0]) - 2 * actions[:, 0]  # a sum over a clip would hide a step
    steps = Segments(states, actions, true, np.arange(0, 2_000, 50), np.full(40, 50), 50)
    reward = regressed(RewardFunction(model), steps, seed=1, updates=1_000)
    given = reward(states[:, None], actions[:, None], np.ones((2_000, 1), bool))
    np.testing.assert_allclose(given, (true - true.mean()) / true.std(), atol=0.5)
    assert np.corrcoef(given, true)[0, 1] > 0.99


@pytest.mark.slow
def test_offline_rows_that_are_stored_are_left_out(tmp_path):
    rows = ["data,condition,seed,answers,score"]
    for name in ("learned", "true", "zero", "random", "negated", "cloning"):
        rows += [f"halfcheetah,{name},3,1000,{len(name)}"]
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    options = ["--data", "halfcheetah", "--seeds", "3", "--groups", "rewards"]
    assert offline(tmp_path, *options) == ""
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_offline_rewards_from_fewer_answers_are_compared_with_controls_that_need_none(tmp_path):
    rows = ["data,condition,seed,answers,score"]
    for seed in range(3):
        rows += [f"dot,learned,{seed},500,{2 + seed}"]
        rows += [f"dot,{name},{seed},1000,{seed}" for name in ("zero", "negated")]
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    printed = offline(tmp_path, "--summary")
    assert "learned − zero, 500 answers: 2.000" in printed
    assert "learned − negated" not in printed
