"""Opening a LeRobot data set and reading random clips of a camera, beside LeRobot itself.

Both read the same files in one run, each in a process of its own. Run it where LeRobot is
installed (`make lerobot`), or without it for ours alone. The set is made once, by
`lerobot_maker.py`. Each clip has to show the frames that were asked for.

    PYTHONPATH=src .venv-lerobot/bin/python benchmarks/lerobot_reader.py FOLDER [--clips 2000]
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from lerobot_maker import CAMERA, make, numbers_in

RESULTS = Path(__file__).parent / "results" / "lerobot_reader.json"
LENGTH = 25
KNOWN = np.array([512, 128])
"""Numbers that a picture of the maker can tell apart."""


def clips_of(lengths: np.ndarray, count: int) -> np.ndarray:
    """`[count, 2]` episode and first frame of random clips."""
    rng = np.random.default_rng(0)
    episode = rng.integers(len(lengths), size=count)
    return np.stack([episode, rng.integers(lengths[episode] - LENGTH + 1)], axis=1)


def ours(folder: Path, count: int) -> dict[str, float]:
    import av  # noqa: F401  # as LeRobot does when it is imported
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401

    from preferl.data.sources import open_lerobot

    began = time.perf_counter(), time.process_time()
    opened = open_lerobot(folder)
    opened.episodes()
    ready = time.perf_counter(), time.process_time()
    for episode, first in clips_of(opened.lengths, count).tolist():
        check(opened.frames(CAMERA, episode, first, first + LENGTH), episode, first)
    return numbers(began, ready, count)


def theirs(folder: Path, count: int) -> dict[str, float]:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    fps = json.loads((folder / "meta/info.json").read_text())["fps"]
    began = time.perf_counter(), time.process_time()
    steps = {CAMERA: [step / fps for step in range(LENGTH)]}
    opened = LeRobotDataset("me/set", root=folder, delta_timestamps=steps)
    ready = time.perf_counter(), time.process_time()
    lengths = np.array(opened.meta.episodes["length"])
    starts = np.cumsum(lengths) - lengths
    for episode, first in clips_of(lengths, count).tolist():
        pictures = opened[int(starts[episode]) + first][CAMERA].numpy()
        check((pictures.transpose(0, 2, 3, 1) * 255).round(), episode, first)
    return numbers(began, ready, count)


def check(pictures: np.ndarray, episode: int, first: int) -> None:
    expected = np.stack([np.full(LENGTH, episode), first + np.arange(LENGTH)], axis=1) % KNOWN
    if (numbers_in(pictures) != expected).any():
        raise SystemExit(f"episode {episode} from {first}: other frames than were asked for")


def numbers(began: tuple[float, float], ready: tuple[float, float], count: int) -> dict[str, float]:
    ended = time.perf_counter(), time.process_time()
    return {
        "open_seconds": round(ready[0] - began[0], 3),
        "open_processor_seconds": round(ready[1] - began[1], 3),
        "clips": count,
        "clips_seconds": round(ended[0] - ready[0], 2),
        "clips_processor_seconds": round(ended[1] - ready[1], 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


READERS = {"preferl": ours, "lerobot": theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clips", type=int, default=2000)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--reader", choices=READERS, help="one alone, in this process")
    options = parser.parse_args()
    if options.reader is not None:
        print(json.dumps(READERS[options.reader](options.folder, options.clips)))
        return
    if not options.folder.exists():
        make(options.folder, [100] * options.episodes)
    results = {}
    for name in READERS:
        if name == "preferl" or find_spec(name) is not None:
            command = [sys.executable, __file__, str(options.folder), "--reader", name]
            done = subprocess.run(
                [*command, "--clips", str(options.clips)],
                capture_output=True,
                text=True,
                check=True,
            )
            results[name] = json.loads(done.stdout.strip().splitlines()[-1])
            print(name, results[name], flush=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
