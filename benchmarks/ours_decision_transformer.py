"""preferl at the tutorial's work, through its public classes."""

import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import workloads_decision as w
from gymnasium import spaces
from worker import serve

from preferl.data import Episodes
from preferl.offline import DecisionTransformer, DTConfig, SequenceCollator, Sequences

SPACES = (
    spaces.Box(-np.inf, np.inf, (w.STATE,), np.float32),
    spaces.Box(-1, 1, (w.ACTION,), np.float32),
)


def about() -> dict[str, str]:
    return {name: version(name) for name in ("preferl", "transformers", "accelerate", "torch")}


def sequences() -> Sequences:
    data = w.trajectories()
    episodes = Episodes(
        observations=data.states.reshape(-1, w.STATE),
        actions=data.actions.reshape(-1, w.ACTION),
        rewards=data.rewards.reshape(-1),
        terminated=np.zeros(w.EPISODES * w.LENGTH, bool),
        final_observations=data.states[:, -1],
        lengths=np.full(w.EPISODES, w.LENGTH),
    )
    return Sequences.of(episodes, SPACES[1], scale=w.SCALE, horizon=w.LENGTH)


def settings(precision: Any) -> DTConfig:
    return DTConfig(
        context=w.CONTEXT,
        batch_size=w.BATCH,
        horizon=w.LENGTH,
        learning_rate=w.LEARNING_RATE,
        weight_decay=w.WEIGHT_DECAY,
        warmup=w.WARMUP,
        max_grad_norm=w.MAX_NORM,
        precision=precision,
    )


def collate() -> Callable[[], dict[str, Any]]:
    collator = SequenceCollator(sequences(), w.CONTEXT, seed=0)

    def repetition() -> dict[str, Any]:
        for batch in range(w.BATCHES["ours"]):
            collator(range(batch * w.BATCH, (batch + 1) * w.BATCH))
        return {"units": w.BATCHES["ours"]}

    repetition()
    return repetition


def train(data: Sequences, precision: str, updates: int, seed: int, every: int) -> list[float]:
    agent = DecisionTransformer(*SPACES, settings(precision), seed=seed, steps=updates)
    losses: list[float] = []
    agent.fit(data, every=every, on_progress=lambda _, metrics: losses.append(metrics["loss"]))
    return losses


def loop(precision: str) -> Callable[[], dict[str, Any]]:
    torch.set_num_threads(2)
    data = sequences()

    def repetition() -> dict[str, Any]:
        train(data, precision, w.UPDATES, seed=0, every=10_000)
        return {"units": w.UPDATES}

    train(data, precision, 2, seed=0, every=10_000)
    return repetition


def curve(precision: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    data = sequences()
    return {str(seed): train(data, precision, w.CURVE, seed, every=20) for seed in range(3)}


if __name__ == "__main__":
    serve(
        about,
        {
            "collate": collate,
            "loop_float32": lambda: loop("float32"),
            "loop_bfloat16": lambda: loop("bfloat16"),
        },
        {
            "curve_float32": lambda: curve("float32"),
            "curve_bfloat16": lambda: curve("bfloat16"),
        },
    )
