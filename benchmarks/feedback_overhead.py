"""Times an agent with and without the wrapper that asks people and computes the learned rewards.

    python benchmarks/feedback_overhead.py                      both rewards
    python benchmarks/feedback_overhead.py mlp --steps 16384 --repetitions 5

`PPO.learn` on 8 pendulums: alone, and wrapped with a store into which queries go while a model
computes rewards, in one batch per rollout, as `FeedbackCallback` does by default, and in one batch
per step. They take turns in one process; the overhead is that of the medians. Run it on an idle
machine. On a busy one, compare processor time instead of wall time, or the processor time of the
wrapper with that of all else in the same run.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import torch
from rich.console import Console
from rich.table import Table
from run import HERE, machine
from stable_baselines3 import PPO

from preferl.models import (
    MLPRewardConfig,
    PreferenceTransformerConfig,
    RewardModelConfig,
    build_reward_model,
)
from preferl.online import FeedbackCallback, FeedbackVecEnv, make_environments
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.training import RewardFunction

ENV = "Pendulum-v1"
ENVIRONMENTS = 8
SEGMENT = 50
COLLECTING = {"segment_length": SEGMENT, "max_pending": 20}
ALLOWED = {"mlp, per rollout": 0.10, "pt, per rollout": 0.40}
CONFIGS: dict[str, RewardModelConfig] = {
    "mlp": MLPRewardConfig(hidden=(64, 64), members=3),
    "pt": PreferenceTransformerConfig(context=SEGMENT),
}

Took = tuple[float, float, float]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Times the wrapper around an agent.")
    parser.add_argument("rewards", nargs="*", default=list(CONFIGS))
    parser.add_argument("--steps", type=int, default=32_768, help="of all environments together")
    parser.add_argument("--rollout", type=int, default=1_024, help="of each environment")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "feedback_overhead.json")
    return parser.parse_args()


def reward_of(name: str) -> RewardFunction:
    env = gymnasium.make(ENV)
    model = build_reward_model(CONFIGS[name], env.observation_space, env.action_space, seed=0)
    return RewardFunction(model)


class Clock:
    """Adds up what the processor works in this thread within these methods.

    It is no wrapper: between `FeedbackVecEnv` and the algorithm it could look at rewards, and each
    step would be rewarded by itself.
    """

    def __init__(self, thing: Any, *methods: str) -> None:
        self.worked = 0.0
        for name in methods:
            setattr(thing, name, self._timed(getattr(thing, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            begun = time.thread_time()
            outcome = method(*given)
            self.worked += time.thread_time() - begun
            return outcome

        return timed


def seconds(
    asked: argparse.Namespace, reward: RewardFunction | None, batch: str, folder: str
) -> Took:
    """How long learning takes, and the processor works, and what part of that is not the agent's.

    The last is what the wrapper's steps, its callback and other threads work beside all else in
    the same run. Without a reward the agent learns alone.
    """
    env = venv = make_environments(ENV, ENVIRONMENTS, seed=0)
    clocks = [Clock(venv, "step_async", "step_wait")]
    callback = None
    with Store.open(folder) as store:
        if not store.projects.all():
            store.projects.create("pendulum")
        if reward is not None:
            env = FeedbackVecEnv(venv, StoredFeedback(store), reward, **COLLECTING)
            callback = FeedbackCallback(exploration_fraction=0.0, compute_rewards=batch)
            clocks += [
                Clock(env, "step_async", "step_wait"),
                Clock(callback, "_on_rollout_start", "_on_rollout_end"),
            ]
        agent = PPO("MlpPolicy", env, n_steps=asked.rollout, seed=0, device="cpu")
        times = time.perf_counter, time.process_time, time.thread_time
        begun = [clock() for clock in times]
        agent.learn(asked.steps, callback=callback)
        wall, cpu, thread = (clock() - at for clock, at in zip(times, begun, strict=True))
        env.close()
    inner, *outer = (clock.worked for clock in clocks)
    own = (sum(outer) - inner if outer else 0.0) + cpu - thread
    return wall, cpu, own / (cpu - own)


def summary(took: list[Took], alone: list[Took]) -> dict[str, float]:
    """Medians, and how much more they are than alone."""
    (wall, cpu, own), (wall_alone, cpu_alone, _) = (
        [median(column) for column in zip(*rows, strict=True)] for rows in (took, alone)
    )
    return {
        "seconds": round(wall, 3),
        "overhead": round(wall / wall_alone - 1, 3),
        "cpu": round(cpu, 3),
        "cpu_overhead": round(cpu / cpu_alone - 1, 3),
        "own_work": round(own, 3),
    }


def main() -> None:
    asked = options()
    torch.set_num_threads(asked.threads)
    ways: dict[str, tuple[RewardFunction | None, str]] = {"alone": (None, "rollout")}
    for name in asked.rewards:
        reward = reward_of(name)
        ways |= {f"{name}, per {batch}": (reward, batch) for batch in ("rollout", "step")}
    times: dict[str, list[Took]] = {name: [] for name in ways}
    for _ in range(asked.repetitions):
        for name, (reward, batch) in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                times[name].append(seconds(asked, reward, batch, folder))
    result = {name: summary(took, times["alone"]) for name, took in times.items()}
    table = Table(
        "reward", "seconds", "overhead", "cpu seconds", "cpu overhead", "own work", "allowed"
    )
    for name, row in result.items():
        allowed = f"{ALLOWED[name]:.0%}" if name in ALLOWED else ""
        numbers = [f"{row['seconds']:.2f}", f"{row['overhead']:.1%}"]
        numbers += [f"{row['cpu']:.2f}", f"{row['cpu_overhead']:.1%}", f"{row['own_work']:.1%}"]
        table.add_row(name, *numbers, allowed)
    Console().print(table)
    about = {"machine": machine(), "steps": asked.steps, "rollout": asked.rollout}
    about |= {"repetitions": asked.repetitions}
    about |= {"environments": ENVIRONMENTS, "threads": asked.threads}
    about |= {"result": result}
    asked.results.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
