"""Times relabelling of whole episodes and of a replay buffer, beside a window per step.

    python benchmarks/relabel.py                                both models with history
    python benchmarks/relabel.py lstm --context 50 --threads 1
    python benchmarks/relabel.py transformer --steps 2000000 --sample 0 --repetitions 1
    python benchmarks/relabel.py replay --steps 1000000 --threads 1 --repetitions 3

"replay" is a replay buffer of stable-baselines3 and three perceptrons of 64 x 64 units.

The two ways take turns on the same data, the plain one on a sample of its steps, since it is much
slower. Rates are medians, with the best beside; the table also gives how far the two are apart, and
how much memory the process ever had, data and libraries included.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from gymnasium import spaces
from rich.console import Console
from rich.table import Table
from run import HERE, machine
from stable_baselines3.common.buffers import ReplayBuffer

from preferl.data import Episodes
from preferl.data.windows import window_indices
from preferl.models import (
    LSTMReward,
    LSTMRewardConfig,
    MLPReward,
    MLPRewardConfig,
    PreferenceTransformer,
    PreferenceTransformerConfig,
    RewardModel,
)
from preferl.models.base import trace_windows
from preferl.online.wrappers.replay import relabel_replay
from preferl.training import RewardFunction, relabel

OBSERVATION = 11  # as Hopper
ACTION = 3
SPACES = (
    spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32),
    spaces.Box(-1, 1, (ACTION,), np.float32),
)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Times relabelling of whole episodes.")
    parser.add_argument("models", nargs="*", default=["lstm", "transformer"])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--length", type=int, default=1_000, help="steps per episode")
    parser.add_argument("--context", type=int, default=100)
    parser.add_argument("--layers", type=int, default=1, help="of the transformer")
    parser.add_argument("--sample", type=int, default=200, help="steps of the plain way; 0: none")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "relabel.json")
    return parser.parse_args()


def build(name: str, context: int, layers: int) -> RewardModel:
    """A model of the published size."""
    if name == "lstm":
        return LSTMReward(*SPACES, LSTMRewardConfig(context=context), seed=0)
    config = PreferenceTransformerConfig(context=context, layers=layers)
    return PreferenceTransformer(*SPACES, config, seed=0)


def experience(steps: int, length: int) -> Episodes:
    """Episodes of one length."""
    rng = np.random.default_rng(0)
    count = steps // length
    total = count * length
    return Episodes(
        observations=rng.standard_normal((total, OBSERVATION), np.float32),
        actions=rng.uniform(-1, 1, (total, ACTION)).astype(np.float32),
        rewards=np.zeros(total, np.float32),
        terminated=np.zeros(total, bool),
        final_observations=np.zeros((count, OBSERVATION), np.float32),
        lengths=np.full(count, length),
    )


def measure_replay(
    steps: int, length: int, sample: np.ndarray, repetitions: int
) -> tuple[list[float], list[float], float]:
    """As `measure`, of a full replay buffer whose rewards look at single steps."""
    reward = RewardFunction(MLPReward(*SPACES, MLPRewardConfig(members=3), seed=0))
    data = experience(steps, length)
    buffer = ReplayBuffer(data.steps, *SPACES, device="cpu")
    buffer.observations[:, 0] = data.observations
    buffer.actions[:, 0] = data.actions
    buffer.full = True

    def relabelled() -> np.ndarray:
        relabel_replay(buffer, reward)
        return buffer.rewards[:, 0]

    def plain() -> np.ndarray:
        rows, mask = window_indices(np.repeat(data.starts, data.lengths), reward.context, sample)
        return reward(data.observations[rows], data.actions[rows], mask)

    return in_turns(relabelled, plain, sample, repetitions)


def timed(work: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    """What it makes, and how many of them a second."""
    began = time.perf_counter()
    made = work()
    return made, len(made) / (time.perf_counter() - began)


def measure(
    model: RewardModel, data: Episodes, sample: np.ndarray, repetitions: int
) -> tuple[list[float], list[float], float]:
    """Steps per second of both ways in turns, and how far their rewards are apart at most."""
    reward = RewardFunction(model)
    rows = torch.from_numpy(sample)
    lengths = torch.from_numpy(data.lengths)

    def plain() -> np.ndarray:
        features = model.encoder(*map(torch.from_numpy, (data.observations, data.actions)))
        return trace_windows(model, features, lengths, rows)[0].numpy()

    return in_turns(lambda: relabel(data, reward).rewards, plain, sample, repetitions)


def in_turns(
    whole: Callable[[], np.ndarray],
    plain: Callable[[], np.ndarray],
    sample: np.ndarray,
    repetitions: int,
) -> tuple[list[float], list[float], float]:
    """Steps per second of two ways in turns, and how far their rewards are apart at most."""
    fast = []
    slow = []
    apart = 0.0
    for _ in range(repetitions):
        rewards, rate = timed(whole)
        fast.append(rate)
        if len(sample):
            expected, rate = timed(plain)
            slow.append(rate)
            apart = max(apart, float(np.abs(rewards[sample] - expected).max()))
    return fast, slow or [np.nan], apart


def main() -> None:
    asked = options()
    torch.set_num_threads(asked.threads)
    data = experience(asked.steps, asked.length)
    sample = np.random.default_rng(1).integers(data.steps, size=asked.sample)
    out = Table(
        title=f"{data.steps:,} steps, threads: {asked.threads}, context: {asked.context}, "
        f"layers: {asked.layers}"
    )
    for heading in ("model", "steps/s", "best", "window per step", "apart", "memory"):
        out.add_column(heading, justify="left" if heading == "model" else "right")
    found = {}
    for name in asked.models:
        if name == "replay":
            rates_and_gap = measure_replay(asked.steps, asked.length, sample, asked.repetitions)
        else:
            model = build(name, asked.context, asked.layers).eval()
            rates_and_gap = measure(model, data, sample, asked.repetitions)
        fast, slow, apart = rates_and_gap
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rates = (f"{value:,.0f}" for value in (median(fast), max(fast), median(slow)))
        out.add_row(name, *rates, f"{apart:.1e}", f"{peak:.2f} GiB")
        found[name] = {
            "steps_per_second": round(median(fast)),
            "to_window_per_step": round(median(fast) / median(slow), 1) if asked.sample else None,
            "apart": apart,
        }
    Console().print(out)
    settings = {k: v for k, v in vars(asked).items() if k != "results"}
    text = json.dumps(
        {
            "machine": machine() | {"threads_used": asked.threads},
            "settings": settings,
            "models": found,
        },
        indent=2,
    )
    asked.results.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
