"""The forward pass of a Decision Transformer, over the parameters of Hugging Face's model.

Chen et al. 2021, "Decision Transformer: Reinforcement Learning via Sequence Modeling". This engine
of `preferl.registry.ENGINES` computes the actions of `transformers`' `DecisionTransformerModel`, to
rounding and in a third of the time. It leaves out what no action depends on: heads for states and
returns, a window's last action, which comes after all predictions, and in the last layer every
token but those that actions are read from. Without it, `hugging_face` calls the model's forward.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from preferl.models.blocks import kept, kept_share
from preferl.offline.learner_configs import TokenShape

Parameters = Mapping[str, Tensor]  # by their names in Hugging Face's model


def predict_actions(
    p: Parameters,
    shape: TokenShape,
    batch: Mapping[str, Tensor],
    *,
    training: bool = False,
    last: bool = False,
) -> Tensor:
    """Predict the action, or its logits, at each step of windows of a `SequenceCollator`.

    Shapes are `[B, H, A]` of `states` `[B, H, O]`, `actions` `[B, H, A]`, `returns_to_go`
    `[B, H, 1]`, `timesteps` and `attention_mask` `[B, H]`; `last` predicts the last alone,
    `[B, 1, A]`. The last of `actions` is ignored.
    """
    wanted = slice(3 * batch["states"].shape[1] - 2, None) if last else slice(1, None, 3)
    share = shape.dropout if training else 0.0
    time = F.embedding(batch["timesteps"], p["embed_timestep.weight"])
    parts = [
        _linear(p, f"embed_{name}", batch[key]) + time
        for name, key in (("return", "returns_to_go"), ("state", "states"), ("action", "actions"))
    ]
    tokens = torch.stack(parts, dim=2).flatten(1, 2)  # [B, 3 H, D]
    # All tokens stand at the encoder's first position: time has the embedding above.
    tokens = (_norm(p, "embed_ln", tokens) + p["encoder.wpe.weight"][0])[:, :-1]
    x = drop(tokens, share)
    visible = _visible(batch["attention_mask"], tokens.shape[1])
    for k in range(shape.layers):
        rows = wanted if k == shape.layers - 1 else slice(None)
        x = _block(p, f"encoder.h.{k}", x, visible, shape.heads, share, rows)
    predicted = _linear(p, "predict_action.0", _norm(p, "encoder.ln_f", x))
    return predicted.tanh() if shape.squashed else predicted


def _visible(real: Tensor, tokens: int) -> Tensor:
    """`[B, 1, M, M]` whether a token (row) may look at another: at real ones up to itself.

    Padding looks at itself, since a row that sees nothing would be NaN.
    """
    square = real.new_ones(tokens, tokens, dtype=torch.bool)
    keys = real.bool().repeat_interleave(3, dim=1)[:, None, :tokens]  # [B, 1, M]
    return ((keys & square.tril()) | torch.eye(tokens, dtype=torch.bool, device=real.device))[
        :, None
    ]


def _block(
    p: Parameters, name: str, x: Tensor, visible: Tensor, heads: int, share: float, wanted: slice
) -> Tensor:
    """One layer: attention and a perceptron, each beside its residual, for the `wanted` tokens."""
    mixed = _attend(p, f"{name}.attn", _norm(p, f"{name}.ln_1", x), visible, heads, share, wanted)
    x = x[:, wanted] + drop(mixed, share)
    inner = _conv(p, f"{name}.mlp.c_fc", _norm(p, f"{name}.ln_2", x)).relu()
    return x + drop(_conv(p, f"{name}.mlp.c_proj", inner), share)


def _attend(
    p: Parameters, name: str, x: Tensor, visible: Tensor, heads: int, share: float, wanted: slice
) -> Tensor:
    weight = p[f"{name}.c_attn.weight"]
    bias = p[f"{name}.c_attn.bias"]
    width = x.shape[-1]
    if wanted == slice(None):
        parts = _affine(x, weight, bias).split(width, dim=-1)
    else:
        query = _affine(x[:, wanted], weight[:, :width], bias[:width])
        parts = (query, *_affine(x, weight[:, width:], bias[width:]).split(width, dim=-1))
    query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
    mixed = _mix(query, key, value, visible[:, :, wanted], share)
    return _conv(p, f"{name}.c_proj", mixed.transpose(1, 2).flatten(2))  # [B, M, heads * D / heads]


def _mix(query: Tensor, key: Tensor, value: Tensor, visible: Tensor, share: float) -> Tensor:
    """Values `[B, heads, M, D]` mixed by attention."""
    if not share:
        return F.scaled_dot_product_attention(query, key, value, visible)
    # torch has no fused kernel with dropout for processors; this is what it falls back to, but
    # for how it draws.
    scores = (query / math.sqrt(query.shape[-1])) @ key.mT
    weights = scores.masked_fill(~visible, -math.inf).softmax(-1)
    return drop(weights.to(value.dtype), share) @ value


def drop(x: Tensor, share: float) -> Tensor:
    """Dropout in a sixth of the time on processors, where torch draws one double after the other.

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
