"""The reward while acting is what `judge` gives the last step, however little is computed."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.models import (
    EnsembleConfig,
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
from preferl.training import RewardFunction

SEEN = spaces.Box(-1, 1, (3,), np.float32)
DONE = spaces.Discrete(4)
SMALL = {"width": 16, "heads": 2, "preference_width": 8, "context": 7}
PT = PreferenceTransformerConfig(**SMALL)
MODELS = {
    "mlp": MLPRewardConfig(hidden=(8,), members=2),
    "lstm": LSTMRewardConfig(width=8, context=7),
    "pt": PT,
    "plain": PreferenceTransformerConfig(**SMALL, head="plain"),
    "deep": PreferenceTransformerConfig(**SMALL, layers=3),
    "longer": PreferenceTransformerConfig(**SMALL, positions=12),
    "ensemble": EnsembleConfig((PT, LSTMRewardConfig(width=32, context=7), PT)),
}


def windows(rng: np.random.Generator, steps: int, real: list[int]):
    observations = rng.uniform(-1, 1, (len(real), steps, 3)).astype(np.float32)
    actions = rng.integers(0, 4, (len(real), steps))
    mask = np.arange(steps) >= steps - np.array(real)[:, None]
    return observations, actions, mask


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("real", [[7] * 5, [7, 3, 1, 7, 6], [7]], ids=["full", "some", "one"])
def test_the_last_reward_is_that_of_judging_all(kind, real, rng):
    model = build_reward_model(MODELS[kind], SEEN, DONE, seed=0).eval()
    if kind == "mlp":
        real = [1] * len(real)
    observations, actions, mask = windows(rng, model.context, real)
    with torch.no_grad():
        judged = model(torch.tensor(observations), torch.tensor(actions), torch.tensor(mask))
        expected = judged.rewards[..., -1]
        features = model.encoder(torch.tensor(observations), torch.tensor(actions))
        got = model.last_rewards()(features, mask)
    assert len(real) == 1 or expected.std(dim=1).min() > 1e-4
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=2e-6)
    rewards = RewardFunction(model)(observations, actions, mask)
    np.testing.assert_allclose(rewards, expected.mean(0), rtol=1e-4, atol=2e-6)


def test_windows_shorter_than_the_context(rng):
    model = build_reward_model(PT, SEEN, DONE, seed=0).eval()
    observations, actions, mask = windows(rng, 4, [4, 2])
    longer = [np.concatenate([np.repeat(a[:, :1], 3, 1), a], 1) for a in (observations, actions)]
    padded = np.concatenate([np.zeros((2, 3), bool), mask], axis=1)
    reward = RewardFunction(model)
    np.testing.assert_allclose(
        reward(observations, actions, mask), reward(*longer, padded), atol=1e-6
    )
