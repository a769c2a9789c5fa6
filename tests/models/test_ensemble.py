"""Members of any kind behind one model: fused where they are alike, never changed by it."""

from dataclasses import replace

import pytest
import torch
from gymnasium import spaces

from preferl.errors import ConfigError, SpaceError
from preferl.models import Ensemble, MLPReward, MLPRewardConfig
from preferl.testing import FadingModel, check_reward_model
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE

OBSERVATIONS = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Discrete(2)
SMALL = MLPRewardConfig(hidden=(8,))


def mlp(seed, config=SMALL, **changes):
    return MLPReward(OBSERVATIONS, ACTIONS, replace(config, **changes), seed=seed)


def windows():
    generator = torch.Generator().manual_seed(1)
    observations = torch.randn(6, 4, 3, generator=generator)
    mask = torch.arange(4) >= torch.arange(6)[:, None] % 4
    return observations, torch.randint(2, (6, 4), generator=generator), mask


def test_alike_members_are_fused_in_the_order_of_the_first_of_each_kind():
    models = [mlp(0), FadingModel(OBSERVATIONS, ACTIONS), mlp(1, members=2), mlp(2, pooling="mean")]
    expected = [models[i](*windows()) for i in (0, 2, 1, 3)]
    ensemble = Ensemble(models)
    assert [part.members for part in ensemble.models] == [3, 2, 1]
    assert all(part.encoder is ensemble.encoder for part in ensemble.models)
    output = ensemble(*windows())
    torch.testing.assert_close(output.rewards, torch.cat([part.rewards for part in expected]))
    torch.testing.assert_close(output.scores, torch.cat([part.scores for part in expected]))
    check_reward_model(ensemble)


def test_ensembles_of_ensembles_are_one():
    nested = Ensemble([Ensemble([mlp(0), mlp(1, hidden=(4,))]), mlp(2)])
    flat = Ensemble([mlp(0), mlp(1, hidden=(4,)), mlp(2)])
    torch.testing.assert_close(nested(*windows()).rewards, flat(*windows()).rewards)
    assert [part.members for part in nested.models] == [2, 1]


def test_what_cannot_be_joined_is_refused():
    with pytest.raises(ConfigError, match="at least one model"):
        Ensemble([])
    other = MLPReward(OBSERVATIONS, spaces.Discrete(3), SMALL, seed=0)
    with pytest.raises(SpaceError, match=r"Discrete\(2\).*Discrete\(3\)"):
        Ensemble([mlp(0), other])


@pytest.mark.parametrize("changes", [{"normalise": False}, {"use_actions": False}])
def test_members_that_encode_steps_differently_are_refused(changes):
    with pytest.raises(ConfigError, match="encoders of an ensemble's members"):
        Ensemble([mlp(0), mlp(1, **changes)])


def test_members_leave_out_windows_that_nobody_asks_them_about():
    config = MLPRewardConfig((8,), members=3, bounded=True, pooling="mean")
    model = Ensemble([MLPReward(POINT_SPACE, PUSH_SPACE, config, seed=0)])
    features = torch.randn(200, 10, model.encoder.size)
    mask = torch.arange(10) >= torch.randint(5, (200, 1))
    asked = torch.rand(3, 200) < 0.4
    expected = model.judge(features, mask).scores
    scores = model.scores_where(features, mask, asked)
    assert torch.equal(scores[asked], expected[asked])
    assert (scores[~asked] == 0).all()
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(scores[asked].sum(), parameters)
    for gradient, other in zip(
        gradients, torch.autograd.grad(expected[asked].sum(), parameters), strict=True
    ):
        torch.testing.assert_close(gradient, other)
