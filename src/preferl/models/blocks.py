"""Parts that several networks share: activations, perceptrons, initial weights and dropout."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from preferl.models.configs import Activation

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,  # slope 0.01, as in the DRLHP paper
    "tanh": torch.tanh,
    "gelu": F.gelu,
}

# The gradients of these functions do not need their input, so the output overwrites it. That saves
# a third of the memory traffic, which takes most of the time of small layers.
IN_PLACE: dict[Activation, Callable[[Tensor], Tensor]] = ACTIVATIONS | {
    "relu": torch.relu_,
    "leaky_relu": F.leaky_relu_,
    "tanh": torch.tanh_,
}

MANY_ROWS = 1024
"""With this many rows or more, a CPU computes members faster one after another.

A member's numbers then stay in the cache. With fewer rows, batched products are faster, since calls
cost more.
"""

CUT = 0.87962566103423978
"""Standard deviation of a standard normal that is cut off at two standard deviations."""

STEPS = 1 << 16
"""Dropout shares are rounded to multiples of `1 / STEPS`, as a decision takes two random bytes."""


@final
class Perceptrons(nn.Module):
    """`E` perceptrons of the same sizes on the same input, computed together.

    `sizes` holds the units of all layers, including input and output. Weights `[E, in, out]` and
    biases `[E, 1, out]` are distributed as in `nn.Linear`. Each member draws its own dropout.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        members: int,
        *,
        activation: Activation,
        dropout: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.activation: Activation = activation
        self.dropout = dropout

        def uniform(rows: int, fan_in: int, out: int) -> nn.Parameter:
            bound = 1 / math.sqrt(fan_in)
            numbers = torch.empty(members, rows, out)
            return nn.Parameter(numbers.uniform_(-bound, bound, generator=generator))

        layers = list(pairwise(sizes))
        self.weights = nn.ParameterList(uniform(inputs, inputs, out) for inputs, out in layers)
        self.biases = nn.ParameterList(uniform(1, inputs, out) for inputs, out in layers)

    def forward(self, features: Tensor) -> Tensor:
        """Map rows `[R, in]` to `[E, R, out]`."""
        return self.through(features, self.layers())

    def layers(self) -> list[Tensor]:
        """Return weights and biases in turn. Collecting them costs as much as a few rows."""
        return [p for layer in zip(self.weights, self.biases, strict=True) for p in layer]

    def through(self, features: Tensor, layers: Sequence[Tensor]) -> Tensor:
        """Map rows `[R, in]` to `[E, R, out]` by layers that `layers()` returned."""
        if self.computes_in_turn(features):
            return torch.stack(self.in_turn([features] * len(layers[0]), layers))
        shared = features.expand(len(layers[0]), *features.shape)  # [E, R, in]
        return self._through(shared, torch.baddbmm, *layers)

    def computes_in_turn(self, features: Tensor) -> bool:
        """Whether it is faster to compute members one after another on these rows `[R, in]`."""
        return features.is_cpu and len(features) >= MANY_ROWS and len(self.weights[0]) > 1

    def encode(self, features: Tensor) -> Tensor:
        """Map rows `[R, in]` to the units `[E, R, units]` of the last hidden layer."""
        layers = self.layers()[:-2]
        shared = features.expand(len(layers[0]), *features.shape)  # [E, R, in]
        return IN_PLACE[self.activation](self._through(shared, torch.baddbmm, *layers))

    def in_turn(self, features: Sequence[Tensor], layers: Sequence[Tensor]) -> list[Tensor]:
        """Map rows `[R, in]` of each member to `[R, out]`, one member after another."""
        members = zip(*(layer.unbind() for layer in layers), strict=True)
        return [
            self._through(rows, torch.addmm, *member)
            for rows, member in zip(features, members, strict=True)
        ]

    def _through(
        self, hidden: Tensor, affine: Callable[[Tensor, Tensor, Tensor], Tensor], *layers: Tensor
    ) -> Tensor:
        """Apply one member's layers to `[R, in]`, or those of all members to `[E, R, in]`."""
        for index in range(0, len(layers), 2):
            if index:
                hidden = IN_PLACE[self.activation](hidden)
                if self.dropout:
                    hidden = F.dropout(hidden, self.dropout, self.training)
            hidden = affine(layers[index + 1], hidden, layers[index])
        return hidden


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
    """Make a linear layer with `lecun_normal_` weights and biases of zero."""
    # The layer is made without initial values, so that nothing is drawn from the global stream.
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    with torch.no_grad():
        lecun_normal_(layer.weight, generator)
        layer.bias.zero_()
    return layer


def drop(numbers: Tensor, share: float, training: bool) -> tuple[Tensor, float]:
    """Set a share of numbers to 0, in training only (Srivastava et al. 2014).

    Return the numbers and a scale. The caller has to multiply the numbers by the scale to keep
    their mean, and does it in its next operation.
    """
    if not training or not share:
        return numbers, 1.0
    if not numbers.is_cpu or torch.compiler.is_compiling():
        return F.dropout(numbers, share), 1.0
    return numbers * kept(numbers, share), 1 / (1 - share)


def kept(like: Tensor, share: float) -> Tensor:
    """Return a mask like `like` (shape, type, device): zeros for `share` of it, otherwise ones.

    Eight random bytes make four decisions. On a CPU, this is some ten times faster than
    `bernoulli_`. Bits come from the device's global generator. The expected share of ones is
    `kept_share(share)`.
    """
    words = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device)
    return _decided(words.random_(-(2**63), None), like, share)


def kept_by_seeds(
    like: Tensor, share: float, seeds: Sequence[int], generator: torch.Generator
) -> Tensor:
    """Return a mask as `kept` does for `like` `[S, ...]`, with a separate seed for each row."""
    count = -(-like[0].numel() // 4)
    words = torch.empty(len(seeds), count, dtype=torch.int64, device=like.device)
    for row, seed in zip(words, seeds, strict=True):
        row.random_(-(2**63), None, generator=generator.manual_seed(seed))
    return _decided(words, like, share)


def _decided(words: Tensor, like: Tensor, share: float) -> Tensor:
    """Turn random words, four decisions each, into a mask of zeros and ones like `like`."""
    rows = math.prod(words.shape[:-1])
    parts = words.view(torch.int16).view(rows, -1)[:, : like.numel() // rows]
    ones = torch.empty_like(like)
    return torch.ge(parts.reshape(like.shape), round(share * STEPS) - STEPS // 2, out=ones)


def kept_share(share: float) -> float:
    """Return the share of ones in a mask of `kept`, after rounding the share of zeros.

    >>> kept_share(0.25)
    0.75
    """
    return 1 - round(share * STEPS) / STEPS
