"""Rewards of whole episodes: the fast way, the plain way, and as they would be while acting."""

import pytest
import torch
from gymnasium import spaces

from preferl.models import (
    Ensemble,
    LSTMReward,
    LSTMRewardConfig,
    MLPReward,
    MLPRewardConfig,
    PreferenceTransformer,
    PreferenceTransformerConfig,
)
from preferl.models.base import trace_windows
from preferl.testing import FadingModel

OBSERVATIONS = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Box(-1, 1, (2,))
SEEN = 6
LENGTHS = [4, 9, 1, 15, SEEN, 7, 1, 40, 2, SEEN - 1]


def lstm(seed=0, **settings):
    config = LSTMRewardConfig(**{"width": 16, "context": SEEN, **settings})
    return trained(LSTMReward(OBSERVATIONS, ACTIONS, config, seed=seed), seed)


def transformer(seed=0, **settings):
    shape = {"width": 16, "heads": 2, "preference_width": 5, "context": SEEN, "positions": 9}
    config = PreferenceTransformerConfig(**{**shape, **settings})
    return trained(PreferenceTransformer(OBSERVATIONS, ACTIONS, config, seed=seed), seed)


def trained(model, seed=0):
    """Every parameter moved away from where it begins, as if by training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    model.encoder.observe(*steps(100))
    return model.eval()


def steps(count, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return (
        2 * torch.randn(count, 3, generator=generator) + 1,
        torch.randn(count, 2, generator=generator),
    )


def features_of(model, lengths):
    return model.encoder(*steps(sum(lengths))), torch.tensor(lengths)


def one_window_at_a_time(model, features, lengths):
    rewards = []
    for episode in features.split(lengths.tolist()):
        for end in range(1, len(episode) + 1):
            window = episode[max(0, end - model.context) : end][None]
            mask = torch.ones(window.shape[:2], dtype=torch.bool)
            rewards.append(model.judge(window, mask).rewards[:, 0, -1])
    return torch.stack(rewards, dim=1)


def mixed():
    shape = PreferenceTransformerConfig(width=16, heads=2, context=SEEN)
    return Ensemble(
        [
            MLPReward(OBSERVATIONS, ACTIONS, MLPRewardConfig((8,), members=2), seed=0),
            LSTMReward(OBSERVATIONS, ACTIONS, LSTMRewardConfig(32, SEEN), seed=1),
            PreferenceTransformer(OBSERVATIONS, ACTIONS, shape, seed=2),
            FadingModel(OBSERVATIONS, ACTIONS, context=SEEN),
        ]
    )


MODELS = {
    "lstm": lstm,
    "lstm of another shape": lambda: lstm(1, activation="tanh", pooling="last", normalise=False),
    "transformer": transformer,
    "plain transformer": lambda: transformer(1, head="plain", heads=4, activation="gelu"),
    "plain transformer of two blocks": lambda: transformer(3, layers=2, head="plain", heads=1),
    "transformer that sees two steps": lambda: transformer(4, context=2, positions=None),
    "model of one's own": lambda: FadingModel(OBSERVATIONS, ACTIONS, context=SEEN),
    "mixed ensemble": lambda: mixed().eval(),
}


@pytest.fixture(params=list(MODELS))
def model(request):
    return MODELS[request.param]()


@pytest.mark.parametrize("lengths", [LENGTHS, [SEEN + 1] * 5, [3, 2]])
def test_each_step_has_the_reward_of_the_window_that_ends_there(model, lengths):
    features, lengths = features_of(model, lengths)
    with torch.no_grad():
        expected = one_window_at_a_time(model, features, lengths)
    assert len(features) < 10 or expected.std(dim=1).min() > 1e-3
    traced = model.trace(features, lengths)
    assert traced.shape == expected.shape == (model.members, int(lengths.sum()))
    torch.testing.assert_close(traced, expected, atol=1e-5, rtol=1e-5)
    plain = trace_windows(model, features, lengths, torch.arange(len(features)))
    torch.testing.assert_close(plain, expected, atol=1e-5, rtol=1e-5)
