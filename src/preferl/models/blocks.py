"""Parts that several networks share."""

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

# The input of these is not needed for their gradient, so it makes room for their output: there is
# a third less memory to fill, which is what the time of small layers goes to.
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


@final
class Perceptrons(nn.Module):
    """`E` alike perceptrons on the same input, computed together.

    Attributes:
        weights: one `[E, in, out]` per layer.
        biases: one `[E, 1, out]` per layer.
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
        """Initialise every member as `nn.Linear` would, from `generator`.

        Args:
            sizes: features, hidden units of each layer, outputs.
            members: `E`.
            activation: between layers.
            dropout: share of hidden units dropped in training, drawn for each member.
            generator: where the weights come from.
        """
        super().__init__()
        self.activation: Activation = activation
        self.dropout = dropout
        layers = list(pairwise(sizes))
        self.weights = nn.ParameterList(
            _uniform((members, fan_in, out), fan_in, generator) for fan_in, out in layers
        )
        self.biases = nn.ParameterList(
            _uniform((members, 1, out), fan_in, generator) for fan_in, out in layers
        )

    def forward(self, features: Tensor) -> Tensor:
        """`[R, in]` to `[E, R, out]`."""
        return self.through(features, self.layers())

    def layers(self) -> list[Tensor]:
        """Weights and biases in turn; to walk through them costs what a few rows' products do."""
        return [p for layer in zip(self.weights, self.biases, strict=True) for p in layer]

    def through(self, features: Tensor, layers: Sequence[Tensor]) -> Tensor:
        """`[R, in]` to `[E, R, out]` by `layers` that were taken before."""
        members = len(layers[0])
        if members > 1 and features.is_cpu and len(features) >= MANY_ROWS:
            each = zip(*(layer.unbind() for layer in layers), strict=True)
            return torch.stack([self._through(features, torch.addmm, *own) for own in each])
        shared = features.expand(members, *features.shape)  # [E, R, in]
        return self._through(shared, torch.baddbmm, *layers)

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


def _uniform(shape: Sequence[int], fan_in: int, generator: torch.Generator) -> nn.Parameter:
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound, generator=generator))


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
