"""Data sets of LeRobot: the right frame of the right file, and refusals in one line."""

import io
import json
import shutil
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.lerobot_maker import CAMERA, make, numbers_in
from PIL import Image

from helpers.numbered_videos import barcodes
from preferl.data.sources import load_source, open_lerobot
from preferl.data.sources.lerobot import INFO, split_features
from preferl.errors import DataError

LENGTHS = [5, 9, 4, 7]
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
DATA = "data/chunk-000/file-000.parquet"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lerobot") / "set"
    make(folder, LENGTHS, per_file=2, side=64)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """A data set to damage."""
    return Path(shutil.copytree(whole, tmp_path / "set"))


def change_info(folder, **changes):
    info = json.loads((folder / INFO).read_text())
    (folder / INFO).write_text(json.dumps(info | changes))


def change_table(file, name, change):
    table = pq.read_table(file)
    column = table[name].to_numpy().copy()
    change(column)
    place = table.column_names.index(name)
    pq.write_table(table.set_column(place, name, pa.array(column)), file)


def decoded_in_order(folder, camera, episode):
    """Pictures of an episode by a decoder that begins at the first frame of its file."""
    table = {name: column[episode] for name, column in folder._table.items()}
    number = table[f"videos/{camera}/file_index"]
    with av.open(str(folder.path / f"videos/{camera}/chunk-000/file-{number:03d}.mp4")) as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    first = round(table[f"videos/{camera}/from_timestamp"] * folder.fps)
    return np.stack(frames[first : first + table["length"]])


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("barcode", range(6)),
        ("barcode_deleted", [1, 2, 4, 5]),
        ("barcode_images", [10, 11, 12]),
    ],
)
def test_every_frame_is_the_one_that_was_asked_for(shared, name, names, rng):
    folder = open_lerobot(shared / "data" / "lerobot" / name)
    lengths = folder.lengths
    frame = np.concatenate([np.arange(length) for length in lengths])
    for number, camera in enumerate(folder.cameras):
        expected = np.stack([np.repeat(names, lengths), frame, np.full(len(frame), number)], axis=1)
        pictures = folder.pictures(camera)[:]
        if name != "barcode_images":
            plain = [decoded_in_order(folder, camera, k) for k in range(len(lengths))]
            np.testing.assert_array_equal(pictures, np.concatenate(plain))
        shown = barcodes(pictures)
        if name != "barcode_images" and camera.endswith("front"):
            # The encoder left odd frames of this camera as they were before: 22 bytes each.
            assert (shown == expected).mean() > 0.8
        else:
            np.testing.assert_array_equal(shown, expected)
        order = rng.permutation(len(frame))
        np.testing.assert_array_equal(folder.pictures(camera)[order], pictures[order])
        for k, start in enumerate(folder.starts):
            first, last = sorted(rng.choice(lengths[k] + 1, 2, replace=False))
            clip = folder.frames(camera, k, int(first), int(last))
            np.testing.assert_array_equal(clip, pictures[start + first : start + last])


def test_a_folder_becomes_episodes(whole):
    episodes = load_source(whole)
    assert episodes.lengths.tolist() == LENGTHS
    assert episodes.observations.shape == (25, 3)
    assert episodes.observations[7].tolist() == [1, 2, np.float32(2 / 9)]
    assert episodes.actions.shape == (25, 2)
    assert not episodes.has_true_reward
    both = load_source(f"{whole}:observation.state,{CAMERA}").observations
    assert sorted(both) == [CAMERA, "observation.state"]
    assert numbers_in(both[CAMERA][[0, 24]]).tolist() == [[0, 0], [3, 6]]


def test_some_of_the_episodes(whole):
    chosen = open_lerobot(whole).episodes([CAMERA], episodes=np.array([2, 0]))
    assert chosen.lengths.tolist() == [4, 5]
    assert chosen.actions[:, 0].tolist() == [2] * 4 + [0] * 5
    shown = numbers_in(chosen.observations[:])
    assert shown.tolist() == [[2, t] for t in range(4)] + [[0, t] for t in range(5)]
    assert numbers_in(np.asarray(chosen.final_observations)).tolist() == [[2, 3], [0, 4]]


def test_rewards_and_successes(shared):
    episodes = load_source(shared / "data" / "lerobot" / "barcode")
    expected = np.concatenate([1000 * k + np.arange(n) for k, n in enumerate(episodes.lengths)])
    assert episodes.rewards.tolist() == expected.tolist()
    assert episodes.succeeded.tolist() == [False, True] * 3


def test_the_content_id_tells_sets_apart(whole, folder):
    content_id = open_lerobot(whole).content_id
    assert open_lerobot(folder).content_id == content_id
    (folder / "meta" / "advantages_mine.parquet").write_bytes(b"beside it")
    assert open_lerobot(folder).content_id == content_id
    change_table(folder / DATA, "timestamp", lambda column: column.__iadd__(1))
    assert open_lerobot(folder).content_id != content_id


def test_tables_in_several_groups_of_rows(tmp_path):
    lengths = [3] * 12  # ten episodes in a group
    make(tmp_path, lengths, side=64)
    assert load_source(tmp_path).lengths.tolist() == lengths


def test_packed_pictures_in_several_groups_of_rows(folder, rng):
    info = json.loads((folder / INFO).read_text())
    info["features"][CAMERA]["dtype"] = "image"
    change_info(folder, features=info["features"])
    packed = []
    for shade in (40, 80, 120):
        content = io.BytesIO()
        Image.new("RGB", (64, 64), (shade, shade, shade)).save(content, "PNG")
        packed.append({"bytes": content.getvalue(), "path": "a.png"})
    for file in sorted(folder.glob("data/*/*.parquet")):
        table = pq.read_table(file)
        pictures = pa.array([packed[row % 3] for row in table["index"].to_pylist()])
        pq.write_table(table.append_column(CAMERA, pictures), file, row_group_size=4)
    pictures = open_lerobot(folder).pictures(CAMERA)
    order = rng.integers(len(pictures), size=40)
    assert pictures[order][:, 5, 5, 0].tolist() == (40 * (1 + order % 3)).tolist()


def test_names_of_features_after_a_folder(whole):
    assert split_features(whole) == (str(whole), ())
    assert split_features("hub:me/robot") == ("hub:me/robot", ())
    assert split_features("hub:me/robot:a,b") == ("hub:me/robot", ("a", "b"))
    with pytest.raises(DataError, match=r"expected one of the features .* got observation.stat"):
        load_source(f"{whole}:observation.stat")


def test_a_set_of_the_hub(whole, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    blobs = tmp_path / "blobs"
    snapshot = tmp_path / "snapshots" / "abc"
    asked = []

    def snapshot_download(repository, *, allow_patterns, revision, repo_type):
        asked.append((repository, revision, repo_type))
        for file in whole.rglob("*"):
            name = file.relative_to(whole)
            wanted = any(name.match(p.replace("**", "*")) or str(name).startswith(p.strip("*"))
                         for p in allow_patterns)  # fmt: skip
            if file.is_file() and wanted and not (snapshot / name).exists():
                blob = blobs / str(name).replace("/", "-")
                blobs.mkdir(exist_ok=True)
                shutil.copy(file, blob)
                (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
                (snapshot / name).symlink_to(blob)
        return str(snapshot)

    monkeypatch.setattr(hub, "file_exists", lambda name, *_, **__: name == "me/robot")
    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    assert load_source("hub:me/robot").lengths.tolist() == LENGTHS
    assert not (snapshot / "videos").exists()
    assert asked[0] == ("me/robot", None, "dataset")
    pictures = load_source(f"hub:me/robot:{CAMERA}").observations
    assert numbers_in(pictures[[6]]).tolist() == [[1, 1]]
    assert asked[-1][1] == "abc"
    assert open_lerobot("hub:me/robot").content_id == open_lerobot(whole).content_id


REFUSED = {
    "an old version": (
        lambda f: change_info(f, codebase_version="v2.1"),
        "expected .* v3.0, got v2.1. Convert it .*convert_dataset_v21_to_v30",
    ),
    "no settings": (lambda f: (f / INFO).write_text("[]"), "settings of a LeRobot data set"),
    "a rate of none": (lambda f: change_info(f, fps=0), "fps 0"),
    "an endless rate": (lambda f: change_info(f, fps="inf"), "fps inf"),
    "other counts": (lambda f: change_info(f, total_frames=26), "26 frames.* got 4 of 25"),
    "no episodes": (lambda f: shutil.rmtree(f / "meta/episodes"), "tables of episodes"),
    "no data": (lambda f: (f / DATA).unlink(), "expected the file data/chunk-000/file-000.parquet"),
    "no video": (
        lambda f: (f / f"videos/{CAMERA}/chunk-000/file-001.mp4").unlink(),
        "expected the file videos/.*file-001.mp4, got none",
    ),
    "half a video": (
        lambda f: (f / f"videos/{CAMERA}/chunk-000/file-001.mp4").write_bytes(
            (f / f"videos/{CAMERA}/chunk-000/file-001.mp4").read_bytes()[:900]
        ),
        "expected a whole MP4 file",
    ),
    "a short video": (
        lambda f: shutil.copy(
            f / f"videos/{CAMERA}/chunk-000/file-001.mp4",
            f / f"videos/{CAMERA}/chunk-000/file-000.mp4",
        ),
        "expected 14 frames, as the data set says, got 11",
    ),
    "times before the video": (
        lambda f: change_table(
            f / EPISODES, f"videos/{CAMERA}/from_timestamp", lambda c: c.__isub__(1)
        ),
        "expected times from 0 on",
    ),
    "episodes of no length": (
        lambda f: change_table(f / EPISODES, "length", lambda c: c.__setitem__(0, -5)),
        "expected 4 episodes of 25 frames",
    ),
    "numbers of other episodes": (
        lambda f: change_table(f / EPISODES, "episode_index", lambda c: c.__iadd__(1)),
        "episode_index of episode 0: expected 0",
    ),
    "rows of other episodes": (
        lambda f: change_table(f / DATA, "frame_index", lambda c: c.__setitem__(3, 0)),
        "frame_index: expected the frames of",
    ),
    "rows too few": (
        lambda f: pq.write_table(pq.read_table(f / DATA).slice(0, 24), f / DATA),
        "expected 25 rows, as the table of episodes says, got 24",
    ),
    "states of another shape": (
        lambda f: change_features(f, "observation.state", shape=[4]),
        r"expected values of shape \(4,\)",
    ),
    "pictures of another shape": (
        lambda f: change_features(f, CAMERA, shape=[96, 64, 3]),
        "expected pictures of 96 x 64 pixels",
    ),
    "pictures without end": (
        lambda f: change_features(f, CAMERA, shape=[100_000, 100_000, 3]),
        "settings of a LeRobot data set.* of shape",
    ),
    "a path out of the folder": (
        lambda f: change_info(f, data_path="../{chunk_index:03d}{file_index:03d}.parquet"),
        "points out of its folder",
    ),
    "an absolute path": (
        lambda f: change_info(f, video_path="/etc/{video_key}{chunk_index}{file_index}"),
        "points out of its folder",
    ),
    "a path with attributes": (
        lambda f: change_info(f, data_path="{chunk_index.__class__}"),
        "fills in more than chunk, file and key",
    ),
    "a path without end": (
        lambda f: change_info(f, data_path="{chunk_index:0999999999d}"),
        "fills in more than chunk, file and key",
    ),
    "a table that is none": (
        lambda f: (f / EPISODES).write_bytes(b"PAR1" + bytes(40) + b"PAR1"),
        "expected a whole Parquet file",
    ),
}


def change_features(folder, name, **changes):
    features = json.loads((folder / INFO).read_text())["features"]
    features[name] |= changes
    change_info(folder, features=features)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(folder, name):
    damage, message = REFUSED[name]
    damage(folder)
    with pytest.raises(DataError, match=message) as refusal:
        load_source(f"{folder}:observation.state,{CAMERA}")
    assert "\n" not in str(refusal.value)


def test_links_out_of_the_folder(folder):
    video = folder / f"videos/{CAMERA}/chunk-000/file-000.mp4"
    video.rename(folder.parent / "elsewhere.mp4")
    video.symlink_to(folder.parent / "elsewhere.mp4")
    with pytest.raises(DataError, match="points out of its folder"):
        load_source(f"{folder}:{CAMERA}")


def test_frames_that_an_episode_lacks(whole):
    folder = open_lerobot(whole)
    with pytest.raises(DataError, match="expected frames within 0 to 5, got 2 to 6"):
        folder.frames(CAMERA, 0, 2, 6)
    with pytest.raises(DataError, match="expected an episode from 0 to 3, got 4"):
        folder.frames(CAMERA, 4)
    with pytest.raises(DataError, match="expected a camera"):
        folder.frames("action", 0)
