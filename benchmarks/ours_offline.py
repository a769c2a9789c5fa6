"""preferl at the same work."""

import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import workloads_offline as w
from gymnasium import spaces
from worker import serve

from preferl.data import Episodes
from preferl.offline import IQL, IQLConfig, Transitions


def about() -> dict[str, str]:
    return {name: version(name) for name in ("preferl", "torch", "numpy", "gymnasium")}


def iql(agents: int, precision: str, threads: int) -> Callable[[], dict[str, Any]]:
    """An update counts once, however many agents make it side by side."""
    torch.set_num_threads(threads)
    data = w.steps()
    ends = np.arange(w.LENGTH - 1, len(data.rewards), w.LENGTH)
    episodes = Episodes(
        observations=data.observations,
        actions=data.actions,
        rewards=data.rewards,
        terminated=data.terminals.astype(bool),
        final_observations=data.observations[ends],
        lengths=np.full(w.EPISODES, w.LENGTH),
    )
    transitions = Transitions.of(episodes)
    learner = IQL(
        spaces.Box(-np.inf, np.inf, (w.OBSERVATION,), np.float32),
        spaces.Box(-1, 1, (w.ACTION,), np.float32),
        IQLConfig(hidden=w.HIDDEN, batch_size=w.BATCH, precision=precision),
        seeds=range(agents),
        steps=1_000_000,
    )

    def repetition() -> dict[str, Any]:
        learner.fit(transitions, w.UPDATES)
        return {"units": w.UPDATES}

    repetition()
    return repetition


THREADS = {"one_thread": 1, "two_threads": 2}

if __name__ == "__main__":
    serve(
        about,
        {
            f"{agents}_{precision}_{name}": (lambda a=agents, p=precision, t=threads: iql(a, p, t))
            for precision, counts in w.AGENTS.items()
            for agents in counts
            for name, threads in THREADS.items()
        },
        {},
    )
