"""What a preference transformer looks at, from rewards and ensembles of them."""

import numpy as np
import pytest
import torch

from preferl.evaluation.summary import preference_attention
from preferl.models import (
    Ensemble,
    MLPReward,
    PreferenceTransformer,
    PreferenceTransformerConfig,
)
from preferl.testing import make_episodes
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import RewardFunction

SMALL = PreferenceTransformerConfig(width=8, heads=2, preference_width=8, context=5)


def transformer(seed: int, **changes) -> PreferenceTransformer:
    config = PreferenceTransformerConfig(**{**vars(SMALL), **changes})
    return PreferenceTransformer(POINT_SPACE, PUSH_SPACE, config, seed=seed)


@pytest.fixture
def episodes(rng):
    return make_episodes(rng, [9])


def test_shares_are_those_of_the_model(episodes):
    model = transformer(0)
    looked = preference_attention(RewardFunction(model), episodes, slice(2, 7))
    features = model.encoder(
        torch.from_numpy(episodes.observations[2:7]).float(),
        torch.from_numpy(episodes.actions[2:7]).float(),
    )
    with torch.no_grad():
        maps = model.eval().attention(features[None], torch.ones(1, 5, dtype=torch.bool))
    np.testing.assert_allclose(looked, maps.preference[0].numpy(), atol=1e-6)
    np.testing.assert_allclose(looked.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(looked.mean(0), maps.importance[0].numpy(), atol=1e-6)


def test_members_are_averaged(episodes):
    one, two = transformer(0), transformer(1)
    each = [preference_attention(RewardFunction(m), episodes, slice(0, 5)) for m in (one, two)]
    both = preference_attention(RewardFunction(Ensemble([one, two])), episodes, slice(0, 5))
    np.testing.assert_allclose(both, (each[0] + each[1]) / 2, atol=1e-6)


def test_other_rewards_have_none(episodes):
    plain = RewardFunction(transformer(0, head="plain"))
    assert preference_attention(plain, episodes, slice(0, 5)) is None
    markovian = RewardFunction(MLPReward(POINT_SPACE, PUSH_SPACE, seed=0))
    assert preference_attention(markovian, episodes, slice(0, 1)) is None
