"""The parameters of one optimiser as views of one flat buffer."""

import math
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor
from torch.optim.adam import adam

from preferl.training.precision import Precision

ALIGNMENT = 16
"""Numbers between the beginnings of two tensors are a multiple of this: a cache line."""


@final
class Parameters:
    """Named tensors in one flat buffer, so that what is done to all of them is one call.

    Attributes:
        values: `[n]` flat; the room between tensors stays 0.
        named: views of the values.
        low_values: a copy in lower precision, or None; `refresh` brings it up to date.
        low: views of the copy, or nothing.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        device: torch.device | str,
        *,
        precision: Precision = "float32",
    ) -> None:
        """Zeros of these shapes, and room for a copy if the precision is not 32 bits."""
        self._shapes = dict(shapes)
        room = sum(_room(shape) for shape in shapes.values())
        self.values = torch.zeros(room, device=device)
        self.named = self.views(self.values)
        self.low_values = None if precision == "float32" else self.values.to(torch.bfloat16)
        self.low = {} if self.low_values is None else self.views(self.low_values)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The tensors within a flat buffer laid out like this one."""
        views, begin = {}, 0
        for name, shape in self._shapes.items():
            views[name] = flat[begin : begin + math.prod(shape)].view(shape)
            begin += _room(shape)
        return views

    def refresh(self) -> None:
        """Copy the values to their lower precision, if there is one."""
        if self.low_values is not None:
            self.low_values.copy_(self.values)


@final
class Adam:
    """Adam (Kingma and Ba 2015; betas 0.9 and 0.999, epsilon 1e-8) on a flat buffer.

    It works number by number, so what one agent learns does not depend on the others in the
    buffer.

    Attributes:
        gradients: views to write gradients to; they are not cleared between steps.
        tensors: what a state must hold for training to go on exactly, by name.
    """

    def __init__(self, parameters: Parameters) -> None:
        """Moments of 0."""
        self._parameters = parameters
        self._gradients, self._moments, self._squares = (
            torch.zeros_like(parameters.values) for _ in range(3)
        )
        self._updates = torch.zeros((), device=parameters.values.device)
        self.gradients = parameters.views(self._gradients)
        self.tensors = {
            "values": parameters.values,
            "moments": self._moments,
            "squares": self._squares,
            "updates": self._updates,
        }

    def step(self, rate: float) -> None:
        """One step along the gradients."""
        adam(
            [self._parameters.values],
            [self._gradients],
            [self._moments],
            [self._squares],
            [],
            [self._updates],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
        self._parameters.refresh()


def _room(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // ALIGNMENT) * ALIGNMENT
