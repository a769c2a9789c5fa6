"""Times training of the Preference Transformer of the published size, by `RewardTrainer`.

    python benchmarks/transformer.py                         both precisions, two threads
    python benchmarks/transformer.py bfloat16 --minibatch 16 --threads 1

An optimiser step is a forward of both segments of 64 pairs of 100 steps (11 + 3 numbers each), the
loss, a backward and AdamW, with dropout. Precisions take turns, a few steps at a time. Rates are
medians of those times, with the best beside: on a busy machine the best counts more. Processor
seconds per step are of all threads together, and wait for nobody.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rich.console import Console
from rich.table import Table
from run import HERE, machine

from preferl.data import Comparisons, Episodes
from preferl.models import PreferenceTransformer, PreferenceTransformerConfig
from preferl.testing import make_comparisons
from preferl.training import RewardTrainer, RewardTrainerConfig

OBSERVATION = 11  # as Hopper
ACTION = 3
SPACES = (
    spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32),
    spaces.Box(-1, 1, (ACTION,), np.float32),
)
LENGTH = 100
BATCH = 64
STEPS = 3
PRECISIONS = ["float32", "bfloat16"]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("precisions", nargs="*", default=PRECISIONS)
    parser.add_argument("--minibatch", type=int, default=None, help="pairs per forward")
    parser.add_argument("--head", choices=["preference", "plain"], default="preference")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "transformer.json")
    return parser.parse_args()


def comparisons() -> Comparisons:
    """Full windows of random walks, and their rewards by a fixed linear function."""
    rng = np.random.default_rng(0)
    steps = 20 * LENGTH
    observations = rng.normal(0, 0.1, (steps, OBSERVATION)).cumsum(0).astype(np.float32)
    episodes = Episodes(
        observations=observations,
        actions=rng.uniform(-1, 1, (steps, ACTION)).astype(np.float32),
        rewards=observations @ rng.normal(size=OBSERVATION),
        terminated=np.zeros(steps, bool),
        final_observations=observations[-1:],
        lengths=np.array([steps]),
    )
    return make_comparisons(rng, BATCH * STEPS, LENGTH, episodes)


def trainer(precision: Any, chosen: argparse.Namespace) -> RewardTrainer:
    shape = PreferenceTransformerConfig(head=chosen.head, layers=chosen.layers, context=LENGTH)
    config = RewardTrainerConfig(
        epochs=1, batch_size=BATCH, minibatch_size=chosen.minibatch, precision=precision
    )
    return RewardTrainer(PreferenceTransformer(*SPACES, shape, seed=0), config, seed=0)


def main() -> None:
    chosen = options()
    torch.set_num_threads(chosen.threads)
    data = comparisons()
    trainers = {precision: trainer(precision, chosen) for precision in chosen.precisions}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in trainers}
    for repetition in range(chosen.repetitions + 1):
        for name, one in trainers.items():
            wall = time.perf_counter()
            processor = time.process_time()
            one.fit(data)
            spent = time.perf_counter() - wall, time.process_time() - processor
            if repetition:  # the first warms up
                seconds[name].append((spent[0] / STEPS, spent[1] / STEPS))
    table = Table("precision", "steps/s", "best", "processor seconds per step")
    rates = {}
    for name, spent in seconds.items():
        walls, processors = zip(*spent, strict=True)
        row = (1 / median(walls), 1 / min(walls), median(processors))
        rates[name] = round(row[0], 3)
        table.add_row(name, *(f"{number:.2f}" for number in row))
    Console().print(table)
    asked = {k: v for k, v in vars(chosen).items() if k != "results"}
    found = {
        "machine": machine() | {"threads_used": chosen.threads},
        "settings": asked,
        "steps_per_second": rates,
    }
    if set(PRECISIONS) <= set(rates):
        found["bfloat16_to_float32"] = round(rates["bfloat16"] / rates["float32"], 2)
    chosen.results.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
