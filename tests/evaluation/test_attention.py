"""What a preference transformer looks at, from rewards and ensembles of them, and the section."""

import numpy as np
import pytest
import torch

from preferl.evaluation.attention import attention_section, best_window, preference_attention
from preferl.evaluation.filming import FilmedEpisode
from preferl.models import Ensemble, MLPReward, PreferenceTransformer, PreferenceTransformerConfig
from preferl.testing import make_episodes
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import RewardFunction

SMALL = PreferenceTransformerConfig(width=8, heads=2, preference_width=8, context=5)


def transformer(seed, **changes):
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
    one = transformer(0)
    two = transformer(1)
    each = [preference_attention(RewardFunction(m), episodes, slice(0, 5)) for m in (one, two)]
    both = preference_attention(RewardFunction(Ensemble([one, two])), episodes, slice(0, 5))
    np.testing.assert_allclose(both, (each[0] + each[1]) / 2, atol=1e-6)


def test_other_rewards_have_none(episodes):
    plain = RewardFunction(transformer(0, head="plain"))
    assert preference_attention(plain, episodes, slice(0, 5)) is None
    markovian = RewardFunction(MLPReward(POINT_SPACE, PUSH_SPACE, seed=0))
    assert preference_attention(markovian, episodes, slice(0, 1)) is None


def test_the_best_window():
    rewards = np.array([3.0, 0, 1, 4, 1, 0])
    assert best_window(rewards, 3) == slice(2, 5)
    assert best_window(rewards, 1) == slice(3, 4)
    assert best_window(rewards, 9) == slice(0, 6)


def test_the_section_is_about_the_segment_with_the_highest_reward(episodes):
    reward = RewardFunction(transformer(0))
    rows = best_window(reward.combine(reward.member_rewards(episodes)), 5)
    importance = preference_attention(reward, episodes, rows).mean(0)
    section = attention_section(reward, FilmedEpisode(episodes, None, 30))
    assert f"steps {rows.start} to {rows.stop - 1}" in section.text[0]
    assert (
        f"the largest is that of step {rows.start + importance.argmax()}" in section.figures[0].alt
    )
    assert section.clips == ()
    frames = np.zeros((9, 16, 16, 3), np.uint8)
    (clip,) = attention_section(reward, FilmedEpisode(episodes, frames, 30)).clips
    assert clip.alt == f"Pictures of steps {rows.start} to {rows.stop - 1}."
