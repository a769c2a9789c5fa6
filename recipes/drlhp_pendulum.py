"""A pendulum taught to stand by 200 comparisons, beside controls (Christiano et al. 2017).

Each seed: an agent taught by a scripted teacher, one by the same teacher with every answer
turned round, one with answers drawn at random, and one that learns from the true reward.

    python recipes/drlhp_pendulum.py [--seeds 0 1 2 3 4] [--teachers taught ...] [--smoke]
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from result_tables import write

from preferl.configs import from_json
from preferl.evaluation import PolicyReport, evaluate_policy
from preferl.online import OnlineConfig, learn_from_preferences, train_on_true_reward
from preferl.presets import load_preset

RESULTS = Path(__file__).parent / "results" / "drlhp_pendulum.csv"
TEACHERS = {
    "taught": {},
    "negated answers": {"error_rate": 1.0},
    "random answers": {"guess_rate": 1.0},
    "true reward": None,
}


def learned(config: OnlineConfig, changes: dict | None) -> tuple[object, int, int]:
    """The agent that a teacher (None: the true reward) makes, environment steps, answers."""
    if changes is None:
        return train_on_true_reward(config), config.steps, 0
    config = replace(config, teacher=replace(config.teacher, **changes))
    report = learn_from_preferences(config)
    return report.learner.algorithm, report.env_steps, len(report.comparisons)


def row(name: str, config: OnlineConfig, changes: dict | None, episodes: int) -> dict[str, object]:
    """One agent, evaluated on so many episodes of the true reward."""
    began = time.perf_counter()
    agent, steps, answers = learned(config, changes)
    seconds = time.perf_counter() - began
    report: PolicyReport = evaluate_policy(agent, config.env, episodes=episodes, seed=10_000)
    return {
        "teacher": name,
        "seed": config.seed,
        "mean": round(report.mean, 1),
        "median": round(report.median, 1),
        "worst": round(float(report.returns.min()), 1),
        "env_steps": steps,
        "comparisons": answers,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--teachers", nargs="+", choices=TEACHERS, default=list(TEACHERS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = from_json(OnlineConfig, load_preset("pendulum"))
    episodes = 100
    if options.smoke:
        config = replace(config, steps=1_200, initial_steps=900, iterations=1, comparisons=10)
        episodes = 2
        options.seeds = options.seeds[:1]
    rows = []
    for name in options.teachers:
        for seed in options.seeds:
            rows.append(row(name, replace(config, seed=seed), TEACHERS[name], episodes))
            print(rows[-1], flush=True)
        means = np.array([r["mean"] for r in rows if r["teacher"] == name])
        print(f"{name}: median {np.median(means):.0f}, worst {means.min():.0f}", flush=True)
    if not options.smoke:
        write(options.out, rows)


if __name__ == "__main__":
    main()
