"""A reward model of one's own: linear in the features and their squares.

python examples/custom_reward_model.py [--smoke]
"""

import argparse
from dataclasses import replace

import gymnasium
import torch
from torch import Tensor

from preferl.functional import pool
from preferl.models import RewardModel, RewardOutput, VectorEncoder
from preferl.online import OnlineConfig, learn_from_preferences, make_environments
from preferl.testing import check_reward_model
from preferl.training import RewardTrainer


class QuadraticReward(RewardModel):
    """`r(o, a) = w · (x, x²)` for `E` members, with `x` the normalised features of a step."""

    def __init__(
        self, observations: gymnasium.Space, actions: gymnasium.Space, *, members: int, seed: int
    ) -> None:
        encoder = VectorEncoder(observations, actions)
        super().__init__(encoder, context=1, members=members)
        weights = torch.empty(members, 2 * encoder.size)
        generator = torch.Generator().manual_seed(seed)
        self.weights = torch.nn.Parameter(weights.normal_(0, 0.1, generator=generator))

    def judge(self, features: Tensor, mask: Tensor) -> RewardOutput:
        """Rewards `[E, B, L]` and scores `[E, B]` of features `[B, L, F]`."""
        terms = torch.cat([features, features.square()], dim=-1)  # [B, L, 2 * F]
        rewards = torch.einsum("blf,ef->ebl", terms, self.weights)
        return RewardOutput(rewards, self.pool(rewards, mask))

    def pool(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """A segment's score is the sum of its rewards."""
        return pool(rewards, mask)


def main(*, smoke: bool) -> None:
    env = make_environments("Pendulum-v1", 1, seed=0)
    spaces = env.observation_space, env.action_space
    check_reward_model(QuadraticReward(*spaces, members=3, seed=0))

    config = OnlineConfig(steps=30_000, turns=4)
    if smoke:
        config = replace(config, steps=8_192, turns=2, comparisons=40)
    model = QuadraticReward(*spaces, members=3, seed=0)
    report = learn_from_preferences(config, trainer=RewardTrainer(model, seed=0))
    fit = report.turns[-2].fit  # the last turn only learns
    print(f"accuracy on answers that were left out: {fit.validation_accuracy[-1]:.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a short run")
    main(smoke=parser.parse_args().smoke)
