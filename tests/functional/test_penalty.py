"""The power sum of parameters, by hand, with its gradient."""

import pytest
import torch

from preferl.functional.penalty import power_sum


@pytest.mark.parametrize(("norm", "expected"), [(1, 6.0), (2, 14.0), (3, 36.0), (1.5, 9.0245787)])
def test_sums_by_hand(norm, expected):
    weights = [torch.tensor([[1.0, -2.0]]), torch.tensor([3.0]), torch.zeros(2)]
    assert power_sum(weights, norm).item() == pytest.approx(expected)  # 1 + 2^1.5 + 3^1.5


@pytest.mark.parametrize(
    ("norm", "expected"), [(1, [1, -1, 0]), (2, [4, -6, 0]), (3, [12, -27, 0]), (4, [32, -108, 0])]
)
def test_gradients_by_hand(norm, expected):
    weights = torch.tensor([2.0, -3.0, 0.0], requires_grad=True)
    power_sum([weights], norm).backward()
    torch.testing.assert_close(weights.grad, torch.tensor(expected, dtype=torch.float32))
