"""Fits, relabelling and agents on a GPU, beside the same on the processor of its machine.

    python benchmarks/gpu.py                  on a GPU and the processor beside it
    python benchmarks/gpu.py --devices cpu    where there is none

The Preference Transformer has the published size: an optimiser step is of 64 or 256 pairs of 100
steps of 11 + 3 numbers. Agents learn by implicit Q-learning with two hidden layers of 256 and
minibatches of 256 in float32; an update is one of all agents. The perceptrons that relabel are
three of 64 x 64. The processor takes all its cores. Rates are medians of repetitions.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformer
import workloads_offline as w
from rich.console import Console
from rich.table import Table
from run import HERE, machine

from preferl.data import Episodes
from preferl.models import (
    MLPReward,
    MLPRewardConfig,
    PreferenceTransformer,
    PreferenceTransformerConfig,
)
from preferl.offline import IQL, IQLConfig, Transitions
from preferl.testing import make_comparisons
from preferl.training import RewardFunction, RewardTrainer, RewardTrainerConfig, relabel

AGENTS = (1, 32, 128)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", nargs="+", default=["cuda", "cpu"])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "gpu.json")
    return parser.parse_args()


def episodes(steps: int) -> Episodes:
    """Random walks in episodes of 1,000 steps."""
    rng = np.random.default_rng(0)
    seen = rng.normal(0, 0.1, (steps, transformer.OBSERVATION)).cumsum(0).astype(np.float32)
    lengths = np.full(steps // 1_000, 1_000)
    return Episodes(
        observations=seen,
        actions=rng.uniform(-0.99, 0.99, (steps, transformer.ACTION)).astype(np.float32),
        rewards=rng.normal(size=steps).astype(np.float32),
        terminated=np.zeros(steps, bool),
        final_observations=seen[-len(lengths) :],
        lengths=lengths,
    )


Job = tuple[Callable[[], object], int]  # what is timed, and how many units it does


def fit(device: str, precision: Any, batch: int) -> Job:
    """Optimiser steps of a Preference Transformer; on a GPU enough to pay for the recording."""
    steps, epochs = (20, 10) if device == "cuda" else (1, 1)
    data = make_comparisons(np.random.default_rng(0), batch * steps, 100, episodes(20_000))
    shape = PreferenceTransformerConfig(context=transformer.LENGTH)
    config = RewardTrainerConfig(epochs=epochs, batch_size=batch, precision=precision)
    model = PreferenceTransformer(*transformer.SPACES, shape, seed=0)
    trainer = RewardTrainer(model, config, seed=0, device=device)
    return lambda: trainer.fit(data), steps * epochs


def relabelling(device: str, name: str) -> Job:
    """Steps that a reward labels anew."""
    steps = {"mlp": 1_000_000, "pt": 200_000 if device == "cuda" else 5_000}[name]
    data = episodes(steps)
    if name == "mlp":
        config = MLPRewardConfig(hidden=(64, 64), members=3)
        model: Any = MLPReward(*transformer.SPACES, config, seed=0)
    else:
        model = PreferenceTransformer(
            *transformer.SPACES, PreferenceTransformerConfig(context=transformer.LENGTH), seed=0
        )
    reward = RewardFunction(model.to(device))
    return lambda: relabel(data, reward), steps


def agents(device: str, count: int) -> Job:
    """Updates of agents that learn side by side."""
    updates = 200 if device == "cuda" else max(5, 100 // count)
    data = Transitions.of(episodes(100_000), device=device)
    config = IQLConfig(hidden=w.HIDDEN, batch_size=w.BATCH, precision="float32")
    learner = IQL(*transformer.SPACES, config, seeds=range(count), steps=1_000_000, device=device)
    return lambda: learner.fit(data, updates), updates


JOBS: dict[str, tuple[str, Callable[[str], Job]]] = {
    "pt_64_float32": ("steps/s", lambda device: fit(device, "float32", 64)),
    "pt_64_bfloat16": ("steps/s", lambda device: fit(device, "bfloat16", 64)),
    "pt_256_float32": ("steps/s", lambda device: fit(device, "float32", 256)),
    "pt_256_bfloat16": ("steps/s", lambda device: fit(device, "bfloat16", 256)),
    "relabel_pt": ("steps/s", lambda device: relabelling(device, "pt")),
    "relabel_mlp": ("steps/s", lambda device: relabelling(device, "mlp")),
} | {
    f"iql_{count}": ("updates/s", lambda device, count=count: agents(device, count))
    for count in AGENTS
}


def rate(job: Job, repetitions: int) -> float:
    """Units per second, the median of repetitions after one to warm up."""
    run, units = job
    seconds = []
    for _ in range(repetitions + 1):
        began = time.perf_counter()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return units / median(seconds[1:])


def main() -> None:
    chosen = options()
    rates: dict[str, dict[str, float]] = {}
    table = Table("work", *chosen.devices, "ratio")
    for name, (unit, job) in JOBS.items():
        of = {device: rate(job(device), chosen.repetitions) for device in chosen.devices}
        rates[name] = {device: float(f"{value:.4g}") for device, value in of.items()}
        values = [*of.values()]
        ratio = f"{values[0] / values[-1]:.1f}" if len(values) > 1 else ""
        table.add_row(f"{name}, {unit}", *(f"{value:,.1f}" for value in values), ratio)
        print(name, rates[name], flush=True)
    Console().print(table)
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    about = machine() | {"threads_used": torch.get_num_threads(), "card": card}
    stored = {"machine": about, "torch": torch.__version__, "rates": rates}
    if len(chosen.devices) > 1:
        first = chosen.devices[0]
        last = chosen.devices[-1]
        ratios = {name: round(of[first] / of[last], 2) for name, of in rates.items()}
        stored[f"{first}_to_{last}"] = ratios
    chosen.results.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
