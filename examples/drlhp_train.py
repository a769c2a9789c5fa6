"""Train a reward only, from preferences collected before, and keep it every few epochs.

python examples/drlhp_train.py [--smoke]

`preferl reward fit` and `preferl reward serve` do the same from the command line; this is how it
is done in code.
"""

import argparse
from pathlib import Path

import gymnasium
import numpy as np
from drlhp_collect import ENV, LOGS, collect

from preferl import (
    MLPReward,
    MLPRewardConfig,
    RewardFunction,
    RewardTrainer,
    RewardTrainerConfig,
    Store,
    StoredFeedback,
    split,
)
from preferl.training.publish import publish

REWARDS = Path(LOGS) / "rewards"


def train(epochs: int, every: int) -> int:
    """Fit to all answers of the store; publishes a version every so many epochs."""
    env = gymnasium.make(ENV)
    config = MLPRewardConfig(hidden=(64, 64), members=3)
    model = MLPReward(env.observation_space, env.action_space, config, seed=0)
    trainer = RewardTrainer(model, RewardTrainerConfig(epochs=every), seed=0)
    version = 0
    with Store.open(LOGS) as store:
        comparisons = StoredFeedback(store).comparisons()
        learned, held_out = split(comparisons, np.random.default_rng(0), validation=0.2)
        for done in range(every, epochs + 1, every):
            report = trainer.fit(learned, held_out)
            accuracy = float(report.validation_accuracy[-1])
            reward = RewardFunction(trainer.model).scaled(comparisons.segments.episodes())
            version = publish(REWARDS, reward, metrics={"epochs": done, "accuracy": accuracy})
            print(f"version {version} after {done} epochs: {accuracy:.0%} of held-out answers")
    return version


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="few epochs on a script's answers")
    if parser.parse_args().smoke:
        collect(20, smoke=True)
        train(epochs=4, every=2)
    else:
        train(epochs=100, every=10)
