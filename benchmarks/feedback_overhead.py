"""Times an agent with and without the wrapper that asks people and pays what was learned.

    python benchmarks/feedback_overhead.py                      both rewards
    python benchmarks/feedback_overhead.py mlp --steps 16384 --repetitions 5

`PPO.learn` on 8 pendulums: alone, and wrapped with a store into which questions go while a reward
is paid. They take turns in one process; the overhead is that of the medians. Run it on a machine
that has nothing else to do; on others, what the processor worked tells more than the clock, and
what it worked for the wrapper beside all else in the same run tells most.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median

import gymnasium
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from run import HERE, machine
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

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

ENV, ENVIRONMENTS, SEGMENT = "Pendulum-v1", 8, 50
COLLECTING = {"segment_length": SEGMENT, "max_pending": 20}
ALLOWED = {"mlp": 0.10, "pt": 0.40}
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


class Clock(VecEnvWrapper):
    """Adds up what the processor works in this thread within the steps of what it wraps."""

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv)
        self.worked = 0.0

    def reset(self) -> VecEnvObs:
        """Begin anew, which does not count."""
        return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Send the actions off."""
        begun = time.thread_time()
        self.venv.step_async(actions)
        self.worked += time.thread_time() - begun

    def step_wait(self) -> VecEnvStepReturn:
        """Give the outcome."""
        begun = time.thread_time()
        outcome = self.venv.step_wait()
        self.worked += time.thread_time() - begun
        return outcome


def seconds(asked: argparse.Namespace, reward: RewardFunction | None, folder: str) -> Took:
    """How long learning takes, and the processor works, and what part of that is not the agent's.

    The last is what the wrapper's steps and other threads work beside all else in the same run.
    Without a reward the agent learns alone.
    """
    env = venv = Clock(make_environments(ENV, ENVIRONMENTS, seed=0))
    with Store.open(folder) as store:
        if not store.projects.all():
            store.projects.create("pendulum")
        if reward is not None:
            feedback = StoredFeedback(store)
            env = Clock(FeedbackVecEnv(venv, feedback, reward, **COLLECTING))
        agent = PPO("MlpPolicy", env, n_steps=asked.rollout, seed=0, device="cpu")
        clocks = time.perf_counter, time.process_time, time.thread_time
        begun = [clock() for clock in clocks]
        agent.learn(asked.steps, callback=None if reward is None else FeedbackCallback())
        wall, cpu, thread = (clock() - at for clock, at in zip(clocks, begun, strict=True))
        env.close()
    own = env.worked - venv.worked + cpu - thread
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
    rewards = {"alone": None} | {name: reward_of(name) for name in asked.rewards}
    times: dict[str, list[Took]] = {name: [] for name in rewards}
    for _ in range(asked.repetitions):
        for name, reward in rewards.items():
            with tempfile.TemporaryDirectory() as folder:
                times[name].append(seconds(asked, reward, folder))
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
    about |= {"environments": ENVIRONMENTS, "threads": asked.threads, "result": result}
    asked.results.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
