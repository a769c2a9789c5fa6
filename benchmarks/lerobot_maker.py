"""Write data sets of LeRobot v3.0 with pyarrow and av, of any size, for benchmarks and tests.

Every picture shows in 4 x 4 black or white fields which episode (9 bits) and frame (7 bits) it is.

    python benchmarks/lerobot_maker.py FOLDER [--episodes 1000] [--frames 100] [--per-file 250]
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CAMERA = "observation.images.front"
BITS = (9, 7)
"""Bits of the episode and of the frame in a picture, the lowest first."""


def picture(episode: int, frame: int, side: int) -> np.ndarray:
    """`[side, side, 3]`: the two numbers as fields."""
    bits = [number >> bit & 1 for number, n in zip((episode, frame), BITS, strict=True)
            for bit in range(n)]  # fmt: skip
    fields = np.array(bits, np.uint8).reshape(4, 4) * 255
    return np.repeat(fields.repeat(side // 4, 0).repeat(side // 4, 1)[..., None], 3, axis=2)


def numbers_in(pictures: np.ndarray) -> np.ndarray:
    """`[N, 2]` episode and frame of pictures `[N, side, side, 3]`."""
    side = pictures.shape[1] // 4
    bits = (pictures[:, side // 2 :: side, side // 2 :: side].mean(-1) > 127).reshape(-1, 16)
    episode = bits[:, : BITS[0]] @ (1 << np.arange(BITS[0]))
    return np.stack([episode, bits[:, BITS[0] :] @ (1 << np.arange(BITS[1]))], axis=1)


def make(
    folder: Path,
    lengths: Sequence[int],
    *,
    per_file: int = 250,
    side: int = 96,
    fps: int = 10,
    codec: str = "libx264",
    task: str = "stack the blocks",
) -> None:
    """Write a data set with one camera; episodes of `per_file` numbers share a video."""
    count = len(lengths)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    episode = np.repeat(np.arange(count), lengths)
    frame = np.arange(ends[-1]) - np.repeat(starts, lengths)
    state = np.stack([episode, frame, frame / np.repeat(lengths, lengths)], 1).astype(np.float32)
    columns = {
        "observation.state": pa.FixedSizeListArray.from_arrays(state.ravel(), 3),
        "action": pa.FixedSizeListArray.from_arrays(state[:, :2].ravel(), 2),
        "timestamp": (frame / fps).astype(np.float32),
        "frame_index": frame,
        "episode_index": episode,
        "index": np.arange(len(frame)),
        "task_index": np.zeros(len(frame), np.int64),
    }
    _write(folder / "data/chunk-000/file-000.parquet", columns, group=100)
    _write(folder / "meta/tasks.parquet", {"task_index": np.array([0]), "task": [task]})
    file = np.arange(count) // per_file
    place = {"chunk_index": np.zeros(count, np.int64), "file_index": np.zeros(count, np.int64)}
    video = place | {"file_index": file}
    begin = (starts - starts[file * per_file]) / fps
    video |= {"from_timestamp": begin, "to_timestamp": begin + np.asarray(lengths) / fps}
    table = {
        "episode_index": np.arange(count),
        "tasks": [[task]] * count,
        "length": np.asarray(lengths),
        "dataset_from_index": starts,
        "dataset_to_index": ends,
        **{f"data/{name}": column for name, column in place.items()},
        **{f"videos/{CAMERA}/{name}": column for name, column in video.items()},
    }
    _write(folder / "meta/episodes/chunk-000/file-000.parquet", table)
    for number in np.unique(file):
        rows = np.flatnonzero(file == number)
        path = folder / f"videos/{CAMERA}/chunk-000/file-{number:03d}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(path), "w") as container:
            stream = container.add_stream(codec, rate=fps)
            stream.width = stream.height = side
            stream.pix_fmt = "yuv420p"
            stream.options = {"g": "2", "crf": "30", "preset": "veryfast"}
            for k in rows:
                for t in range(lengths[k]):
                    shown = av.VideoFrame.from_ndarray(picture(k, t, side), format="rgb24")
                    container.mux(stream.encode(shown))
            container.mux(stream.encode(None))
    features = {
        "observation.state": {"dtype": "float32", "shape": [3], "names": None},
        "action": {"dtype": "float32", "shape": [2], "names": None},
        CAMERA: {"dtype": "video", "shape": [side, side, 3],
                 "names": ["height", "width", "channels"], "info": {"video.fps": fps}},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    }  # fmt: skip
    whole = ("frame_index", "episode_index", "index", "task_index")
    features |= {name: {"dtype": "int64", "shape": [1], "names": None} for name in whole}
    info = {
        "codebase_version": "v3.0",
        "fps": fps,
        "features": features,
        "total_episodes": count,
        "total_frames": int(ends[-1]),
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "robot_type": None,
        "splits": {"train": f"0:{count}"},
    }
    (folder / "meta/info.json").write_text(json.dumps(info, indent=2))
    stats = {name: dict.fromkeys(("min", "max", "mean", "std"), [0.0] * f["shape"][0])
             for name, f in features.items() if f["dtype"] != "video"}  # fmt: skip
    (folder / "meta/stats.json").write_text(json.dumps(stats))


def _write(path: Path, columns: dict, *, group: int = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=group)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--per-file", type=int, default=250)
    arguments = parser.parse_args()
    make(
        arguments.folder,
        [arguments.frames] * arguments.episodes,
        per_file=arguments.per_file,
    )
