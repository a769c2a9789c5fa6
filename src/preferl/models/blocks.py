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

# The gradient of these does not need their input, so it makes room for their output: there is a
# third less memory to fill, which takes most of the time of small layers.
IN_PLACE: dict[Activation, Callable[[Tensor], Tensor]] = ACTIVATIONS | {
    "relu": torch.relu_,
    "leaky_relu": F.leaky_relu_,
    "tanh": torch.tanh_,
}

MANY_ROWS = 1024
"""Rows from which a processor is faster with one product after another than with batched ones,
since what a member works on then stays in its cache. With fewer, it is calls that cost."""

CUT = 0.87962566103423978
"""Deviation of a standard normal cut off at two deviations."""

STEPS = 1 << 16
"""Dropout shares are rounded to one in so many: a decision takes two bytes of a random number."""


@final
class Perceptrons(nn.Module):
    """`E` alike perceptrons on the same input, computed together; `sizes` has units of all layers.

    Weights `[E, in, out]` and biases `[E, 1, out]` are distributed as those of `nn.Linear`; dropout
    is drawn for each member.
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
        """`[R, in]` to `[E, R, out]`."""
        return self.through(features, self.layers())

    def layers(self) -> list[Tensor]:
        """Weights and biases in turn; to walk through them costs what a few rows' products do."""
        return [p for layer in zip(self.weights, self.biases, strict=True) for p in layer]

    def through(self, features: Tensor, layers: Sequence[Tensor]) -> Tensor:
        """`[R, in]` to `[E, R, out]` by `layers` that were taken before."""
        if self.computes_in_turn(features):
            members = zip(*(layer.unbind() for layer in layers), strict=True)
            return torch.stack([self._through(features, torch.addmm, *own) for own in members])
        shared = features.expand(len(layers[0]), *features.shape)  # [E, R, in]
        return self._through(shared, torch.baddbmm, *layers)

    def computes_in_turn(self, features: Tensor) -> bool:
        """Whether members are faster one after another on these rows `[R, in]`."""
        return features.is_cpu and len(features) >= MANY_ROWS and len(self.weights[0]) > 1

    def of_member(self, member: int, features: Tensor) -> Tensor:
        """`[R, in]` to `[R, out]` of one member."""
        return self._through(features, torch.addmm, *(layer[member] for layer in self.layers()))

    def _through(
        self, hidden: Tensor, affine: Callable[[Tensor, Tensor, Tensor], Tensor], *layers: Tensor
    ) -> Tensor:
        """One member's layers on `[R, in]`, or those of all members on `[E, R, in]`."""
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
    """A linear layer with `lecun_normal_` weights and biases of zero."""
    # Made without numbers, so that nothing is drawn from the global stream.
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    with torch.no_grad():
        lecun_normal_(layer.weight, generator)
        layer.bias.zero_()
    return layer


def drop(numbers: Tensor, share: float, training: bool) -> tuple[Tensor, float]:
    """Set a share of numbers to 0 (Srivastava et al. 2014); in training only.

    The scale that is returned has still to be applied to keep their mean: callers join it with what
    comes next.
    """
    if not training or not share:
        return numbers, 1.0
    if not numbers.is_cpu or torch.compiler.is_compiling():
        return F.dropout(numbers, share), 1.0
    return numbers * kept(numbers, share), 1 / (1 - share)


def kept(like: Tensor, share: float) -> Tensor:
    """Ones of the shape, type and device of `like`, and zeros in place of a share of them.

    Eight bytes are drawn at a time, for four decisions: some ten times faster on a processor than
    `bernoulli_`. Bits are from the device's global stream. What it keeps is `kept_share` of all.
    """
    words = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device)
    return _decided(words.random_(-(2**63), None), like, share)


def kept_by_seeds(
    like: Tensor, share: float, seeds: Sequence[int], generator: torch.Generator
) -> Tensor:
    """`kept` of `like` `[S, ...]`, each row from a seed of its own."""
    count = -(-like[0].numel() // 4)
    words = torch.empty(len(seeds), count, dtype=torch.int64, device=like.device)
    for row, seed in zip(words, seeds, strict=True):
        row.random_(-(2**63), None, generator=generator.manual_seed(seed))
    return _decided(words, like, share)


def _decided(words: Tensor, like: Tensor, share: float) -> Tensor:
    """Decisions by random bits, four of each word, as numbers like others."""
    rows = math.prod(words.shape[:-1])
    parts = words.view(torch.int16).view(rows, -1)[:, : like.numel() // rows]
    ones = torch.empty_like(like)
    return torch.ge(parts.reshape(like.shape), round(share * STEPS) - STEPS // 2, out=ones)


def kept_share(share: float) -> float:
    """The share of ones that `kept` makes of a share of zeros, once that is rounded.

    >>> kept_share(0.25)
    0.75
    """
    return 1 - round(share * STEPS) / STEPS
