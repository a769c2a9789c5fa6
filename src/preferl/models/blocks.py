"""Parts that several networks share."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Literal["relu", "leaky_relu", "tanh", "gelu"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,  # slope 0.01, as in the DRLHP paper
    "tanh": torch.tanh,
    "gelu": F.gelu,
}


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
        activation = ACTIVATIONS[self.activation]
        hidden = features.expand(len(self.weights[0]), *features.shape)
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if index:
                hidden = activation(hidden)
                if self.dropout:
                    hidden = F.dropout(hidden, self.dropout, self.training)
            hidden = torch.baddbmm(bias, hidden, weight)
        return hidden


def _uniform(shape: Sequence[int], fan_in: int, generator: torch.Generator) -> nn.Parameter:
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound, generator=generator))
