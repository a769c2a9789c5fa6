"""Values and weights by hand."""

import math

import pytest
import torch

from preferl.functional import (
    advantage_weights,
    cosine_decay,
    expectile_loss,
    expectile_weight,
    gaussian_log_density,
    soft_update,
    td_target,
)


def test_expectiles_count_errors_by_their_sign():
    difference = torch.tensor([-2.0, 0.0, 3.0])
    assert expectile_loss(difference, 0.75).tolist() == [1.0, 0.0, 6.75]
    assert expectile_loss(difference, 0.5).tolist() == [2.0, 0.0, 4.5]
    assert expectile_weight(difference, 0.75).tolist() == [0.25, 0.75, 0.75]


def test_the_gradient_of_an_expectile_is_twice_its_weight_times_the_error():
    difference = torch.tensor([-2.0, 3.0], requires_grad=True)
    expectile_loss(difference, 0.9).sum().backward()
    torch.testing.assert_close(difference.grad, torch.tensor([2 * 0.1 * -2.0, 2 * 0.9 * 3.0]))


@pytest.mark.parametrize("expectile", [0.5, 0.9])
def test_what_an_expectile_settles_on(expectile):
    # Of 0 and 1, half each: τ (1 - v) = (1 - τ) v.
    value = torch.zeros((), requires_grad=True)
    optimiser = torch.optim.SGD([value], lr=0.3)
    for _ in range(200):
        optimiser.zero_grad()
        expectile_loss(torch.tensor([0.0, 1.0]) - value, expectile).mean().backward()
        optimiser.step()
    assert value.item() == pytest.approx(expectile, abs=1e-4)


def test_advantages_weigh_exponentially_up_to_a_bound():
    weights = advantage_weights(torch.tensor([-1.0, 0.0, 1.0, 1e9]), 2.0, max_weight=5.0)
    torch.testing.assert_close(weights, torch.tensor([math.exp(-2), 1.0, 5.0, 5.0]))
    assert advantage_weights(torch.tensor([-7.0, 7.0]), 0.0).tolist() == [1.0, 1.0]


def test_td_targets_by_hand():
    rewards, continues, values = torch.tensor([[1.0, 1.0], [2.0, 0.0], [10.0, 10.0]])
    assert td_target(rewards, continues, values, 0.5).tolist() == [11.0, 1.0]


def test_densities_are_those_of_torch(rng):
    actions, mean = torch.from_numpy(rng.normal(size=(2, 5, 3)))
    log_std = torch.tensor([-1.0, 0.0, 0.5], dtype=torch.float64)
    expected = torch.distributions.Normal(mean, log_std.exp()).log_prob(actions).sum(-1)
    torch.testing.assert_close(gaussian_log_density(actions, mean, log_std), expected)


def test_targets_follow_in_place():
    target = torch.tensor([0.0, 10.0])
    assert soft_update(target, torch.tensor([10.0, 0.0]), 0.1) is target
    torch.testing.assert_close(target, torch.tensor([1.0, 9.0]))


def test_half_a_cosine():
    assert cosine_decay(25, 100) == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert cosine_decay(200, 100) == 0.0  # beyond the plan
