"""Rewards of tensors are those that episodes get when they are relabelled."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from preferl.errors import DataError, ModelError, SpaceError
from preferl.functional.preference import lower_bound
from preferl.models import (
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
from preferl.online.wrappers.tensor_rewards import TensorRewards
from preferl.shapes import map_observations, take
from preferl.testing import make_episodes
from preferl.training import RewardFunction, relabel

LENGTHS = np.array([[4, 9, 7], [12, 5, 3], [8, 8, 4]])  # of the episodes of three environments
MODELS = {
    "mlp": MLPRewardConfig(hidden=(8,), members=3),
    "nmr": LSTMRewardConfig(width=32, context=6),
    "pt": PreferenceTransformerConfig(width=16, heads=2, preference_width=8, context=6),
}
BOX = Box(-1, 1, (3,))
ACTIONS = Box(-1, 1, (2,))


def reward_of(kind, observations=BOX, actions=ACTIONS, *, seed=0, **how):
    return RewardFunction(build_reward_model(MODELS[kind], observations, actions, seed=seed), **how)


def episodes_of(space, actions):
    """Random episodes, those of one environment after those of another."""
    return make_episodes(np.random.default_rng(0), LENGTHS.ravel(), space, actions)


def as_they_act(rewards, episodes, device="cpu"):
    """`[T]` rewards of the steps of episodes, one call for each step of all environments."""
    rows = np.arange(LENGTHS.sum()).reshape(len(LENGTHS), -1)  # [V, T] of environments alike long
    begins = np.zeros(LENGTHS.sum(), bool)
    begins[np.cumsum(LENGTHS) - LENGTHS.ravel()] = True
    found = np.zeros(rows.shape, np.float32)
    for step in range(rows.shape[1]):
        now = rows[:, step]
        seen = map_observations(torch.from_numpy, take(episodes.observations, now))
        seen = map_observations(lambda part: part.to(device), seen)
        actions, first = (torch.from_numpy(of[now]).to(device) for of in (episodes.actions, begins))
        found[:, step] = rewards(seen, actions, first).cpu().numpy()
    return found.ravel()


ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_GPU)])
@pytest.mark.parametrize("kind", MODELS)
def test_rewards_are_those_of_relabelled_episodes(kind, device):
    episodes = episodes_of(BOX, ACTIONS)
    model = build_reward_model(MODELS[kind], BOX, ACTIONS, seed=0)
    reward = RewardFunction(model, combine=lower_bound(0.5)).scaled(episodes)
    expected = relabel(episodes, reward).rewards
    how = {"combine": lower_bound(0.5), "scaler": reward.scaler}
    moved = RewardFunction(model.to(device), **how)
    found = as_they_act(TensorRewards(moved), episodes, device)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 if device == "cpu" else 1e-3)


def test_observations_may_be_dictionaries_and_actions_numbers():
    space = Dict({"arm": BOX, "goal": Discrete(4)})
    actions = Discrete(3)
    episodes = episodes_of(space, actions)
    reward = reward_of("pt", space, actions)
    found = as_they_act(TensorRewards(reward), episodes)
    np.testing.assert_allclose(found, relabel(episodes, reward).rewards, rtol=0, atol=2e-5)


def test_what_does_not_fit_is_named():
    rewards = TensorRewards(reward_of("mlp"))
    with pytest.raises(SpaceError, match="observations of the environments: expected shape"):
        rewards(torch.zeros(5, 4), torch.zeros(5, 2))
    rewards(torch.zeros(5, 3), torch.zeros(5, 2))
    with pytest.raises(DataError, match="steps: expected 5 environments, as before, got 6"):
        rewards(torch.zeros(6, 3), torch.zeros(6, 2))
    with pytest.raises(
        DataError, match="steps: expected tensors on cpu, the reward's device, got meta"
    ):
        TensorRewards(reward_of("mlp"))(torch.zeros(5, 3), torch.zeros(5, 2, device="meta"))


def test_a_reward_model_by_itself_is_refused():
    rewards = TensorRewards(reward_of("mlp"))
    model = build_reward_model(MODELS["mlp"], BOX, ACTIONS, seed=0)
    for use in (TensorRewards, rewards.set_reward):
        with pytest.raises(ModelError, match=r"got MLPReward.*RewardFunction\(model\)"):
            use(model)
