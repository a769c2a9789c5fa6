"""A fit of a Preference Transformer and relabelling: two processes of torchrun beside one.

    python benchmarks/torchrun.py

One process with one thread, one with two threads, and two with one thread each make the same fit
and relabel the same episodes. Stores seconds of an epoch (median without the first) and of the
relabelling, the share of the time in exchanges, how far the loss curves part, and whether the
learned rewards of one model are the same to the last bit.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rich.console import Console
from run import HERE, machine

from preferl.models import PreferenceTransformer, PreferenceTransformerConfig
from preferl.testing import make_comparisons, make_episodes
from preferl.training import RewardFunction, RewardTrainer, World, relabel, reward_preset

SPACES = spaces.Box(-3, 3, (17,)), spaces.Box(-1, 1, (6,))  # as those of HalfCheetah
SHAPE = PreferenceTransformerConfig(width=128, context=50, normalise=False, dropout=0.0)
PAIRS = 256
LENGTH = 50
BATCH = 64
EPOCHS = 4
EPISODES = [500 + 7 * k for k in range(40)]
SIDES = {"one": (1, 1), "one of two threads": (1, 2), "two": (2, 1)}
"""Processes and threads of each."""


def work(results: Path, threads: int) -> None:
    """Fit and relabel as one of the processes of torchrun; the first one writes its numbers."""
    torch.set_num_threads(threads)
    world = World.join()
    rng = np.random.default_rng(0)
    ends = [time.perf_counter()]
    episodes = make_episodes(rng, EPISODES, *SPACES)
    answers = make_comparisons(rng, PAIRS, LENGTH, episodes)
    # As published, but for dropout, which each process draws for itself.
    config = replace(reward_preset("pt").trainer, epochs=EPOCHS, batch_size=BATCH)
    reward = RewardFunction(PreferenceTransformer(*SPACES, SHAPE, seed=0))
    trainer = RewardTrainer(reward.model, config, seed=0, world=world)
    began = time.perf_counter()
    exchanged = world.seconds
    report = trainer.fit(answers, on_epoch=lambda *_: ends.append(time.perf_counter()))
    share = (world.seconds - exchanged) / (time.perf_counter() - began)
    began = time.perf_counter()
    relabelled = np.asarray(relabel(episodes, reward, world=world).rewards)
    seconds = time.perf_counter() - began
    transfer = exchange(world, trainer)
    if not world.is_first:
        return
    found = {
        "epoch_seconds": round(median(np.diff(ends)[1:]), 3),
        "exchanges_of_fit": round(share, 3),
        "relabelled_steps_per_second": round(episodes.steps / seconds),
        "exchange_milliseconds": round(1000 * transfer, 2),
        "train_loss": report.train_loss.tolist(),
        "rewards": hashlib.sha256(relabelled.tobytes()).hexdigest(),
    }
    results.write_text(json.dumps(found))


def exchange(world: World, trainer: RewardTrainer) -> float:
    """Seconds of one exchange of gradients by processes that do nothing else; the median."""
    numbers = torch.ones(sum(p.numel() for p in trainer.model.parameters()))
    taken = []
    for _ in range(30):
        world.decide(True)  # all of them are here
        began = time.perf_counter()
        world.sum(numbers)
        taken.append(time.perf_counter() - began)
    return median(taken)


def side(processes: int, threads: int, folder: Path) -> dict[str, Any]:
    results = folder / f"{processes}-{threads}.json"
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    words = [sys.executable, *(launch if processes > 1 else []), __file__, "--results", results]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    subprocess.run([*words, "--threads", str(threads)], check=True, env=environment)
    return dict(json.loads(results.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=0, help="for the processes themselves")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "torchrun.json")
    options = parser.parse_args()
    if options.threads:
        return work(options.results, options.threads)
    with tempfile.TemporaryDirectory() as folder:
        found = {name: side(*of, Path(folder)) for name, of in SIDES.items()}
    curves = {name: np.array(of.pop("train_loss")) for name, of in found.items()}
    rewards = {name: of.pop("rewards") for name, of in found.items()}
    apart = {name: float(np.abs(c / curves["one"] - 1).max()) for name, c in curves.items()}
    stored: dict[str, Any] = {"machine": machine(), "pairs": PAIRS, "batch": BATCH}
    stored |= {"steps_relabelled": sum(EPISODES), **found, "loss_apart": apart}
    stored["same_rewards"] = {name: of == rewards["one"] for name, of in rewards.items()}
    options.results.write_text(json.dumps(stored, indent=2) + "\n")
    Console().print(stored)
    return None


if __name__ == "__main__":
    main()
