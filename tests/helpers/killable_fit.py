"""A fit in a program that is killed."""

from dataclasses import replace
from itertools import count

import numpy as np
import torch

from helpers.moments import die_at_touch
from preferl.data import split
from preferl.models import LSTMReward, LSTMRewardConfig, MLPReward, MLPRewardConfig
from preferl.testing import make_comparisons
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import (
    AdaptivePenalty,
    CosineSchedule,
    FitCheckpoints,
    RewardTrainer,
    RewardTrainerConfig,
    save_reward,
)
from preferl.training.reward_function import RewardFunction

CONFIGS = {
    "ensemble": RewardTrainerConfig(
        epochs=12, noise=0.1, penalty=AdaptivePenalty(1e-4, band=(1.0, 1.1)), batch_size=8
    ),
    "held out": RewardTrainerConfig(
        epochs=12, schedule=CosineSchedule(), batch_size=8, patience=10
    ),
    "trust": RewardTrainerConfig(epochs=12, noise=0.1, batch_size=8, trust=True),
}


def parts(kind):
    """The model and the answers of a fit; both models drop units."""
    rng = np.random.default_rng(0)
    comparisons = make_comparisons(rng, pairs=60)
    if kind == "trust":
        comparisons = replace(comparisons, annotator=np.arange(60) % 4)
    if kind != "held out":
        config = MLPRewardConfig((16,), 3, dropout=0.2)
        return MLPReward(POINT_SPACE, PUSH_SPACE, config, seed=0), comparisons, None
    model = LSTMReward(POINT_SPACE, PUSH_SPACE, LSTMRewardConfig(8, dropout=0.2), seed=0)
    return model, *split(comparisons, rng, validation=0.3)


def fit(kind, checkpoints=None, on_epoch=None):
    """The whole fit, or what is left of it."""
    model, train, validation = parts(kind)
    trainer = RewardTrainer(model, CONFIGS[kind], seed=3)
    return model, trainer.fit(train, validation, on_epoch=on_epoch, checkpoints=checkpoints)


def main(folder, kind, *moment):
    """Save the reward of a fit; with a moment `(EPOCHS, TOUCH)` end with -9 before.

    That is after so many epochs of this program, when it touches its checkpoints for the `TOUCH`th
    time from then on (see `die_at_touch`).
    """
    torch.set_num_threads(1)
    checkpoints = FitCheckpoints(folder / "checkpoints", seconds=0)
    epochs = count(1)

    def on_epoch(*_):
        if moment and next(epochs) == moment[0]:
            die_at_touch(checkpoints.folder, moment[1])

    model, report = fit(kind, checkpoints, on_epoch)
    save_reward(folder / "reward", RewardFunction(model, likelihood=report.likelihood))
