"""A dot kept in the middle of a picture, taught from pixels by 500 comparisons.

Christiano et al. 2017 teach Atari from pixels; this is the least task of the kind. What counts is
the mean distance between dot and middle over the last 50 of an episode's 100 steps, as a share of
the picture's width. An agent keeps the dot in the middle if it is at most 0.10. Beside it: the same
algorithm with no reward, with the true reward, and actions at random.

    python recipes/moving_dot_pixels.py [--seeds 0 1 2] [--agents taught ...] [--smoke]
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from result_tables import write

from preferl.configs import from_json
from preferl.evaluation import RandomPolicy
from preferl.online import (
    OnlineConfig,
    learn_from_preferences,
    record,
    train_on_true_reward,
)
from preferl.online.learner import build_learner
from preferl.presets import load_preset

RESULTS = Path(__file__).parent / "results" / "moving_dot_pixels.csv"
SETTLED = 50
"""Steps after which a dot that is moved to the middle has arrived from anywhere."""


def taught(config: OnlineConfig) -> tuple[object, int]:
    report = learn_from_preferences(config)
    return report.learner.algorithm, len(report.comparisons)


def trained_on_zero(config: OnlineConfig) -> tuple[object, int]:
    learner = build_learner(config, np.random.default_rng(config.seed))
    learner.learn(config.steps)  # the reward is 0 until a reward is there
    return learner.algorithm, 0


def trained_on_truth(config: OnlineConfig) -> tuple[object, int]:
    return train_on_true_reward(config), 0


def at_random(config: OnlineConfig) -> tuple[object, int]:
    space = build_learner(config, np.random.default_rng(0)).algorithm.action_space
    return RandomPolicy(space, config.seed), 0


AGENTS = {
    "taught": taught,
    "zero reward": trained_on_zero,
    "random policy": at_random,
    "true reward": trained_on_truth,
}


def row(name: str, config: OnlineConfig, steps: int) -> dict[str, object]:
    """One agent, evaluated on so many steps in episodes of 100."""
    began = time.perf_counter(), time.process_time()
    agent, answers = AGENTS[name](config)
    seconds = time.perf_counter() - began[0], time.process_time() - began[1]
    episodes = record(agent, config.env, steps, seed=10_000)
    # The reward is minus the distance.
    distance = -episodes.rewards.reshape(len(episodes), -1)[:, SETTLED:].mean(axis=1)
    return {
        "agent": name,
        "seed": config.seed,
        "distance": round(float(distance.mean()), 4),
        "worst_episode": round(float(distance.max()), 4),
        "in_the_middle": bool(distance.mean() <= 0.10),
        "comparisons": answers,
        "seconds": round(seconds[0], 1),
        "processor_seconds": round(seconds[1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = from_json(OnlineConfig, load_preset("moving_dot"))
    steps = 4_800
    if options.smoke:
        shorter = {"steps": 1_800, "initial_steps": 800, "iterations": 1, "comparisons": 8}
        config = replace(config, **shorter, initial_epochs=1)
        options.seeds = options.seeds[:1]
        steps = 400
    rows = []
    for name in options.agents:
        for seed in options.seeds:
            rows.append(row(name, replace(config, seed=seed), steps))
            print(rows[-1], flush=True)
    if not options.smoke:
        write(options.out, rows)


if __name__ == "__main__":
    main()
