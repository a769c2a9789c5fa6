"""Measures of weight penalties: one number for all parameters of a model, 0 if all are 0."""

from collections.abc import Iterable

import torch
from torch import Tensor


def power_sum(parameters: Iterable[Tensor], norm: float = 2) -> Tensor:
    """`Σ|w|^p` over all numbers in all parameters, for any `norm` `p` of at least 1.

    For lower powers, the gradient has no limit at 0, where many parameters begin.

    >>> power_sum([torch.tensor([1.0, -2.0]), torch.tensor([3.0])], norm=3).item()
    36.0
    """

    def power(weights: Tensor) -> Tensor:
        return weights.square() if norm == 2 else weights.abs() ** norm

    return torch.stack([power(weights).sum() for weights in parameters]).sum()
