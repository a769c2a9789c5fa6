"""The forward pass of a Decision Transformer, over the parameters of Hugging Face's model.

Chen et al. 2021, "Decision Transformer: Reinforcement Learning via Sequence Modeling". The model
is `transformers`' `DecisionTransformerModel`, and this computes what it computes for actions, to
rounding and in a third of the time. It leaves out what nobody looks at: heads for states and
returns, a window's last action, which comes after all that is predicted, and in the last layer
every token but those that actions are read from.

It is an engine of `preferl.registry.ENGINES`. Without its lines there, `hugging_face` beside it
computes the same by the model's own forward.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from preferl.models.blocks import kept, kept_share
from preferl.offline.dt_config import TokenShape

Parameters = Mapping[str, Tensor]
"""Tensors by the names they have in Hugging Face's model."""


def all_actions(
    parameters: Parameters, shape: TokenShape, batch: Mapping[str, Tensor], *, training: bool
) -> Tensor:
    """What is predicted at each step of each window, `[B, H, A]`: actions, or their logits.

    Args:
        parameters: by name.
        shape: of the transformer.
        batch: `states` `[B, H, O]`, `actions` `[B, H, A]`, `returns_to_go` `[B, H, 1]`,
            `timesteps` and `attention_mask` `[B, H]`, as `SequenceCollator` makes them.
        training: whether dropout works.
    """
    tokens = _embed(parameters, batch)[:, :-1]
    return _read(parameters, shape, tokens, batch["attention_mask"], slice(1, None, 3), training)


def next_actions(parameters: Parameters, shape: TokenShape, batch: Mapping[str, Tensor]) -> Tensor:
    """What is predicted at the last step of each window, `[B, A]`, whose action is not looked at.

    Args:
        parameters: by name.
        shape: of the transformer.
        batch: as `all_actions` takes it.
    """
    tokens = _embed(parameters, batch)[:, :-1]
    last = slice(tokens.shape[1] - 1, None)
    return _read(parameters, shape, tokens, batch["attention_mask"], last, training=False)[:, 0]


def _embed(p: Parameters, batch: Mapping[str, Tensor]) -> Tensor:
    """Return, state and action of each step in turn, `[B, 3 H, D]`."""
    time = F.embedding(batch["timesteps"], p["embed_timestep.weight"])
    parts = [
        _linear(p, f"embed_{name}", batch[key])
        for name, key in (("return", "returns_to_go"), ("state", "states"), ("action", "actions"))
    ]
    tokens = torch.stack([part + time for part in parts], dim=2).flatten(1, 2)  # [B, 3 H, D]
    # All tokens stand at the encoder's first position: time is told by the embedding above.
    return _norm(p, "embed_ln", tokens) + p["encoder.wpe.weight"][0]


def _read(
    p: Parameters, shape: TokenShape, tokens: Tensor, real: Tensor, wanted: slice, training: bool
) -> Tensor:
    """Tokens `[B, M, D]` through all layers to what is predicted at the `wanted` ones."""
    share = shape.dropout if training else 0.0
    seen = _visible(real, tokens.shape[1])
    x = _drop(tokens, share)
    for k in range(shape.layers):
        last = k == shape.layers - 1
        x = _block(
            p, f"encoder.h.{k}", x, seen, shape.heads, share, wanted if last else slice(None)
        )
    predicted = _linear(p, "predict_action.0", _norm(p, "encoder.ln_f", x))
    return predicted.tanh() if shape.squashed else predicted


def _visible(real: Tensor, tokens: int) -> Tensor:
    """`[B, 1, M, M]` whether a token (row) may look at another: at real ones up to itself.

    Padding looks at itself, since a row that sees nothing would be NaN.
    """
    one = real.new_ones(tokens, tokens, dtype=torch.bool)
    keys = real.bool().repeat_interleave(3, dim=1)[:, None, :tokens]  # [B, 1, M]
    return ((keys & one.tril()) | torch.eye(tokens, dtype=torch.bool, device=real.device))[:, None]


def _block(
    p: Parameters, name: str, x: Tensor, seen: Tensor, heads: int, share: float, wanted: slice
) -> Tensor:
    """One layer: attention and a perceptron, each beside its residual, for the `wanted` tokens."""
    normal = _norm(p, f"{name}.ln_1", x)
    x = x[:, wanted] + _drop(_attend(p, f"{name}.attn", normal, seen, heads, share, wanted), share)
    inner = _conv(p, f"{name}.mlp.c_fc", _norm(p, f"{name}.ln_2", x)).relu()
    return x + _drop(_conv(p, f"{name}.mlp.c_proj", inner), share)


def _attend(
    p: Parameters, name: str, x: Tensor, seen: Tensor, heads: int, share: float, wanted: slice
) -> Tensor:
    weight, bias = p[f"{name}.c_attn.weight"], p[f"{name}.c_attn.bias"]
    width = x.shape[-1]
    if wanted == slice(None):
        query, key, value = _affine(x, weight, bias).split(width, dim=-1)
    else:
        query = _affine(x[:, wanted], weight[:, :width], bias[:width])
        key, value = _affine(x, weight[:, width:], bias[width:]).split(width, dim=-1)
    query, key, value = (
        part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query, key, value)
    )
    mixed = _mix(query, key, value, seen[:, :, wanted], share)
    return _conv(p, f"{name}.c_proj", mixed.transpose(1, 2).flatten(2))  # [B, M, heads * D / heads]


def _mix(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, share: float) -> Tensor:
    """Values `[B, heads, M, D]` mixed by attention."""
    if not share:
        return F.scaled_dot_product_attention(query, key, value, seen)
    # torch has no fused kernel with dropout for processors; this is what it falls back to, but
    # for how it draws.
    scores = (query / math.sqrt(query.shape[-1])) @ key.mT
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return _drop(weights.to(value.dtype), share) @ value


def _drop(x: Tensor, share: float) -> Tensor:
    """Dropout, which torch draws one double after the other for on processors: a sixth of the time.

    The scale is that of the share which is kept once it is rounded.
    """
    if not share:
        return x
    return x * kept(x, share).mul_(1 / kept_share(share)) if x.is_cpu else F.dropout(x, share)


def _linear(p: Parameters, name: str, x: Tensor) -> Tensor:
    return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def _conv(p: Parameters, name: str, x: Tensor) -> Tensor:
    """A dense layer whose weight is `[in, out]`, as GPT-2 has it."""
    return _affine(x, p[f"{name}.weight"], p[f"{name}.bias"])


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    flat = torch.addmm(bias, x.flatten(0, 1), weight)  # [B * M, out]
    return flat.view(*x.shape[:2], -1)


def _norm(p: Parameters, name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"])
