"""The worlds of tests are what they say, by numbers computed by hand."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.errors import ConfigError, SpaceError
from preferl.testing import check_reward_model
from preferl.testing.worlds import FadingModel, PointWorld, linear_reward, sample_steps


def test_the_linear_reward():
    positions = np.array([[1.0, 0.0], [0.0, 2.0]])
    pushes = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert linear_reward(positions, pushes).tolist() == [1.0, -0.25]


def test_a_push_moves_the_point_by_a_fifth_and_never_out():
    env = PointWorld(length=30)
    start, _ = env.reset(seed=3)
    assert (np.abs(start) <= 1).all()
    push = np.array([1.0, -0.5], np.float32)
    seen, reward, *_ = env.step(push)
    np.testing.assert_allclose(seen - start, [0.2, -0.1], atol=1e-6)
    assert reward == pytest.approx(start[0] - start[1] / 2 + 0.375)
    for _ in range(28):
        seen, _, terminated, truncated, _ = env.step(push)
        assert (terminated, truncated) == (False, False)
    np.testing.assert_array_equal(seen, [2.0, -2.0])
    assert env.step(push)[2:4] == (False, True)
    np.testing.assert_array_equal(env.reset(seed=3)[0], start)


def test_a_space_of_another_kind_is_refused(rng):
    with pytest.raises(SpaceError, match=r"space: expected Box, Discrete.*got Text"):
        sample_steps(spaces.Text(5), 3, rng)
    with pytest.raises(SpaceError):
        sample_steps(spaces.Dict(a=spaces.Text(5)), 3, rng)


def test_the_fading_model_keeps_the_contract_and_its_context():
    model = FadingModel(context=3)
    check_reward_model(model)
    with pytest.raises(ConfigError, match="steps: expected 3, got 4"):
        model.judge(torch.zeros(1, 4, 4), torch.ones(1, 4, dtype=torch.bool))
