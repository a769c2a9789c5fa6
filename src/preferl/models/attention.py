"""Blocks of causal attention (Vaswani et al. 2017; normalised first, as in Radford et al. 2019)."""

import math
from itertools import pairwise
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from preferl.models.blocks import IN_PLACE, drop, kept, lecun_linear
from preferl.models.configs import Activation, PreferenceTransformerConfig

UNSEEN = -1e4
"""Logit of a token that must not be seen: its share is exactly 0 if another token may be seen."""

ROWS = 32
"""Rows of attention computed together.

Columns after the last row are never computed, which saves almost half of the work. With fewer rows,
products are too small to be efficient.
"""


@final
class Block(nn.Module):
    """Attention and a perceptron; the output of each is added to its input tokens."""

    def __init__(self, config: PreferenceTransformerConfig, generator: torch.Generator) -> None:
        super().__init__()
        width = config.width
        self.norm1 = nn.LayerNorm(width)
        self.attn = SelfAttention(config, generator)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Perceptron((width, 4 * width, width), config.activation, generator)
        self.dropout = config.dropout

    def forward(self, tokens: Tensor, bias: Tensor, every: int = 1) -> Tensor:
        """Map tokens `[B, S, W]` and their `causal_bias` to new tokens `[B, Q, W]`.

        Of every `every` tokens, only the last has a query and is returned. The others have only
        keys and values.
        """
        asking = slice(every - 1, None, every)
        normed = self.norm1(tokens)
        device = tokens.device.type
        if torch.is_autocast_enabled(device):  # once for all products
            normed = normed.to(torch.get_autocast_dtype(device))
        attended = self.attn(normed[:, asking], normed, bias[:, :, asking])
        tokens = self._add(tokens[:, asking], attended)
        return self._add(tokens, self.mlp(self.norm2(tokens)))

    def _add(self, tokens: Tensor, change: Tensor) -> Tensor:
        dropped, scale = drop(change, self.dropout, self.training)
        return torch.add(tokens, dropped, alpha=scale)


@final
class SelfAttention(nn.Module):
    """Several heads, each a softmax over scaled products (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, config: PreferenceTransformerConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.qkv = lecun_linear(config.width, 3 * config.width, generator)
        self.out = lecun_linear(config.width, config.width, generator)

    def forward(self, asking: Tensor, tokens: Tensor, bias: Tensor) -> Tensor:
        """Compute attention `[B, Q, W]` of tokens `asking` `[B, Q, W]` to `tokens` `[B, S, W]`.

        The tokens `asking` are all of `tokens`, or the last of every few. `bias` `[B or 1, 1, Q,
        S]` is added to logits, so that no token sees later tokens.
        """
        width = tokens.shape[-1]
        weights, biases = (p.split([width, 2 * width]) for p in self.qkv.parameters())
        query = F.linear(asking, weights[0], biases[0])
        keys_and_values = F.linear(tokens, weights[1], biases[1])  # keys and values
        share = self.dropout if self.training else 0.0
        bias = bias.to(query.dtype)
        if tokens.is_cpu and not torch.compiler.is_compiling():
            attend: Any = Attend.apply
            return self.out(attend(query, keys_and_values, bias, self.heads, share))  # type: ignore[no-any-return]
        q, k, v = (
            _of_heads(part, self.heads) for part in (query, *keys_and_values.chunk(2, dim=-1))
        )
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=share)
        return self.out(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def shares(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """Compute attention weights `[B, heads, S, S]` among tokens `[B, S, W]`; rows sum to 1."""
        query, key, _ = (_of_heads(part, self.heads) for part in self.qkv(tokens).chunk(3, dim=-1))
        return (query @ key.mT / math.sqrt(query.shape[-1]) + bias).softmax(-1)


@final
class Attend(torch.autograd.Function):
    """Causal attention with dropout on a CPU, in parts that fit into its cache.

    The backward pass computes `Σ_j dP_j P_j` as the product of a row's output with its gradient, as
    in Dao et al. (2022), "FlashAttention", section 3.1.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, both: Tensor, bias: Tensor, heads: int, share: float
    ) -> Tensor:
        """Compute attention `[B, Q, W]` of queries `[B, Q, W]` to keys and values `[B, S, 2W]`."""
        batch, asking, _ = query.shape
        q = _of_heads(query, heads).flatten(0, 1)  # [B * heads, Q, D]
        k, v = (_of_heads(part, heads).flatten(0, 1) for part in both.chunk(2, dim=-1))
        scale = 1 / math.sqrt(q.shape[-1])
        gain = 1 / (1 - share)
        ratio = k.shape[1] // asking
        attended = torch.empty_like(q)
        saved = []
        for first, last in _parts(asking):
            visible_rows = ratio * last
            logits = torch.bmm(q[:, first:last], k[:, :visible_rows].mT)
            by_window = logits.view(batch, heads, *logits.shape[1:])
            torch.add(bias[:, :, first:last, :visible_rows], by_window, alpha=scale, out=by_window)
            shares = logits.softmax(-1)
            left = shares * kept(shares, share) if share else shares
            attended[:, first:last] = torch.bmm(left, v[:, :visible_rows]).mul_(gain)
            saved += [shares, left]
        ctx.save_for_backward(q, k, v, attended, *saved)
        ctx.heads = heads
        ctx.scale = scale
        ctx.gain = gain
        return _of_rows(attended, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of queries, and of keys and values."""
        q, k, v, attended, *saved = ctx.saved_tensors
        gradient = _of_heads(gradient, ctx.heads).flatten(0, 1)
        wide = torch.promote_types(attended.dtype, torch.float32)
        inner = (gradient * attended).sum(-1, keepdim=True, dtype=wide).to(attended.dtype)
        gradient = gradient * ctx.gain
        dq = torch.empty_like(q)
        dk = torch.zeros_like(k)
        dv = torch.zeros_like(v)
        ratio = k.shape[1] // q.shape[1]
        for index, (first, last) in enumerate(_parts(q.shape[1])):
            shares, left = saved[2 * index : 2 * index + 2]
            rows = slice(first, last)
            visible_rows = slice(ratio * last)
            dv[:, visible_rows] += torch.bmm(left.mT, gradient[:, rows])
            change = torch.bmm(gradient[:, rows], v[:, visible_rows].mT).mul_(left)
            change.addcmul_(shares, inner[:, rows], value=-1)
            dq[:, rows] = torch.bmm(change, k[:, visible_rows])
            dk[:, visible_rows] += torch.bmm(change.mT, q[:, rows])
        key_value_gradient = torch.cat(
            [_of_rows(dk.mul_(ctx.scale), ctx.heads), _of_rows(dv, ctx.heads)], dim=-1
        )
        return _of_rows(dq.mul_(ctx.scale), ctx.heads), key_value_gradient, None, None, None


@final
class Perceptron(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(
        self, sizes: tuple[int, int, int], activation: Activation, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.activation: Activation = activation
        self.fc1, self.fc2 = (lecun_linear(a, b, generator) for a, b in pairwise(sizes))

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows `[..., in]` to `[..., out]`."""
        return self.fc2(IN_PLACE[self.activation](self.fc1(rows)))  # type: ignore[no-any-return]


def causal_bias(real: Tensor, each: int = 1) -> Tensor:
    """Return a bias `[B, 1, S, S]`: 0 where a token may look, `UNSEEN` elsewhere.

    A token may see real tokens before it, and itself. It sees itself even if it is padding, so that
    no row sees nothing. Each step of `real` `[B, S / each]` has `each` tokens. If all steps are
    real, one bias `[1, 1, S, S]` is used for all windows.
    """
    recorded = real.is_cuda and torch.cuda.is_current_stream_capturing()
    if real.stride(0) == 0 or (not recorded and bool(real.all())):  # one row, expanded to many
        real = real[:1]
    real = real.repeat_interleave(each, dim=1)
    size = real.shape[1]
    is_earlier = torch.ones(size, size, dtype=torch.bool, device=real.device).tril()
    itself = torch.eye(size, dtype=torch.bool, device=real.device)
    return torch.where((is_earlier & real[:, None, None]) | itself, 0.0, UNSEEN)


def _parts(rows: int) -> list[tuple[int, int]]:
    """Return the bounds of parts of about `ROWS` rows."""
    count = -(-rows // ROWS)
    return list(pairwise(rows * part // count for part in range(count + 1)))


def _of_heads(tokens: Tensor, heads: int) -> Tensor:
    """Split tokens `[B, S, W]` into heads `[B, heads, S, D]`."""
    batch, size, width = tokens.shape
    return tokens.view(batch, size, heads, width // heads).transpose(1, 2)


def _of_rows(tokens: Tensor, heads: int) -> Tensor:
    """Join heads `[B * heads, S, D]` to tokens `[B, S, W]`."""
    by_window = tokens.view(len(tokens) // heads, heads, *tokens.shape[1:])
    return by_window.transpose(1, 2).flatten(2)
