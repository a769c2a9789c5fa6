"""Rewards of a LeRobot data set by commands: episodes, tables, and other programs' progress."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.lerobot_maker import CAMERA, make

from helpers.command_line import run
from preferl.data import Comparisons, cut, save_comparisons
from preferl.data.frame_tables import ABOUT
from preferl.data.sources import open_lerobot
from preferl.models import MLPReward, MLPRewardConfig, infer_spaces
from preferl.training import RewardFunction, relabel, save_reward

LENGTHS = [6, 4, 5]


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    """A data set, a run with a reward for it, and answers that later frames are better."""
    place = tmp_path_factory.mktemp("robot")
    folder = place / "set"
    make(folder, LENGTHS, side=64)
    episodes = open_lerobot(folder).episodes()
    spaces = infer_spaces(episodes.observations, episodes.actions)
    model = MLPReward(*spaces, MLPRewardConfig(members=3), seed=0)
    save_reward(place / "run/reward", RewardFunction(model).scaled(episodes))
    clips = cut(episodes, np.array([0, 3, 6, 7, 10, 12]), 3)
    pairs = np.array([[0, 1], [2, 3], [5, 4]])
    save_comparisons(place / "answers", Comparisons.of(clips, pairs, np.array([0.0, 0.0, 1.0])))
    return place


def test_tables_lie_beside_the_data_set(robot, capsys):
    words = ("reward", "export", robot / "run", "--lerobot", robot / "set", "--chunk", 2)
    assert run(*words) == 0
    out = capsys.readouterr().out
    path = robot / "set.preferl" / "progress.parquet"
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[ABOUT])
    assert f"--sample_weighting.kappa={about['kappa']:.3g}" in out
    folder = open_lerobot(robot / "set")
    assert about["content_id"] == folder.content_id
    from preferl.training import load_reward

    rewards = relabel(folder.episodes(), load_reward(robot / "run/reward")).rewards
    progress = table["progress_sparse"].to_numpy()
    sums = np.cumsum(rewards) - rewards
    expected = sums - np.repeat(sums[folder.starts], folder.lengths)
    np.testing.assert_allclose(progress, expected / np.abs(expected).max(), atol=1e-5)


def test_returns_go_into_the_data_set_where_that_is_asked(robot):
    words = ("reward", "export", robot / "run", "--lerobot", robot / "set")
    before = open_lerobot(robot / "set").content_id
    assert run(*words, "--kinds", "returns,advantages", "--into-meta", "--tag", "mine") == 0
    returns = pq.read_table(robot / "set/meta/returns_mine.parquet")
    advantages = pq.read_table(robot / "set/meta/advantages_mine.parquet")
    assert set(returns.column_names) >= {"episode_index", "frame_index", "return", "prompt"}
    assert str(advantages["advantage"].type) == "bool"
    assert open_lerobot(robot / "set").content_id == before


def test_progress_of_another_program_is_evaluated_by_the_same_answers(robot, tmp_path, capsys):
    folder = open_lerobot(robot / "set")
    frame = np.concatenate([np.arange(length) for length in LENGTHS])
    rows = {
        "index": np.arange(len(frame)),
        "episode_index": np.repeat(np.arange(3), LENGTHS),
        "frame_index": frame,
        "progress_sparse": (frame**2).astype(np.float32),  # which gains more in later frames
    }
    pq.write_table(pa.table(rows), tmp_path / "sarm.parquet")
    rows["progress_sparse"] = -rows["progress_sparse"]
    pq.write_table(pa.table(rows), tmp_path / "wrong.parquet")
    answers = ("--comparisons", robot / "answers", "--demonstrations", folder.path)
    files = ("--progress", tmp_path / "sarm.parquet", "--progress", tmp_path / "wrong.parquet")
    numbers = tmp_path / "numbers.json"
    words = ("reward", "evaluate", robot / "run", *answers)
    assert run(*words, *files, "--json", numbers) == 0
    controls = json.loads(numbers.read_text())["controls"]
    assert controls["sarm.parquet"]["accuracy"] == 1
    assert controls["sarm.parquet"]["interval"][1] == 1
    assert controls["wrong.parquet"]["accuracy"] == 0
    assert "sarm.parquet" in capsys.readouterr().out
    assert run(*words[:-2], *files) == 1
    assert "expected a LeRobot data set, got none" in capsys.readouterr().err


def test_episodes_are_ranked_and_shown(robot, tmp_path, capsys):
    report = tmp_path / "look.html"
    words = ("reward", "episodes", robot / "run", "--demonstrations", robot / "set", "--part", 3)
    assert run(*words, "--comparisons", robot / "answers", "--report", report) == 0
    out = capsys.readouterr().out
    assert "Episodes, the worst first" in out
    page = report.read_text()
    assert page.count("data:video/mp4") >= 3
    assert "stack the blocks" in page
    assert run(*words, "--camera", "front") == 1
    assert f"{CAMERA}, timestamp" in capsys.readouterr().err


def test_settings_that_are_refused_before_anything_is_written(robot, tmp_path, capsys):
    words = ("reward", "export", robot / "run", "--out", tmp_path / "out", "--lerobot")
    for more, message in (
        ((robot / "set", "--kinds", "returns,prices"), "prices"),
        ((robot / "set", "--tag", "../mine"), "expected letters"),
        ((robot / "set", "--chunk", 0), "chunk"),
        ((robot / "run",), "expected a LeRobot data set"),
        ((f"{robot / 'set'}:{CAMERA}",), "as the reward model was built for"),
    ):
        assert run(*words, *more) != 0
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_data_set_is_inspected(robot, capsys):
    assert run("data", "inspect", robot / "set") == 0
    out = capsys.readouterr().out
    for word in ("stack the blocks", "3 episodes", CAMERA, "[64, 64, 3]", "content id"):
        assert word in out
