"""Blocks of causal attention (Vaswani et al. 2017; normalised first, as in Radford et al. 2019)."""

import math
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from preferl.models.blocks import ACTIVATIONS, Activation
from preferl.models.initialisation import lecun_linear

UNSEEN = -1e4
"""Logit of what may not be looked at: its share is exactly 0, unless there is nothing else."""


@final
class Block(nn.Module):
    """Attention and a perceptron, each added to the tokens it was given."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        activation: Activation,
        dropout: float,
        generator: torch.Generator,
    ) -> None:
        """Initialise weights from `generator`.

        Args:
            width: numbers per token.
            heads: of attention, a divisor of `width`.
            activation: in the perceptron.
            dropout: share of probabilities, and of numbers added to tokens, dropped in training.
            generator: where the weights come from.
        """
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads, dropout=dropout, generator=generator)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Perceptron((width, 4 * width, width), activation, generator)
        self.dropout = dropout

    def forward(self, tokens: Tensor, seen: Tensor, asking: slice) -> Tensor:
        """Tokens `[B, S, W]` to what those that ask become, `[B, Q, W]`.

        Args:
            tokens: `[B, S, W]`
            seen: `[..., Q, S]` true where one that asks may look at a token.
            asking: which tokens ask; the others only have keys and values.
        """
        normed = self.norm1(tokens)
        attended = self.attn(normed[:, asking], normed, seen)
        tokens = tokens[:, asking] + F.dropout(attended, self.dropout, self.training)
        added = self.mlp(self.norm2(tokens))
        return tokens + F.dropout(added, self.dropout, self.training)


@final
class SelfAttention(nn.Module):
    """Several heads, each a softmax over scaled products (Vaswani et al. 2017, section 3.2)."""

    def __init__(
        self, width: int, heads: int, *, dropout: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = lecun_linear(width, 3 * width, generator)
        self.out = lecun_linear(width, width, generator)

    def forward(self, asking: Tensor, tokens: Tensor, seen: Tensor) -> Tensor:
        """What tokens `[B, Q, W]` get of tokens `[B, S, W]`, where `seen` is true."""
        width = tokens.shape[-1]
        weight, bias = (
            self.qkv.weight.split([width, 2 * width]),
            self.qkv.bias.split([width, 2 * width]),
        )
        query = self._of_heads(F.linear(asking, weight[0], bias[0]))
        key, value = map(self._of_heads, F.linear(tokens, weight[1], bias[1]).chunk(2, dim=-1))
        shares = _shares(query, key, seen).to(value.dtype)
        got = F.dropout(shares, self.dropout, self.training) @ value  # [B, heads, Q, D]
        return self.out(got.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def shares(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """`[B, heads, S, S]` how much each of tokens `[B, S, W]` looks at each; rows sum to 1."""
        query, key, _ = self.qkv(tokens).chunk(3, dim=-1)
        return _shares(self._of_heads(query), self._of_heads(key), seen)

    def _of_heads(self, tokens: Tensor) -> Tensor:
        """`[B, S, W]` to `[B, heads, S, D]`."""
        batch, size, width = tokens.shape
        return tokens.view(batch, size, self.heads, width // self.heads).transpose(1, 2)


@final
class Perceptron(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(
        self, sizes: tuple[int, int, int], activation: Activation, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.activation: Activation = activation
        self.fc1 = lecun_linear(sizes[0], sizes[1], generator)
        self.fc2 = lecun_linear(sizes[1], sizes[2], generator)

    def forward(self, rows: Tensor) -> Tensor:
        """`[..., in]` to `[..., out]`."""
        return self.fc2(ACTIVATIONS[self.activation](self.fc1(rows)))  # type: ignore[no-any-return]


def causal(real: Tensor) -> Tensor:
    """`[B, 1, S, S]` true where a token may look: at real ones before it, and at itself.

    Itself even if it is no real one, so that no row sees nothing, which would make it NaN.

    Args:
        real: `[B, S]`
    """
    size = real.shape[1]
    before = torch.ones(size, size, dtype=torch.bool, device=real.device).tril()
    itself = torch.eye(size, dtype=torch.bool, device=real.device)
    return (before & real[:, None, None]) | itself


def _shares(query: Tensor, key: Tensor, seen: Tensor) -> Tensor:
    logits = (query / math.sqrt(query.shape[-1])) @ key.mT  # [B, heads, Q, S]
    return logits.masked_fill(~seen, UNSEEN).float().softmax(-1)
