"""Tables of a number for each frame: what they hold, and whom they belong to."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.lerobot_maker import make

from preferl.data import cut
from preferl.data.frame_tables import ABOUT, FrameRewards, frames_of, read_frame_rewards
from preferl.data.sources import open_lerobot
from preferl.errors import ConfigError, DataError

LENGTHS = [3, 4]
REWARDS = np.array([1.0, 2.0, -1.0, 0.5, 0.5, -4.0, 1.0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("lerobot") / "set"
    make(path, LENGTHS, side=64)
    return open_lerobot(path)


@pytest.fixture(scope="module")
def frames(folder):
    return FrameRewards(folder, REWARDS, version="7", chunk=2, best=2 / 7)


def test_progress_is_a_running_sum_of_rewards(frames):
    # Sums before each frame: 0 1 3 | 0 0.5 1 -3, divided by 3.
    expected = np.array([0, 1, 3, 0, 0.5, 1, -3]) / 3
    np.testing.assert_allclose(frames.progress, expected)
    # Gains over two frames, clamped: 3 2 0 | 1 -3.5 -4 0, divided by 3.
    gains = frames.columns("progress")["progress_sparse"]
    assert gains.dtype == np.float32
    assert frames.kappa == pytest.approx(
        np.quantile([1, 2 / 3, 0, 1 / 3, -3.5 / 3, -4 / 3, 0], 5 / 7)
    )


def test_returns_and_advantages_are_those_of_rlinf(frames):
    returns = frames.columns("returns")
    assert returns["return"].tolist() == [2, 1, -1, -2, -2.5, -3, 1]
    assert returns["reward"].tolist() == REWARDS.tolist()
    assert returns["prompt"].tolist() == ["stack the blocks"] * 7
    advantages = frames.columns("advantages")
    # Rewards of two frames: 3 1 -1 | 1 -3.5 -3 1, whose mean is -1.5 / 7.
    expected = np.array([3, 1, -1, 1, -3.5, -3, 1]) + 1.5 / 7
    np.testing.assert_allclose(advantages["advantage_continuous"], expected, rtol=1e-6)
    assert advantages["advantage"].tolist() == [True, True, False, True, False, False, True]


def test_a_table_that_is_read_again(frames, folder, tmp_path):
    frames.write(tmp_path / "progress.parquet", "progress")
    frames.write(tmp_path / "rewards.parquet", "rewards")
    table = pq.read_table(tmp_path / "progress.parquet")
    assert table.column_names == ["index", "episode_index", "frame_index", "progress_sparse"]
    assert [str(kind) for kind in table.schema.types] == ["int64", "int64", "int64", "float"]
    about = json.loads(table.schema.metadata[ABOUT])
    assert about == {
        "content_id": folder.content_id,
        "reward": "7",
        "chunk": 2,
        "kappa": frames.kappa,
    }
    gains = read_frame_rewards(tmp_path / "progress.parquet", folder)
    np.testing.assert_allclose(gains, np.array([1, 1.5, 2, 0.5, 0.5, -1.75, -4]) / 3, atol=1e-6)
    rewards = read_frame_rewards(tmp_path / "rewards.parquet", folder)
    np.testing.assert_allclose(rewards, REWARDS)


def test_tables_of_another_program(folder, tmp_path):
    path = tmp_path / "sarm_progress.parquet"
    rows = {
        "index": [6, 5, 4, 3, 2, 1, 0],
        "episode_index": [1, 1, 1, 1, 0, 0, 0],
        "frame_index": [3, 2, 1, 0, 2, 1, 0],
        "progress_sparse": [0.9, 0.5, 0.5, 0.0, 1.0, 0.25, 0.0],
    }
    pq.write_table(pa.table(rows), path)
    np.testing.assert_allclose(
        read_frame_rewards(path, folder), [0.25, 0.5, 0.75, 0.5, 0.25, 0.2, 0.4]
    )
    whole = pa.table(rows)
    for table, message in (
        (pa.table(rows | {"progress_sparse": [None] + [0.5] * 6}), "nulls"),
        (pa.table(rows | {"progress_sparse": [np.nan] + [0.5] * 6}), "got none in 1 rows"),
        (pa.table(rows | {"progress_sparse": ["much"] * 7}), "expected only numbers"),
        (pa.table(rows | {"frame_index": [0] * 7}), "expected the 7 frames"),
        (whole.slice(1), r"expected the 7 frames .* got 6 rows"),
        (whole.drop(["progress_sparse"]), "expected a column progress_sparse or"),
    ):
        pq.write_table(table, path)
        with pytest.raises(DataError, match=message):
            read_frame_rewards(path, folder)


def test_a_table_of_another_data_set_is_refused(frames, tmp_path):
    frames.write(tmp_path / "progress.parquet", "progress")
    make(tmp_path / "other", [3, 4], side=64, task="open the drawer")
    with pytest.raises(DataError, match=r"whose content id is .* Write the table again"):
        read_frame_rewards(tmp_path / "progress.parquet", open_lerobot(tmp_path / "other"))


def test_settings_and_rewards_that_are_refused(folder):
    with pytest.raises(DataError, match="a finite number for each of 7 frames"):
        FrameRewards(folder, REWARDS[:6], version="7")
    with pytest.raises(ConfigError, match="chunk"):
        FrameRewards(folder, REWARDS, version="7", chunk=0)


def test_clips_get_the_rewards_of_their_frames(folder):
    episodes = folder.episodes()
    segments = cut(episodes, np.array([0, 3, 4]), 3)
    for clips, returns in (
        (segments, [2, -3, -2.5]),
        (segments.select(np.array([2, 0])), [-2.5, 2]),
    ):
        rewards = REWARDS[frames_of(clips, folder, episodes.actions)]
        assert replace(clips, rewards=rewards).returns().tolist() == returns
    with pytest.raises(DataError, match=r"expected clips of .* Give the data set"):
        frames_of(segments, folder, episodes.actions + 1)
    with pytest.raises(DataError, match="expected clips of"):
        frames_of(replace(segments, origin=None), folder, episodes.actions)
