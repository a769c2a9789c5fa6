"""d3rlpy at the same work, through its public classes."""

import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import d3rlpy
import torch
import workloads_offline as w
from d3rlpy.models import VectorEncoderFactory
from worker import serve

d3rlpy.seed(0)


def about() -> dict[str, str]:
    return {name: version(name) for name in ("d3rlpy", "torch", "numpy", "gymnasium")}


def iql(threads: int) -> Callable[[], dict[str, Any]]:
    """`fit` without its log files and progress bar."""
    torch.set_num_threads(threads)
    data = w.steps()
    dataset = d3rlpy.dataset.MDPDataset(
        observations=data.observations,
        actions=data.actions,
        rewards=data.rewards,
        terminals=data.terminals,
        timeouts=data.timeouts,
    )
    encoder = VectorEncoderFactory(list(w.HIDDEN))
    learner = d3rlpy.algos.IQLConfig(
        batch_size=w.BATCH,
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        value_encoder_factory=encoder,
    ).create()

    def repetition() -> dict[str, Any]:
        learner.fit(
            dataset,
            n_steps=w.UPDATES,
            n_steps_per_epoch=w.UPDATES,
            show_progress=False,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        )
        return {"units": w.UPDATES}

    repetition()
    return repetition


if __name__ == "__main__":
    serve(about, {"one_thread": lambda: iql(1), "two_threads": lambda: iql(2)}, {})
