"""A teacher of one's own: a function that looks at pairs of clips and gives the one it prefers.

python examples/custom_teacher.py [--smoke]
"""

import argparse

import numpy as np

from preferl import OnlineConfig, evaluate_policy, learn_from_preferences
from preferl.data import Clips
from preferl.testing import check_teacher

HANGS = -0.9  # cosine of the angle below which a pendulum is as good as hanging down


def likes_to_hang(shown: Clips, rng: np.random.Generator) -> np.ndarray:
    """Prefers the clip in which the pendulum hangs down for longer, the contrary of the task."""
    del rng  # this teacher is sure
    cosine = shown.observations[..., 0]  # [P, 2, L]
    hanging = ((cosine < HANGS) & shown.mask).sum(-1)  # [P, 2]
    return 0.5 * (1 + np.sign(hanging[:, 0] - hanging[:, 1]))  # equal counts are a tie


def main(*, smoke: bool) -> None:
    check_teacher(likes_to_hang)
    budget = {"steps": 3_000, "iterations": 2, "comparisons": 40} if smoke else {}
    config = OnlineConfig.preset("pendulum", **budget)
    report = learn_from_preferences(config, teacher=likes_to_hang)
    evaluated = evaluate_policy(report.learner.algorithm, config.env, episodes=20, seed=1)
    low, high = evaluated.interval
    print(f"{len(report.comparisons)} answers, {report.env_steps:,} steps")
    print(f"return by the environment's reward: {evaluated.mean:,.0f} ({low:,.0f} to {high:,.0f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="too few steps to learn much")
    main(smoke=parser.parse_args().smoke)
