"""The way of Hugging Face's tutorial: rows of Arrow, one window at a time, `Trainer` as it comes.

Written anew from what the tutorial does, step by step.
"""

import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import workloads_decision as w
from datasets import Dataset
from transformers import (
    DecisionTransformerConfig,
    DecisionTransformerModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from worker import serve


def about() -> dict[str, str]:
    return {name: version(name) for name in ("transformers", "accelerate", "datasets", "torch")}


def rows() -> tuple[Dataset, dict[str, np.ndarray]]:
    """Columns of lists, and what states are normalised by."""
    data = w.trajectories()
    ends = np.zeros((w.EPISODES, w.LENGTH), bool)
    ends[:, -1] = True
    dataset = Dataset.from_dict(
        {
            "observations": list(data.states),
            "actions": list(data.actions),
            "rewards": list(data.rewards),
            "dones": list(ends),
        }
    )
    flat = data.states.reshape(-1, w.STATE)
    return dataset, {"mean": flat.mean(0), "deviation": flat.std(0) + 1e-6}


class Windows:
    """A collator that looks up one trajectory after the other and stacks their windows."""

    def __init__(self, dataset: Dataset, statistics: dict[str, np.ndarray], seed: int) -> None:
        self.dataset = dataset
        self.statistics = statistics
        self.rng = np.random.default_rng(seed)
        self.chances = np.full(len(dataset), 1 / len(dataset))  # by length, which is the same here

    def __call__(self, features: list[Any]) -> dict[str, torch.Tensor]:
        """As many windows as there are features, which are not looked at."""
        chosen = self.rng.choice(len(self.dataset), size=len(features), p=self.chances)
        windows = [self.window(self.dataset[int(k)]) for k in chosen]
        stacked = {name: np.stack([one[name] for one in windows]) for name in windows[0]}
        batch = {name: torch.from_numpy(array).float() for name, array in stacked.items()}
        return batch | {"timesteps": torch.from_numpy(stacked["timesteps"]).long()}

    def window(self, trajectory: dict[str, list[Any]]) -> dict[str, np.ndarray]:
        """From a step that is drawn evenly."""
        first = int(self.rng.integers(len(trajectory["rewards"])))
        some = slice(first, first + w.CONTEXT)
        states = np.array(trajectory["observations"][some])
        actions = np.array(trajectory["actions"][some])
        rewards = np.array(trajectory["rewards"][some]).reshape(-1, 1)
        real = len(states)
        missing = w.CONTEXT - real
        to_go = backwards(np.array(trajectory["rewards"][first:]))[:real].reshape(-1, 1)
        times = np.minimum(np.arange(first, first + real), w.LENGTH - 1)

        def padded(values: np.ndarray, fill: float) -> np.ndarray:
            return np.concatenate([np.full((missing, *values.shape[1:]), fill), values])

        mean = self.statistics["mean"]
        deviation = self.statistics["deviation"]
        return {
            "states": (padded(states, 0) - mean) / deviation,
            "actions": padded(actions, -10),
            "rewards": padded(rewards, 0),
            "returns_to_go": padded(to_go, 0) / w.SCALE,
            "timesteps": padded(times, 0),
            "attention_mask": padded(np.ones(real), 0),
        }


def backwards(rewards: np.ndarray, discount: float = 1.0) -> np.ndarray:
    """What is earned from each step on, one step at a time."""
    sums = np.zeros_like(rewards)
    sums[-1] = rewards[-1]
    for step in reversed(range(len(rewards) - 1)):
        sums[step] = rewards[step] + discount * sums[step + 1]
    return sums


class Trainable(DecisionTransformerModel):
    """The model with the loss of its actions."""

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """All heads are computed, and one is used."""
        predicted = super().forward(**batch)[1]
        real = batch["attention_mask"].reshape(-1) > 0
        wanted = batch["actions"].reshape(-1, w.ACTION)[real]
        return {"loss": ((predicted.reshape(-1, w.ACTION)[real] - wanted) ** 2).mean()}


class Losses(TrainerCallback):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
        """The mean since it was last logged."""
        if "loss" in logs:
            self.found.append(float(logs["loss"]))


def train(
    dataset: Dataset, statistics: dict[str, np.ndarray], updates: int, seed: int, every: int
) -> list[float]:
    """One call of `train`, with the tutorial's settings; losses if they are logged."""
    torch.manual_seed(seed)
    model = Trainable(DecisionTransformerConfig(state_dim=w.STATE, act_dim=w.ACTION))
    losses = Losses()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                remove_unused_columns=False,
                max_steps=updates,
                per_device_train_batch_size=w.BATCH,
                learning_rate=w.LEARNING_RATE,
                weight_decay=w.WEIGHT_DECAY,
                warmup_steps=w.WARMUP,
                optim="adamw_torch",
                max_grad_norm=w.MAX_NORM,
                use_cpu=True,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
                logging_steps=every,
                seed=seed,
                dataloader_pin_memory=False,
            ),
            train_dataset=dataset,
            data_collator=Windows(dataset, statistics, seed),
            callbacks=[losses],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return losses.found


def collate() -> Callable[[], dict[str, Any]]:
    windows = Windows(*rows(), seed=0)

    def repetition() -> dict[str, Any]:
        for _ in range(w.BATCHES["peer"]):
            windows([None] * w.BATCH)
        return {"units": w.BATCHES["peer"]}

    windows([None] * w.BATCH)
    return repetition


def loop() -> Callable[[], dict[str, Any]]:
    torch.set_num_threads(2)
    data = rows()

    def repetition() -> dict[str, Any]:
        train(*data, w.UPDATES, seed=0, every=10_000)
        return {"units": w.UPDATES}

    train(*data, 2, seed=0, every=10_000)
    return repetition


def curve() -> dict[str, Any]:
    torch.set_num_threads(1)
    data = rows()
    return {str(seed): train(*data, w.CURVE, seed, every=20) for seed in range(3)}


if __name__ == "__main__":
    serve(about, {"collate": collate, "loop": loop}, {"curve": curve})
