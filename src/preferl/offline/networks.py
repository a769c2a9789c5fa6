"""Many alike perceptrons computed together, with their gradients in closed form.

The networks of offline learning are small: most of the time of a step goes to building a graph
and to allocating memory, unless neither is done. Gradients here are written out, every result
goes to a buffer that stays, and matrix products are nearly all that is left.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import final

import torch
from torch import Tensor

from preferl.offline.parameters import Adam, Parameters
from preferl.training.precision import Precision


def layer_shapes(networks: int, sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the parameters of alike perceptrons, layer after layer.

    The last layer is turned: its weights are `[N, out, in]` and its outputs `[N, out, B]`. It has
    few outputs, and products with a few columns are many times slower than with a few rows.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (fan_in, out) in enumerate(pairwise(sizes)):
        last = layer == len(sizes) - 2
        shapes[f"weight_{layer}"] = (networks, out, fan_in) if last else (networks, fan_in, out)
        shapes[f"bias_{layer}"] = (networks, out, 1) if last else (networks, 1, out)
    return shapes


@final
class Record:
    """What one pass leaves behind for the way back, in buffers that are used again and again.

    Attributes:
        inputs: of the latest pass.
        hidden: `[N, B, units]` of each hidden layer, after its activation and dropout.
        output: `[N, out, B]`
        gradients: of the loss by each of `hidden`.
        low, low_gradients: the same two in lower precision, or nothing.
    """

    def __init__(self, networks: int, rows: int, sizes: Sequence[int], like: Parameters) -> None:
        """Room for `networks` perceptrons of these sizes on `rows` rows each."""

        def room(of: Tensor, units: int) -> Tensor:
            return of.new_zeros(networks, rows, units)

        self.inputs = like.values.new_empty(0)
        self.hidden = [room(like.values, units) for units in sizes[1:-1]]
        self.gradients = [room(like.values, units) for units in sizes[1:-1]]
        self.output = like.values.new_zeros(networks, sizes[-1], rows)
        low = [] if like.low_values is None else [like.low_values]
        self.low = [room(of, units) for of in low for units in sizes[1:-1]]
        self.low_gradients = [room(of, units) for of in low for units in sizes[1:-1]]


@final
class Networks:
    """`N` perceptrons of the same sizes, with ReLU between their layers.

    With a lower precision, the products between hidden layers are computed in it, which is where
    nearly all arithmetic is; everything else, and the parameters, keep 32 bits.

    Attributes:
        parameters: those of `layer_shapes`, and `extra`.
        optimiser: of the parameters.
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
        """`count` networks whose parameters are 0, with room for `extra` ones beside them."""
        self._sizes, self._count, self._layers = tuple(sizes), count, len(sizes) - 1
        shapes = layer_shapes(count, sizes) | dict(extra or {})
        self.parameters = Parameters(shapes, device, precision=precision)
        self.optimiser = Adam(self.parameters)
        self._named, self._low = self.parameters.named, self.parameters.low
        self._gradients = self.optimiser.gradients
        self._low_gradients = {
            name: torch.zeros_like(tensor)
            for name, tensor in self._low.items()
            if name.startswith("weight")
        }

    def initialise(self, network: int, generator: torch.Generator) -> None:
        """Fill one network: weights orthogonal with gain √2, the last layer's too; biases 0."""
        for name, tensor in self._named.items():
            if name.startswith("weight"):
                drawn = torch.empty(tensor.shape[1:])  # orthogonal either way round
                torch.nn.init.orthogonal_(drawn, 2**0.5, generator=generator)
                tensor[network].copy_(drawn)
        self.parameters.refresh()

    def layers(self, network: int) -> dict[str, Tensor]:
        """Copies of one network's weights `[out, in]` and biases `[out]`, as is usual."""
        copies = {}
        for layer in range(self._layers):
            weight, bias = (self._named[f"{of}_{layer}"][network] for of in ("weight", "bias"))
            turned = weight if layer == self._layers - 1 else weight.mT
            copies[f"weight_{layer}"] = turned.cpu().contiguous().clone()
            copies[f"bias_{layer}"] = bias.flatten().cpu().clone()
        return copies

    def record(self, rows: int) -> Record:
        """Room for a pass of `rows` rows through each network."""
        return Record(self._count, rows, self._sizes, self.parameters)

    def forward(
        self, inputs: Tensor, record: Record, dropout: Sequence[Tensor] | None = None
    ) -> Tensor:
        """`[N, B, in]` to `[N, out, B]`, which the next pass on the same record overwrites.

        Args:
            inputs: of each network.
            record: of this size.
            dropout: factors `[N, B, units]` of each hidden layer, 0 where a unit is dropped and
                `1 / (1 - share)` elsewhere; None drops none.
        """
        record.inputs = below = inputs
        last = self._layers - 1
        for layer in range(last):
            below = self._activate(layer, below, record)
            if dropout is not None:
                below.mul_(dropout[layer])
            if record.low and layer < last - 1:
                record.low[layer].copy_(below)
        weight, bias = self._named[f"weight_{last}"], self._named[f"bias_{last}"]
        return torch.bmm(weight, below.mT, out=record.output).add_(bias)

    def _activate(self, layer: int, below: Tensor, record: Record) -> Tensor:
        """The hidden units of a layer on what is below, `[N, B, units]`."""
        out, bias = record.hidden[layer], self._named[f"bias_{layer}"]
        if record.low and layer > 0:
            product = record.low_gradients[layer]  # free until the way back
            torch.bmm(record.low[layer - 1], self._low[f"weight_{layer}"], out=product)
            out.copy_(product).add_(bias)
        else:
            torch.baddbmm(bias, below, self._named[f"weight_{layer}"], out=out)
        return out.relu_()

    def backward(self, gradient: Tensor, record: Record, keep: float = 1.0) -> None:
        """Write the gradients of all parameters.

        Args:
            gradient: `[N, out, B]` of the loss by the outputs.
            record: of the forward pass.
            keep: share of hidden units that dropout kept in it.
        """
        last = self._layers - 1
        below = record.hidden[last - 1] if last else record.inputs
        torch.sum(gradient, dim=2, keepdim=True, out=self._gradients[f"bias_{last}"])
        torch.bmm(gradient, below, out=self._gradients[f"weight_{last}"])
        if last:
            gradient = _spread(gradient, self._named[f"weight_{last}"], record.gradients[-1])
        for layer in reversed(range(last)):
            if keep != 1.0:
                gradient.mul_(1 / keep)
            # Zero where the unit was: by its activation or by dropout, which is all the same.
            torch.ops.aten.threshold_backward.grad_input(
                gradient, record.hidden[layer], 0, grad_input=gradient
            )
            torch.sum(gradient, dim=1, keepdim=True, out=self._gradients[f"bias_{layer}"])
            gradient = self._descend(layer, gradient, record)

    def _descend(self, layer: int, gradient: Tensor, record: Record) -> Tensor:
        """Write the gradient of a hidden layer's weights and return that of what is below."""
        name = f"weight_{layer}"
        if layer == 0:
            return torch.bmm(record.inputs.mT, gradient, out=self._gradients[name])
        below = record.gradients[layer - 1]
        if not record.low:
            torch.bmm(record.hidden[layer - 1].mT, gradient, out=self._gradients[name])
            return torch.bmm(gradient, self._named[name].mT, out=below)
        low = record.low_gradients[layer].copy_(gradient)
        by_weight = torch.bmm(record.low[layer - 1].mT, low, out=self._low_gradients[name])
        self._gradients[name].copy_(by_weight)
        return below.copy_(torch.bmm(low, self._low[name].mT, out=record.low_gradients[layer - 1]))


def _spread(gradient: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """`[N, out, B]` by `[N, out, in]` to `[N, B, in]`; one output is no sum, and a product."""
    if weight.shape[1] == 1:
        return torch.mul(gradient.mT, weight, out=out)
    return torch.bmm(gradient.mT, weight, out=out)
