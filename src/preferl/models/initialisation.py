"""Initial weights that only depend on a generator."""

import math

import torch
from torch import Tensor, nn

CUT = 0.87962566103423978
"""Deviation of a standard normal cut off at two deviations."""


def lecun_normal_(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Fill `[out, in]` with normal numbers of variance `1 / in`, cut off at two deviations.

    LeCun et al. (1998), "Efficient BackProp", section 4.6.

    >>> weight = lecun_normal_(torch.empty(100, 400), torch.Generator().manual_seed(0))
    >>> round(float(weight.std()) * 20, 1)
    1.0
    """
    bound = math.sqrt(1 / weight.shape[1]) / CUT
    return nn.init.trunc_normal_(weight, 0.0, bound, -2 * bound, 2 * bound, generator=generator)


def lecun_linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer with `lecun_normal_` weights and biases of zero."""
    # Made without numbers, so that nothing is drawn from the global stream.
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    with torch.no_grad():
        lecun_normal_(layer.weight, generator)
        layer.bias.zero_()
    return layer
