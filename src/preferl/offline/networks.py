"""Many perceptrons of the same shape as one batched computation, and their optimiser."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, final

import torch
from torch import Tensor
from torch.optim.adam import adam

from preferl.training.configs import Precision

update = partial(adam, fused=True, amsgrad=False, maximize=False, weight_decay=0.0)


@final
class Networks:
    """`N` perceptrons of the same sizes, with ReLU between their layers, and their optimiser Adam.

    A lower precision applies only to the products between hidden layers, which are nearly all of
    the arithmetic. Everything else, and the parameters, keep 32 bits. Adam (Kingma and Ba 2015;
    betas 0.9 and 0.999, epsilon 1e-8) treats each number separately, so no network's updates depend
    on another network.

    The last layer is transposed: its weights are `[N, out, in]` and its outputs `[N, out, B]`. It
    has few outputs, and products with few columns are far slower than products with few rows.
    `parameters` are `weight_0` `[N, in, out]`, `bias_0` `[N, 1, out]` and so on, and `extra`.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        count: int,
        *,
        precision: Precision,
        device: torch.device | str,
        extra: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        """Make `count` networks with parameters of 0. Each has `extra` further parameters."""
        self.count = count
        self._last = len(sizes) - 2
        self._low = precision == "bfloat16"
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (fan_in, out) in enumerate(pairwise(sizes)):
            last = layer == self._last
            shapes[f"weight_{layer}"] = (count, out, fan_in) if last else (count, fan_in, out)
            shapes[f"bias_{layer}"] = (count, out, 1) if last else (count, 1, out)
        self.parameters = {
            name: torch.zeros(shape, device=device, requires_grad=True)
            for name, shape in (shapes | dict(extra or {})).items()
        }
        self._trained = list(self.parameters.values())
        self._moments, self._squares = (
            [torch.zeros_like(tensor, requires_grad=False) for tensor in self._trained]
            for _ in range(2)
        )
        self._updates = [torch.zeros((), device=device) for _ in self._trained]

    @torch.no_grad()
    def initialise(self, network: int, generator: torch.Generator) -> None:
        """Initialise one network: all weights are orthogonal with gain √2, biases are 0."""
        for name, tensor in self.parameters.items():
            if name.startswith("weight"):
                drawn = torch.empty(tensor.shape[1:])  # its transpose is orthogonal, too
                torch.nn.init.orthogonal_(drawn, 2**0.5, generator=generator)
                tensor[network].copy_(drawn)

    def layers(self, network: int) -> dict[str, Tensor]:
        """Return copies of one network's weights `[out, in]` and biases `[out]`, as in torch."""
        copies = {}
        for layer in range(self._last + 1):
            weight, bias = (part[network].detach() for part in self._layer(layer))
            weight = weight if layer == self._last else weight.mT
            copies[f"weight_{layer}"] = weight.cpu().contiguous().clone()
            copies[f"bias_{layer}"] = bias.flatten().cpu().clone()
        return copies

    def forward(self, inputs: Tensor, dropout: Sequence[Tensor] | None = None) -> Tensor:
        """Map `[N, B, in]` to `[N, out, B]`, with dropout factors `[N, B, units]` per hidden layer.

        Factors are 0 where a unit is dropped and `1 / (1 - share)` elsewhere.
        """
        below = inputs
        for layer in range(self._last):
            weight, bias = self._layer(layer)
            if self._low and layer:
                below = torch.bmm(below.bfloat16(), weight.bfloat16()) + bias
            else:
                below = torch.baddbmm(bias, below, weight)
            below = below.relu_()
            if dropout is not None:
                below = below * dropout[layer]
        weight, bias = self._layer(self._last)
        if weight.shape[1] == 1:  # here, sums and their gradients are twice as fast as products
            return ((below * weight).sum(2, keepdim=True) + bias).mT
        if below.requires_grad:  # otherwise its gradient's products would be transposed, and slow
            below.register_hook(Tensor.contiguous)
        return torch.bmm(weight, below.mT) + bias

    def descend(self, loss: Tensor, rate: float | Tensor) -> None:
        """Make one step of Adam along the gradient of a loss `[...]`, summed over its entries."""
        # Gradients are contiguous, since the fused update reads them in memory order.
        gradients = [g.contiguous() for g in torch.autograd.grad(loss.sum(), self._trained)]
        state: Any = (self._moments, self._squares, [], self._updates)
        update(self._trained, gradients, *state, lr=rate, beta1=0.9, beta2=0.999, eps=1e-8)

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that training changes, by name."""
        kinds = ("values", "moments", "squares", "updates")
        groups = (self._trained, self._moments, self._squares, self._updates)
        return {
            f"{kind}.{name}": tensor.detach()
            for kind, tensors in zip(kinds, groups, strict=True)
            for name, tensor in zip(self.parameters, tensors, strict=True)
        }

    def _layer(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.parameters[f"weight_{layer}"], self.parameters[f"bias_{layer}"]
