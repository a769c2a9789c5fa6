"""Data sets as LeRobot reads and writes them, and as we read them."""

import numpy as np
import pytest
from lerobot.datasets.dataset_tools import delete_episodes, merge_datasets
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from preferl.data.sources import load_source, open_lerobot

FEATURES = {
    "observation.state": {"dtype": "float32", "shape": (2,), "names": None},
    "action": {"dtype": "float32", "shape": (1,), "names": None},
    "observation.images.top": {
        "dtype": "video",
        "shape": (64, 96, 3),
        "names": ["height", "width", "channels"],
    },
}
LENGTHS = [6, 3, 9, 5]


def shade(episode, frame):
    return 20 + 40 * episode + 4 * frame


def written(folder, episodes):
    """A data set by LeRobot's own writer: the brightness tells which frame a picture is."""
    made = LeRobotDataset.create("me/shades", fps=10, features=FEATURES, root=folder)
    for episode in episodes:
        for frame in range(LENGTHS[episode]):
            made.add_frame(
                {
                    "observation.state": np.array([episode, frame], np.float32),
                    "action": np.array([frame], np.float32),
                    "observation.images.top": np.full((64, 96, 3), shade(episode, frame), np.uint8),
                    "task": "shine",
                }
            )
        made.save_episode()
    made.finalize()
    return LeRobotDataset("me/shades", root=folder)


def check(folder, episodes):
    opened = open_lerobot(folder)
    assert opened.lengths.tolist() == [LENGTHS[k] for k in episodes]
    assert opened.tasks == ("shine",) * len(episodes)
    state = load_source(folder).observations
    shades = opened.pictures("observation.images.top")[:].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(shades, shade(*state.T), atol=1.9)
    assert state[:, 0].tolist() == [k for k in episodes for _ in range(LENGTHS[k])]


@pytest.mark.parametrize("name", ["barcode", "barcode_deleted", "barcode_images"])
def test_all_frames_are_those_of_lerobot(shared, name):
    folder = shared / "data" / "lerobot" / name
    theirs = LeRobotDataset(f"me/{name}", root=folder)
    ours = open_lerobot(folder)
    episodes = ours.episodes()
    for camera in ours.cameras:
        pictures = ours.pictures(camera)[:]
        for index in range(len(theirs)):
            row = theirs[index]
            expected = (row[camera].numpy() * 255).round().astype(int).transpose(1, 2, 0)
            assert np.abs(pictures[index] - expected).max() <= 2
            np.testing.assert_array_equal(episodes.observations[index], row["observation.state"])


def test_sets_that_lerobot_wrote_deleted_from_and_merged(tmp_path):
    first = written(tmp_path / "first", [0, 1, 2, 3])
    check(tmp_path / "first", [0, 1, 2, 3])
    fewer = delete_episodes(first, [0, 2], output_dir=tmp_path / "fewer", repo_id="me/fewer")
    check(tmp_path / "fewer", [1, 3])
    second = written(tmp_path / "second", [2, 0])
    merge_datasets([fewer, second], output_repo_id="me/merged", output_dir=tmp_path / "merged")
    check(tmp_path / "merged", [1, 3, 2, 0])
