"""Layers whose weights no longer change, for a few rows at a time.

Of a few rows, a layer's product costs no more than what a module does around it.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

Rows = Callable[[Tensor], Tensor]
"""`[R, in]` to `[R, out]`."""


def affine(weight: Tensor, bias: Tensor) -> Rows:
    """A linear layer with weights `[out, in]`.

    They are transposed in memory: a product with few rows reads them in this order.
    """
    return partial(torch.addmm, bias, mat2=weight.T.contiguous())


def normalisation(norm: nn.LayerNorm) -> Rows:
    """What `norm` does."""
    return partial(
        torch.layer_norm,
        normalized_shape=norm.normalized_shape,
        weight=norm.weight,
        bias=norm.bias,
        eps=norm.eps,
    )


def chain(*layers: Rows) -> Rows:
    """One after another."""
    return partial(_chained, layers)


def _chained(layers: tuple[Rows, ...], rows: Tensor) -> Tensor:
    for layer in layers:
        rows = layer(rows)
    return rows
