"""Fits and SAC's updates that a GPU replays as a recorded graph, beside the same without one.

    python benchmarks/recorded.py

The Preference Transformer has the published size: an optimiser step is of 64 or 256 pairs of 100
steps of 11 + 3 numbers. A fit that is timed has 200 steps, its recording included. Loss curves are
of 20 epochs of 1,400 answers, 256 in an optimiser step and the rest in the last, in bfloat16. SAC
learns from minibatches of 256 steps of 24 + 6 numbers with two hidden layers of 256, four updates a
call, from a replay buffer in the machine's memory. Several agents are as many processes, as in
`recipes/online_table.py`; their rate is that of all together.
"""

import argparse
import json
import time
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
import transformer
from gpu import episodes
from gymnasium import spaces
from run import HERE, machine
from stable_baselines3.common.logger import Logger

from preferl.models import PreferenceTransformer, PreferenceTransformerConfig
from preferl.online.methods.sac import SAC
from preferl.testing import make_comparisons
from preferl.training import CosineSchedule, FitReport, RewardTrainer, RewardTrainerConfig

PAIRS = 256
STEPS = 200
EPOCHS = 10
SIZES = ((64, "float32"), (64, "bfloat16"), (256, "bfloat16"))  # of an optimiser step
AGENTS = (1, 8)
UPDATES = 4  # of SAC in a call
WALKER = (24, 6)
KINDS: dict[str, type[stable_baselines3.SAC]] = {"plain": stable_baselines3.SAC, "recorded": SAC}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=10, help="per rate of agents")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "recorded.json")
    return parser.parse_args()


def trainer(device: str, *, recorded: bool, compiled: bool = False, **settings: Any) -> Any:
    """A trainer of a Preference Transformer whose fits are recorded, or not."""
    shape = PreferenceTransformerConfig(context=transformer.LENGTH)
    model = PreferenceTransformer(*transformer.SPACES, shape, seed=0)
    model.recordable = recorded
    usual: dict[str, Any] = {"batch_size": PAIRS, "precision": "bfloat16", "patience": None}
    config = RewardTrainerConfig(compile=compiled, **(usual | settings))
    return RewardTrainer(model, config, seed=0, device=device)


def curves(device: str, *, recorded: bool) -> dict[str, list[float]]:
    """Losses of each epoch."""
    rng = np.random.default_rng(0)
    known, unseen = (
        make_comparisons(rng, count, transformer.LENGTH, episodes(20_000)) for count in (1_400, 256)
    )
    fitted: FitReport = trainer(
        device, recorded=recorded, epochs=20, schedule=CosineSchedule(), noise=0.1
    ).fit(known, unseen)
    names = ("train_loss", "validation_loss")
    return {name: [round(float(v), 5) for v in getattr(fitted, name)] for name in names}


def fit_rate(device: str, repetitions: int, *, pairs: int, **how: Any) -> float:
    """Optimiser steps a second of a fit of 200, the median of some."""
    rng = np.random.default_rng(0)
    data = make_comparisons(rng, pairs * STEPS // EPOCHS, transformer.LENGTH, episodes(20_000))
    fits = trainer(device, batch_size=pairs, epochs=EPOCHS, **how)
    seconds = []
    for _ in range(repetitions + 1):
        began = time.perf_counter()
        fits.fit(data)
        seconds.append(time.perf_counter() - began)
    return round(STEPS / median(seconds[1:]), 1)


class Walker(gym.Env[Any, Any]):
    """Spaces of walker-walk; nobody acts."""

    observation_space = spaces.Box(-np.inf, np.inf, WALKER[:1], np.float32)
    action_space = spaces.Box(-1, 1, WALKER[1:], np.float32)


def agent(kind: type[stable_baselines3.SAC], device: str, seed: int = 0) -> stable_baselines3.SAC:
    """SAC with a replay buffer of random numbers."""
    network = {"net_arch": [256, 256]}
    made = kind(
        "MlpPolicy", Walker(), seed=seed, device=device, policy_kwargs=network, buffer_size=100_000
    )
    made._logger = Logger(folder=None, output_formats=[])
    buffer: Any = made.replay_buffer
    rng = np.random.default_rng(seed)
    for column in (buffer.observations, buffer.next_observations, buffer.rewards):
        column[:] = rng.normal(size=column.shape)
    buffer.actions[:] = rng.uniform(-1, 1, buffer.actions.shape)
    buffer.full = True
    return made


def losses(kind: type[stable_baselines3.SAC], device: str) -> dict[str, Any]:
    """Losses after 10, 20, ... 200 updates, and the sum of all weights' sizes in the end."""
    one = agent(kind, device)
    curve: dict[str, list[float]] = {"critic_loss": [], "actor_loss": [], "ent_coef": []}
    for update in range(200):
        one.train(1, 256)
        if update % 10 == 9:
            values: Any = one.logger.name_to_value
            for name, column in curve.items():
                column.append(float(f"{values[f'train/{name}']:.6g}"))
    weights = [part.detach().double().abs().sum() for part in one.policy.parameters()]
    return curve | {"weights": float(f"{sum(weights).item():.8g}")}


def count_updates(device: str, seed: int, seconds: float, ready: Any, out: Any) -> None:
    """Put how many updates a second an agent makes by each kind, while others do the same."""
    torch.set_num_threads(1)
    rates = {}
    for name, kind in KINDS.items():
        one = agent(kind, device, seed)
        for _ in range(10):
            one.train(UPDATES, 256)
        ready.wait()
        began = time.perf_counter()
        made = 0
        while time.perf_counter() - began < seconds:
            one.train(UPDATES, 256)
            made += UPDATES
        rates[name] = made / (time.perf_counter() - began)
        ready.wait()
    out.put(rates)


def agents_rate(device: str, agents: int, seconds: float) -> dict[str, int]:
    """Updates a second of all agents together, each in a process of its own."""
    context = get_context("spawn")
    ready = context.Barrier(agents)
    rates = context.Queue()
    processes = [
        context.Process(target=count_updates, args=(device, seed, seconds, ready, rates))
        for seed in range(agents)
    ]
    for process in processes:
        process.start()
    measured = [rates.get(timeout=60 + 4 * seconds) for _ in processes]
    for process in processes:
        process.join()
    return {name: round(sum(rate[name] for rate in measured)) for name in KINDS}


def main() -> None:
    chosen = options()
    device = chosen.device
    times = chosen.repetitions
    card = torch.cuda.get_device_name() if device == "cuda" else None
    stored: dict[str, Any] = {"machine": machine() | {"card": card}, "torch": torch.__version__}

    def store(*names: str, value: Any) -> None:
        """Keep a result in the file, so that a later failure loses nothing."""
        place = stored
        for name in names[:-1]:
            place = place.setdefault(name, {})
        place[names[-1]] = value
        print(*names, value, flush=True)
        chosen.results.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")

    of_fits = "preference_transformer"
    of_agents = "sac"
    for name, recorded in (("plain", False), ("recorded", True)):
        store(of_fits, "losses", name, value=curves(device, recorded=recorded))
    for pairs, precision in SIZES:
        size = f"{pairs}_{precision}"
        for name, recorded in (("plain", False), ("recorded", True)):
            rate = fit_rate(device, times, pairs=pairs, precision=precision, recorded=recorded)
            store(of_fits, "steps_per_second", size, name, value=rate)
    for name, kind in KINDS.items():
        store(of_agents, "losses", name, value=losses(kind, device))
    for count in AGENTS:
        rates = agents_rate(device, count, chosen.seconds)
        store(of_agents, "updates_per_second", str(count), value=rates)
    for pairs, precision in SIZES[-1:]:
        how = {"recorded": True, "compiled": True}
        rate = fit_rate(device, times, pairs=pairs, precision=precision, **how)
        place = (of_fits, "steps_per_second", f"{pairs}_{precision}", "recorded_and_compiled")
        store(*place, value=rate)


if __name__ == "__main__":
    main()
