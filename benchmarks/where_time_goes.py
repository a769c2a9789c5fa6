"""Times the parts of an online run: simulator, agent, learned rewards, fits, relabelling, queries.

    python benchmarks/where_time_goes.py                      the preset `halfcheetah`, 40,000 steps
    python benchmarks/where_time_goes.py --preset pendulum --steps 12000

A shorter run asks fewer queries and has fewer iterations in proportion, so that fits, which take
longer the more answers there are, are a smaller share of it than of a whole run. A run of one
thread on an idle core; each part is what its functions take without the parts within them.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table
from run import HERE, machine
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv

from preferl.configs import from_json
from preferl.online import OnlineConfig, learn_from_preferences
from preferl.online.wrappers.feedback_core import FeedbackCore
from preferl.online.wrappers.reward_computer import RewardComputer
from preferl.presets import load_preset

SIMULATOR = "simulator"
REWARDS = "learned rewards of steps"
UPDATES = "updates of the agent"
PARTS = {"fitting": "fits", "relabelling": "relabelling", "asking": "queries"}
"""Of an iteration, as a report names them, and as the table does."""
REST = "acting, and all else"
OF_REWARD = (REWARDS, *PARTS.values())


class Parts:
    """Seconds of functions, each without those of others within it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._within: list[float] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose seconds are those of a part."""

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            self._within.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - began
                self.seconds[part] += took - self._within.pop()
                if self._within:
                    self._within[-1] += took

        return wrapper


def measure(config: OnlineConfig) -> dict[str, float]:
    """Seconds of each part of a run."""
    parts = Parts()
    watched = [
        (DummyVecEnv, "step_wait", SIMULATOR),
        (RewardComputer, "compute", REWARDS),
        (FeedbackCore, "settle", REWARDS),
        (SAC, "train", UPDATES),
        (PPO, "train", UPDATES),
    ]
    with ExitStack() as stack:
        for owner, name, part in watched:
            function = parts.timed(part, getattr(owner, name))
            stack.enter_context(patch.object(owner, name, function))
        began = time.perf_counter()
        report = learn_from_preferences(config)
        total = time.perf_counter() - began
    seconds = dict(parts.seconds) | {PARTS[name]: report.part_seconds[name] for name in PARTS}
    return seconds | {REST: total - sum(seconds.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="halfcheetah")
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "where_time_goes.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    preset = from_json(OnlineConfig, load_preset(options.preset))
    share = options.steps / preset.steps
    config = replace(
        preset,
        steps=options.steps,
        comparisons=max(10, round(preset.comparisons * share)),
        iterations=max(2, round(preset.iterations * share)),
        eval_every=0,
        seed=options.seed,
    )
    seconds = measure(config)
    total = sum(seconds.values())
    shares = {part: round(took / total, 4) for part, took in seconds.items()}
    console = Console()
    table = Table("part", "seconds", "share")
    for part, took in sorted(seconds.items(), key=lambda item: -item[1]):
        table.add_row(part, f"{took:.1f}", f"{shares[part]:.1%}")
    console.print(table)
    of_reward = sum(shares[part] for part in OF_REWARD)
    console.print(f"The learned reward takes {of_reward:.1%} of {total:.0f} seconds.")
    about = {"preset": options.preset, "steps": options.steps, "seed": options.seed}
    about |= {"comparisons": config.comparisons, "iterations": config.iterations}
    stored = {"run": about, "machine": machine(), "shares": shares, "of_reward": of_reward}
    options.results.write_text(json.dumps(stored, indent=2) + "\n")
    console.print(f"Written to {options.results}")


if __name__ == "__main__":
    main()
