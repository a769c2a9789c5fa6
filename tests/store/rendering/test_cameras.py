"""Clips of cameras: the frames of their own place, side by side, and of their own data set."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.lerobot_maker import CAMERA, make, numbers_in

from helpers.numbered_videos import barcodes
from preferl.data import sample_segments, whole_episodes
from preferl.data.sources import open_lerobot
from preferl.errors import ConfigError, DataError
from preferl.store.rendering.cameras import camera_episodes, camera_names
from preferl.store.rendering.frames import frame_source

LENGTHS = [5, 40, 4, 7]  # one of them longer than what is decoded at once


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lerobot") / "set"
    make(folder, LENGTHS, per_file=2, side=64)
    return folder


def spec_of(folder, cameras=(CAMERA,)):
    content = open_lerobot(folder).content_id
    return {"kind": "cameras", "folder": str(folder), "content": content, "cameras": [*cameras]}


def test_a_clip_shows_the_frames_of_its_episode(folder, rng):
    episodes = camera_episodes(open_lerobot(folder))
    source = frame_source(spec_of(folder))
    for segments in (whole_episodes(episodes), sample_segments(episodes, 6, 3, rng)):
        for row in range(len(segments)):
            start = segments.start[row]
            shown = numbers_in(np.stack([*source(segments, row)]))
            np.testing.assert_array_equal(
                shown, episodes.states[start : start + segments.real[row]]
            )
    source.close()


def test_cameras_stand_side_by_side(shared):
    folder = shared / "data" / "lerobot" / "barcode"
    recording = open_lerobot(folder)
    names = camera_names(recording, ["wrist", "front"])
    clip = whole_episodes(camera_episodes(recording)[2:3])
    pictures = np.stack([*frame_source(spec_of(folder, names))(clip, 0)])
    assert pictures.shape == (7, 72, 96 + 72, 3)
    for view, camera in ((pictures[:, :, :96], 1), (pictures[:, :, 96:], 0)):
        # The encoder left some odd frames of the front camera as they were before.
        assert barcodes(view)[::2].tolist() == [[2, step, camera] for step in (0, 2, 4, 6)]


def test_another_data_set_in_its_place_is_refused(folder, tmp_path):
    spec = spec_of(folder)
    segments = whole_episodes(camera_episodes(open_lerobot(folder)))
    make(tmp_path / "other", [5, 40, 4, 6], per_file=2, side=64)
    for there, message in ((tmp_path / "other", "content id"), (tmp_path / "none", "none")):
        with pytest.raises(DataError, match=message):
            next(iter(frame_source(spec | {"folder": str(there)})(segments, 0)))
    copy = shutil.copytree(folder, tmp_path / "copy")
    next(iter(frame_source(spec | {"folder": str(copy)})(segments, 0)))
    with pytest.raises(ConfigError, match="expected its arguments"):
        frame_source({"kind": "cameras", "folder": str(copy)})


def test_a_clip_of_no_one_place_is_refused(folder):
    source = frame_source(spec_of(folder))
    segments = whole_episodes(camera_episodes(open_lerobot(folder)))
    for states in (None, segments.states[:, :1], segments.states[::-1], segments.states + 100):
        with pytest.raises(DataError, match=r"one episode|an episode from"):
            next(iter(source(replace(segments, states=states), 0)))


def test_names_of_cameras(folder):
    recording = open_lerobot(folder)
    assert camera_names(recording) == camera_names(recording, ["front"]) == [CAMERA]
    with pytest.raises(DataError, match=f"expected some of {CAMERA}, got nose"):
        camera_names(recording, ["nose"])
