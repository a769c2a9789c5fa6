"""Step rewards to scores, by hand."""

import pytest
import torch

from preferl.functional import pool

REWARDS = torch.tensor([[[1.0, 2.0, 3.0], [9.0, 4.0, 6.0]], [[0.0, -1.0, 1.0], [7.0, 1.0, 1.0]]])
MASK = torch.tensor([[True, True, True], [False, True, True]])


@pytest.mark.parametrize(
    ("pooling", "discount", "expected"),
    [
        ("sum", 1.0, [[6.0, 10.0], [0.0, 2.0]]),
        ("mean", 1.0, [[2.0, 5.0], [0.0, 1.0]]),
        ("sum", 0.5, [[2.75, 7.0], [-0.25, 1.5]]),  # the first real step weighs 1
        ("mean", 0.5, [[2.75 / 1.75, 7 / 1.5], [-0.25 / 1.75, 1.0]]),
    ],
)
def test_scores_by_hand(pooling, discount, expected):
    torch.testing.assert_close(pool(REWARDS, MASK, pooling, discount), torch.tensor(expected))


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_masked_places_may_hold_anything_and_have_no_gradient(pooling, discount):
    rewards = REWARDS.clone()
    rewards[:, ~MASK] = float("nan")
    rewards.requires_grad_()
    scores = pool(rewards, MASK, pooling, discount)
    torch.testing.assert_close(scores, pool(REWARDS, MASK, pooling, discount))
    scores.sum().backward()
    assert (rewards.grad[:, ~MASK] == 0).all()
    assert (rewards.grad[:, MASK] > 0).all()


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_a_row_without_real_steps_is_worth_nothing(pooling):
    rewards = REWARDS.clone().requires_grad_()
    scores = pool(rewards, torch.zeros_like(MASK), pooling, 0.9)
    scores.sum().backward()
    assert (scores == 0).all()
    assert (rewards.grad == 0).all()


@pytest.mark.parametrize("discount", [1.0, 0.7])
def test_padding_on_the_left_changes_nothing(discount):
    bare = torch.tensor([[1.0, -2.0, 4.0]])
    padded = torch.tensor([[50.0, 50.0, 1.0, -2.0, 4.0]])
    mask = torch.tensor([[False, False, True, True, True]])
    for pooling in ("sum", "mean"):
        torch.testing.assert_close(
            pool(padded, mask, pooling, discount), pool(bare, mask[:, 2:], pooling, discount)
        )
