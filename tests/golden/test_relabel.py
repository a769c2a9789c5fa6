"""Whole episodes relabelled as the published implementation does."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.data import Episodes
from preferl.data.windows import window_indices
from preferl.models import (
    LSTMReward,
    LSTMRewardConfig,
    MLPReward,
    MLPRewardConfig,
    PreferenceTransformer,
    PreferenceTransformerConfig,
    load_flax,
)
from preferl.training import RewardFunction, relabel

SEEN = 6
OBSERVATIONS = spaces.Box(-np.inf, np.inf, (5,))
ACTIONS = spaces.Box(-1, 1, (2,))


@pytest.fixture
def folder(shared):
    return shared / "golden" / "preference_transformer"


@pytest.fixture
def golden(folder):
    return dict(np.load(folder / "relabel.npz"))


@pytest.fixture
def episodes(golden):
    ends = np.flatnonzero(golden["out:dones_float"])
    return Episodes(
        observations=golden["in:observations"],
        actions=golden["in:actions_clipped"],
        rewards=np.zeros(len(golden["in:actions"])),
        terminated=golden["in:terminals"],
        final_observations=golden["in:next_observations"][ends],
        lengths=golden["in:traj_lens"],
    )


def filled(model, file):
    arrays = np.load(file)
    load_flax(model, {name: arrays[name] for name in arrays.files if name.startswith("param:")})
    return model.eval()


@pytest.fixture
def nmr(folder):
    config = LSTMRewardConfig(width=64, context=SEEN, normalise=False)
    return filled(LSTMReward(OBSERVATIONS, ACTIONS, config, seed=0), folder / "nmr_small.npz")


@pytest.fixture
def transformer(folder):
    config = PreferenceTransformerConfig(
        64, layers=2, preference_width=48, context=SEEN, positions=60, normalise=False
    )
    model = PreferenceTransformer(OBSERVATIONS, ACTIONS, config, seed=0)
    return filled(model, folder / "pt_small_ws.npz")


def windows_of(model, episodes):
    """Features `[T, H, F]` and mask `[T, H]` of the window that ends at each step."""
    rows, mask = window_indices(episodes.start_of_step, SEEN)
    features = model.encoder(
        torch.from_numpy(episodes.observations), torch.from_numpy(episodes.actions)
    )
    return features[torch.from_numpy(rows)], torch.from_numpy(mask)


def test_markovian(golden, episodes, folder):
    config = MLPRewardConfig((64, 32), activation="relu", normalise=False)
    model = filled(MLPReward(OBSERVATIONS, ACTIONS, config, seed=0), folder / "mr_small.npz")
    rewards = relabel(episodes, RewardFunction(model)).rewards
    np.testing.assert_allclose(rewards, golden["out:mr"], atol=1e-5)


def test_history_of_zeros_as_the_original_feeds_it(golden, episodes, nmr):
    rows, mask = window_indices(episodes.start_of_step, SEEN)
    observations, actions = (
        torch.from_numpy(np.where(mask[..., None], array[rows], np.float32(0)))
        for array in (episodes.observations, episodes.actions)
    )
    with torch.no_grad():
        rewards = nmr(observations, actions, torch.ones(rows.shape, dtype=torch.bool)).rewards
    np.testing.assert_allclose(rewards[0, :, -1], golden["out:nmr_seq6_last"], atol=1e-5)


def test_rewards_of_a_full_history_are_those_of_the_original(golden, episodes, nmr):
    rewards = relabel(episodes, RewardFunction(nmr)).rewards
    full = window_indices(episodes.start_of_step, SEEN)[1].all(1)
    expected = golden["out:nmr_seq6_last"]
    np.testing.assert_allclose(rewards[full], expected[full], atol=1e-5)
    assert not np.allclose(rewards[~full], expected[~full], atol=1e-3)  # ours sees no padding


def test_transformer(golden, episodes, transformer):
    rewards = relabel(episodes, RewardFunction(transformer)).rewards
    np.testing.assert_allclose(rewards, golden["out:pt_seq6_last_diff0"], atol=1e-5)


def test_transformer_by_other_statistics_of_a_window(golden, episodes, transformer):
    features, mask = windows_of(transformer, episodes)
    with torch.no_grad():
        rewards = transformer.judge(features, mask).rewards[0] * mask
    mean = rewards.sum(1) / mask.sum(1)
    np.testing.assert_allclose(mean, golden["out:pt_seq6_mean_diff0"], atol=1e-5)
    # What the original calls a difference: from the step before, and of two sums.
    last = rewards[:, -1] - rewards[:, -2]
    np.testing.assert_allclose(last, golden["out:pt_seq6_last_diff1"], atol=1e-5)
    sums = rewards.sum(1) - rewards[:, :-1].sum(1)
    np.testing.assert_allclose(sums, golden["out:pt_seq6_mean_diff1"], atol=1e-5)


def test_transformer_looks_where_the_original_does(golden, episodes, transformer):
    features, mask = windows_of(transformer, episodes)
    expected = golden["out:pt_seq6_pref_attn_first_batch"][:, 0]
    count = len(expected)
    shares = transformer.attention(features[:count], mask[:count]).preference
    real = mask[:count].numpy()
    np.testing.assert_allclose(shares[real], expected[real], atol=1e-5)
