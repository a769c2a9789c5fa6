"""The batched perceptron against one `nn.Sequential` per member."""

from dataclasses import replace

import pytest
import torch
from gymnasium import spaces

from preferl.models import MLPReward, MLPRewardConfig
from preferl.testing import check_reward_model

OBSERVATIONS = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Box(-1, 1, (2,))


@pytest.mark.parametrize(
    "config",
    [
        MLPRewardConfig(),
        MLPRewardConfig(hidden=(), members=2),
        MLPRewardConfig(members=3, pooling="mean", discount=0.9, activation="tanh"),
        MLPRewardConfig(bounded=True, dropout=0.5, normalise=False, activation="gelu"),
        MLPRewardConfig(use_actions=False, hidden=(16,), activation="relu"),
    ],
)
def test_every_shape_keeps_the_contract(config):
    check_reward_model(MLPReward(OBSERVATIONS, ACTIONS, config, seed=0))


def test_bounded_rewards_are_the_hyperbolic_tangent_of_unbounded_ones():
    free = MLPReward(OBSERVATIONS, ACTIONS, seed=0)
    bounded = MLPReward(OBSERVATIONS, ACTIONS, replace(free.config, bounded=True), seed=0)
    generator = torch.Generator().manual_seed(1)
    steps = (torch.randn(7, 4, size, generator=generator) for size in (3, 2))
    windows = (*steps, torch.ones(7, 4, dtype=torch.bool))
    torch.testing.assert_close(bounded(*windows).rewards, torch.tanh(free(*windows).rewards))
