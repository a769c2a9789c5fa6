"""Hidden layers that predict the next step's: they learn a rule, but no order that is random."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.data import Episodes
from preferl.errors import DataError, ModelError
from preferl.models import LSTMReward, MLPReward, MLPRewardConfig
from preferl.training import predict_next_steps

PLANE = spaces.Box(-1, 1, (2,))
CONFIG = MLPRewardConfig((16,), members=2, activation="tanh", use_actions=False)


def circling(lengths):
    """Episodes that go round a circle by a radian a step, each from an angle of its own."""
    rng = np.random.default_rng(0)
    first = rng.uniform(0, 2 * np.pi, len(lengths))
    angles = np.concatenate([begin + np.arange(n) for begin, n in zip(first, lengths, strict=True)])
    places = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    count = len(angles)
    return Episodes(
        places, places, np.zeros(count), np.zeros(count, bool), places[: len(lengths)],
        np.array(lengths),
    )  # fmt: skip


def last_loss(episodes):
    model = MLPReward(PLANE, PLANE, CONFIG, seed=0)
    before = model.networks(torch.zeros(1, 2)).detach().clone()
    losses = predict_next_steps(model, episodes, seed=0, updates=150, learning_rate=1e-2)
    assert losses.shape == (150,)
    assert not torch.equal(model.networks(torch.zeros(1, 2)), before)
    return float(losses[-10:].mean())


def test_next_steps_are_predicted_where_they_follow_from_these():
    episodes = circling([40] * 5)
    order = np.random.default_rng(0).permutation(200)
    shuffled = Episodes(
        episodes.observations[order], episodes.actions, episodes.rewards, episodes.terminated,
        episodes.final_observations, episodes.lengths,
    )  # fmt: skip
    assert last_loss(episodes) < -0.99
    assert last_loss(shuffled) > last_loss(episodes) + 0.05


def test_what_cannot_be_learned_from_is_refused():
    model = MLPReward(PLANE, PLANE, CONFIG, seed=0)
    with pytest.raises(DataError, match="of two steps or more"):
        predict_next_steps(model, circling([1, 1, 1]), seed=0)
    with pytest.raises(ModelError, match="MLPReward with hidden layers"):
        predict_next_steps(LSTMReward(PLANE, PLANE, seed=0), circling([9]), seed=0)
