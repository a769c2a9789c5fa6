"""Measures the memory of a fit to ten thousand clips of pictures that are on disk.

    python benchmarks/pixels.py [--clips 10000] [--gathered 2000]

The clips, 25 steps of 84 x 84 x 4 bytes, are in folders of 50, as a store keeps them; the files of
pictures are sparse. They are joined, gathered in minibatches, fitted to for one epoch of 48
answers, and a reward is scaled over 1,000 steps. What counts is the most memory that was resident.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces

from preferl.data import Comparisons, Segments
from preferl.data.arrays import load_segments, save_arrays
from preferl.data.segments import join_segments
from preferl.models import CNNReward
from preferl.training import RewardFunction, RewardTrainer, RewardTrainerConfig
from preferl.training.batches import gather_windows

PICTURE = (84, 84, 4)
LENGTH = 25
PER_FOLDER = 50
MINIBATCH = 64
ACTIONS = spaces.Discrete(6)


def write_clips(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = PER_FOLDER * LENGTH
    arrays = {
        "observations": np.zeros((1, *PICTURE), np.uint8),
        "actions": rng.integers(0, 6, steps),
        "rewards": rng.normal(size=steps),
        "start": np.arange(PER_FOLDER) * LENGTH,
        "real": np.full(PER_FOLDER, LENGTH),
    }
    save_arrays(folder, arrays, {"kind": "segments", "length": LENGTH})
    shape = (steps, *PICTURE)
    np.lib.format.open_memmap(folder / "observations.npy", "w+", np.uint8, shape).flush()


def peak_gib() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def gather(model: CNNReward, segments: Segments, count: int) -> None:
    windows = gather_windows(model, segments, observe=True)
    for rows in torch.arange(min(count, len(segments))).split(MINIBATCH):
        windows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=int, default=10_000)
    parser.add_argument("--gathered", type=int, default=2_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = CNNReward(spaces.Box(0, 255, PICTURE, np.uint8), ACTIONS, seed=0)
    with tempfile.TemporaryDirectory() as holder:
        folders = [Path(holder) / f"{n}" for n in range(options.clips // PER_FOLDER)]
        for seed, folder in enumerate(folders):
            write_clips(folder, seed)
        print(f"before: {peak_gib():.2f} GiB")
        segments = join_segments([load_segments(folder) for folder in folders])
        pairs = np.random.default_rng(0).permutation(len(segments)).reshape(-1, 2)
        answers = Comparisons.of(segments, pairs, np.ones(len(pairs)))
        size = int(np.prod(segments.observations.shape)) / 2**30
        print(f"{len(segments)} clips of {size:.1f} GiB joined: {peak_gib():.2f} GiB")
        began = time.perf_counter()
        gather(model, answers.segments, options.gathered)
        seconds = time.perf_counter() - began
        print(f"{options.gathered} gathered in {seconds:.1f} s: {peak_gib():.2f} GiB")
        config = RewardTrainerConfig(epochs=1, batch_size=16)
        RewardTrainer(model, config, seed=0).fit(answers[:48])
        print(f"fitted: {peak_gib():.2f} GiB")
        RewardFunction(model).scaled(segments.select(slice(0, 40)).episodes())
        print(f"scaled: {peak_gib():.2f} GiB")


if __name__ == "__main__":
    main()
