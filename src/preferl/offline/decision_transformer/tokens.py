"""The forward pass of a Decision Transformer, over the parameters of Hugging Face's model.

Chen et al. 2021, "Decision Transformer: Reinforcement Learning via Sequence Modeling". This engine
of `preferl.registry.ENGINES` computes the same actions as `transformers`'
`DecisionTransformerModel`, up to rounding, in a third of the time. It leaves out what no predicted
action depends on: the heads for states and returns, a window's last action, and, in the last layer,
all tokens except those from which actions are read. Without this engine, `hugging_face` calls the
model's own `forward`.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from preferl.models.blocks import kept, kept_share
from preferl.offline.learner_configs import TokenShape

Parameters = Mapping[str, Tensor]  # keys are names in Hugging Face's model


def predict_actions(
    p: Parameters,
    shape: TokenShape,
    batch: Mapping[str, Tensor],
    *,
    training: bool = False,
    last: bool = False,
) -> Tensor:
    """Predict the action, or its logits, at each step of windows of a `SequenceCollator`.

    The batch has `states` `[B, H, O]`, `actions` `[B, H, A]`, `returns_to_go` `[B, H, 1]`,
    `timesteps` and `attention_mask` `[B, H]`. The last of the `actions` is ignored. The result is
    `[B, H, A]`, or with `last` only the action of the last step, `[B, 1, A]`.
    """
    queried = slice(3 * batch["states"].shape[1] - 2, None) if last else slice(1, None, 3)
    dropout = shape.dropout if training else 0.0
    time = F.embedding(batch["timesteps"], p["embed_timestep.weight"])
    parts = [
        _linear(p, f"embed_{name}", batch[key]) + time
        for name, key in (("return", "returns_to_go"), ("state", "states"), ("action", "actions"))
    ]
    tokens = torch.stack(parts, dim=2).flatten(1, 2)  # [B, 3 H, D]
    # The position embedding of GPT-2 is that of position 0 for all tokens: time is embedded above.
    tokens = (_norm(p, "embed_ln", tokens) + p["encoder.wpe.weight"][0])[:, :-1]
    x = drop(tokens, dropout)
    visible = _visible(batch["attention_mask"], tokens.shape[1])
    for k in range(shape.layers):
        rows = queried if k == shape.layers - 1 else slice(None)
        x = _block(p, f"encoder.h.{k}", x, visible, shape.heads, dropout, rows)
    predicted = _linear(p, "predict_action.0", _norm(p, "encoder.ln_f", x))
    return predicted.tanh() if shape.squashed else predicted


def _visible(real: Tensor, tokens: int) -> Tensor:
    """Return the causal mask `[B, 1, M, M]`: a token (row) sees real tokens up to itself.

    A padded token sees itself, since a row that sees nothing would be NaN.
    """
    square = real.new_ones(tokens, tokens, dtype=torch.bool)
    keys = real.bool().repeat_interleave(3, dim=1)[:, None, :tokens]  # [B, 1, M]
    return ((keys & square.tril()) | torch.eye(tokens, dtype=torch.bool, device=real.device))[
        :, None
    ]


def _block(
    p: Parameters, name: str, x: Tensor, visible: Tensor, heads: int, share: float, queried: slice
) -> Tensor:
    """Compute a layer for the `queried` tokens: attention and a perceptron, with residuals."""
    mixed = _attend(p, f"{name}.attn", _norm(p, f"{name}.ln_1", x), visible, heads, share, queried)
    x = x[:, queried] + drop(mixed, share)
    hidden = _conv(p, f"{name}.mlp.c_fc", _norm(p, f"{name}.ln_2", x)).relu()
    return x + drop(_conv(p, f"{name}.mlp.c_proj", hidden), share)


def _attend(
    p: Parameters, name: str, x: Tensor, visible: Tensor, heads: int, share: float, queried: slice
) -> Tensor:
    weight = p[f"{name}.c_attn.weight"]
    bias = p[f"{name}.c_attn.bias"]
    width = x.shape[-1]
    if queried == slice(None):
        parts = _affine(x, weight, bias).split(width, dim=-1)
    else:
        query = _affine(x[:, queried], weight[:, :width], bias[:width])
        parts = (query, *_affine(x, weight[:, width:], bias[width:]).split(width, dim=-1))
    query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
    mixed = _mix(query, key, value, visible[:, :, queried], share)
    return _conv(p, f"{name}.c_proj", mixed.transpose(1, 2).flatten(2))  # [B, M, heads * D / heads]


def _mix(query: Tensor, key: Tensor, value: Tensor, visible: Tensor, share: float) -> Tensor:
    """Return values `[B, heads, M, D]` mixed by attention."""
    if not share:
        return F.scaled_dot_product_attention(query, key, value, visible)
    # On CPUs, torch has no fused kernel with dropout. These are the steps that it would take
    # instead, with faster random numbers.
    scores = (query / math.sqrt(query.shape[-1])) @ key.mT
    weights = scores.masked_fill(~visible, -math.inf).softmax(-1)
    return drop(weights.to(value.dtype), share) @ value


def drop(x: Tensor, share: float) -> Tensor:
    """Apply dropout in a sixth of torch's time on CPUs, where torch draws one double after another.

    The share of kept values is rounded (`kept_share`), and kept values are divided by the rounded
    share.
    """
    if not share:
        return x
    return x * kept(x, share).mul_(1 / kept_share(share)) if x.is_cpu else F.dropout(x, share)


def _linear(p: Parameters, name: str, x: Tensor) -> Tensor:
    return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def _conv(p: Parameters, name: str, x: Tensor) -> Tensor:
    """Apply a dense layer whose weight is `[in, out]`, as in GPT-2."""
    return _affine(x, p[f"{name}.weight"], p[f"{name}.bias"])


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    flat = torch.addmm(bias, x.flatten(0, 1), weight)  # [B * M, out]
    return flat.view(*x.shape[:2], -1)


def _norm(p: Parameters, name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"])
