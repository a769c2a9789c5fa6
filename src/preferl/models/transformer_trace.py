"""Rewards of the Preference Transformer after full windows, without their keys and values.

Steps move through a window's places, so neither keys nor values can be kept from one window to the
next: a token is `LN(LN(e + p))` of a row's embedding `e` and a place's embedding `p`. But it is
linear in both up to two scales, whose inverse squares are quadratic forms of `e` and `p`:

    first:  (C e + C p) g_1 / σ + b_1                    C takes the mean away
    second: (M e + M p) g_2 / (σ τ) + c g_2 / τ + b_2    M = C g_1 C,  c = C b_1

With one block, only the last state token asks anything. With `α = 1 / (σ τ)` and `β = 1 / τ`, its
logit for row `r` at place `j` is `α_rj (q·K e_r + q·K p_j) + β_rj q·k`, and what it takes from
values is alike. Since `e` is linear in a step's few features `f`, `q·K e_r` is a product of as many
numbers per head with `f_r`. No embedding, key or value of any other step is ever made.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, final

import torch
from torch import Tensor, nn

from preferl.models.tracing import full_windows, trace_beginnings, trace_windows

if TYPE_CHECKING:
    from preferl.models.transformer import PreferenceTransformer

SPAN = 256
"""Windows judged together: enough for efficient products, few enough for the cache."""


@torch.no_grad()
def trace_transformer(model: "PreferenceTransformer", features: Tensor, lengths: Tensor) -> Tensor:
    """Rewards `[1, T]` of whole episodes `[T, F]`, each for the window that ends there.

    Windows that begin with their episode share one pass. Full windows after them cost about as
    much as one token each, if there is one block, and are judged one by one if there are more.
    """
    rewards = trace_beginnings(model, features, lengths)
    if len(model.blocks) > 1:
        for steps in full_windows(lengths, model.context, SPAN):
            judged = trace_windows(model, features, lengths, steps)
            rewards[:, steps.to(rewards.device)] = judged
        return rewards
    last = LastToken.of(model)
    for steps in full_windows(lengths, model.context, SPAN):
        first, end = int(steps[0]), int(steps[-1]) + 1
        judged = last(features[first + 1 - model.context : end])
        rows = steps.to(rewards.device)
        rewards[0, rows] = judged[rows - first]
    return rewards


@final
class LastSteps:
    """Rewards of the last step of windows, by a model whose weights no longer change.

    Windows of a model of one block take no more than a token each; those at the beginning of
    episodes are moved to the first places, where their steps are. With more blocks, the last state
    token alone asks in the last block.
    """

    @torch.no_grad()
    def __init__(self, model: "PreferenceTransformer") -> None:
        self._model = model
        self._last = LastToken.of(model) if len(model.blocks) == 1 else None

    @torch.no_grad()
    def __call__(self, features: Tensor, mask: Tensor) -> Tensor:
        """Features `[B, H, F]` and mask `[B, H]` to rewards `[1, B]`."""
        context = self._model.context
        if self._last is None or mask.shape[1] != context:
            longest = max(int(mask.sum(1).max()), 1)  # at the beginning of episodes, a few steps
            return self._model.judge_last(features[:, -longest:], mask[:, -longest:])
        if bool(mask.all()):
            return self._last(features.flatten(0, 1), stride=context)[None]
        lengths = mask.sum(1).clamp(min=1)  # [B]
        place = torch.arange(context, device=mask.device)
        rows = (place + (context - lengths)[:, None]).clamp(max=context - 1)  # [B, H]
        moved = features.take_along_dim(rows[..., None], dim=1)
        return self._last(moved.flatten(0, 1), stride=context, lengths=lengths)[None]


@final
@dataclass(frozen=True, eq=False)
class Scales:
    """The two normalisations of one kind of token, as quadratic forms.

    In double precision, since what they add up may cancel.

    Attributes:
        rows: `[2, F, F]` so that `f·rows·f` are the squared lengths of `C e` and `M e`.
        both: `[2, F, H]` so that `f·both` are twice their products with `C p` and `M p`.
        places: `[2, H]` the squared lengths of `C p` and `M p`.
        offset_rows: `[F]` so that `f·offset_rows` is twice the product of `M e` with `c`.
        offset_places: `[H]` the same of `M p`.
        offset: the squared length of `c`.
        width: numbers per token.
        epsilons: of the two normalisations.
    """

    rows: Tensor
    both: Tensor
    places: Tensor
    offset_rows: Tensor
    offset_places: Tensor
    offset: Tensor
    width: int
    epsilons: tuple[float, float]

    @classmethod
    def of(cls, embed: Tensor, place: Tensor, norms: tuple[nn.LayerNorm, nn.LayerNorm]) -> Self:
        """Those of an embedding `[W, F]` and of places `[W, H]`, both in double precision."""
        c = _centred(norms[0].bias.double())
        (ce, me), (cp, mp) = ((_centred(part), _mixed(norms[0], part)) for part in (embed, place))
        return cls(
            rows=torch.stack([ce.T @ ce, me.T @ me]),
            both=torch.stack([2 * ce.T @ cp, 2 * me.T @ mp]),
            places=torch.stack([cp.square().sum(0), mp.square().sum(0)]),
            offset_rows=2 * me.T @ c,
            offset_places=2 * mp.T @ c,
            offset=c.square().sum(),
            width=len(embed),
            epsilons=(norms[0].eps, norms[1].eps),
        )

    def __call__(self, features: Tensor, stride: int = 1) -> tuple[Tensor, Tensor]:
        """`α` and `β`, `[C, 1, H]`, of windows in rows `[R, F]`, `stride` rows apart."""
        f = features.double()
        own = (f @ self.rows * f).sum(-1, keepdim=True)  # [2, R, 1]
        if stride == self.places.shape[1]:  # every row is at one place only
            at_place = f.view(-1, stride, f.shape[1]) * self.both.mT[:, None]  # [2, C, H, F]
            squares = own.view(2, -1, stride) + at_place.sum(-1)
        else:
            both = torch.baddbmm(own, f.expand(2, *f.shape), self.both)  # [2, R, H]
            squares = _diagonals(both, stride)  # [2, C, H]
        centred, mixed = squares + self.places[:, None]
        offset = (f @ self.offset_rows).unfold(0, self.places.shape[1], stride)
        offset = offset + self.offset_places
        sigma = torch.rsqrt(centred / self.width + self.epsilons[0])  # its inverse
        spread = (mixed * sigma + offset) * sigma + self.offset
        beta = torch.rsqrt(spread / self.width + self.epsilons[1])
        return (beta * sigma).float()[:, None], beta.float()[:, None]


@final
@dataclass(frozen=True, eq=False)
class LastToken:
    """What the last state token of each window becomes.

    Attributes:
        model: of one block.
        scales: of states and of actions.
        query: `[W, heads * N]` and `[heads * N]`: a normalised token to what each head asks of
            state features, action features, places and `c`; these are the `N`.
        value: `[heads * N, W]` and `[W]`: what each head gets of them to what is added.
        parts: how many of the `N` are which.
    """

    model: "PreferenceTransformer"
    scales: tuple[Scales, Scales]
    query: tuple[Tensor, Tensor]
    value: tuple[Tensor, Tensor]
    parts: list[int]

    @classmethod
    def of(cls, model: "PreferenceTransformer") -> Self:
        """Fold a model's embeddings, normalisations and projections into one another."""
        block = model.blocks[0]
        norms = (model.input_norm, block.norm1)
        embeds = [
            torch.cat([layer.weight, layer.bias[:, None]], dim=1).double()
            for layer in (model.state_embed, model.action_embed)
        ]
        place = model.time_embed.weight[1 : model.context + 1].double().T  # [W, H]
        c = _centred(norms[0].bias.double())[:, None]
        sources = torch.cat([*(_mixed(norms[0], part) for part in (*embeds, place)), c], dim=1)
        sources = sources * norms[1].weight.double()[:, None]  # [W, N]

        heads = model.config.heads
        q, k, v = (w.unflatten(0, (heads, -1)) for w in block.attn.qkv.weight.double().chunk(3))
        q_bias, _, v_bias = block.attn.qkv.bias.double().chunk(3)
        keys, values = k @ sources / k.shape[1] ** 0.5, v @ sources  # [heads, D, N]
        out = block.attn.out.weight.double().unflatten(1, (heads, -1))  # [W, heads, D]
        query = torch.einsum("hde,hdn->ehn", q, keys).flatten(1)
        query_bias = torch.einsum("hd,hdn->hn", q_bias.view(heads, -1), keys).flatten()
        value = torch.einsum("ehd,hdn->hne", out, values).flatten(0, 1)
        constant = v.flatten(0, 1) @ norms[1].bias.double() + v_bias  # probabilities add up to 1
        value_bias = out.flatten(1) @ constant + block.attn.out.bias
        return cls(
            model=model,
            scales=(Scales.of(embeds[0], place, norms), Scales.of(embeds[1], place, norms)),
            query=(query.float(), query_bias.float()),
            value=(value.float(), value_bias.float()),
            parts=[*(part.shape[1] for part in embeds), model.context, 1],
        )

    def __call__(self, features: Tensor, stride: int = 1, lengths: Tensor | None = None) -> Tensor:
        """Rewards `[C]` after windows in rows `[R, F]`, `stride` rows apart.

        Args:
            features: of states and actions.
            stride: rows between the first ones of two windows.
            lengths: `[C]` how many of a window's rows, its first, are real; all if None.
        """
        model, block = self.model, self.model.blocks[0]
        states, actions = features.split([p - 1 for p in self.parts[:2]], dim=1)
        if lengths is None:
            last, place = (
                states[model.context - 1 :: stride],
                model.time_embed.weight[model.context],
            )
        else:
            begins = torch.arange(len(lengths), device=lengths.device) * stride
            last, place = states[begins + lengths - 1], model.time_embed.weight[lengths]
        tokens = model.input_norm(model.state_embed(last) + place)
        tokens = tokens + self.attend(block.norm1(tokens), states, actions, stride, lengths)
        tokens = tokens + block.mlp(block.norm2(tokens))
        return model.reward(model.final_norm(tokens))

    def attend(
        self,
        tokens: Tensor,
        states: Tensor,
        actions: Tensor,
        stride: int = 1,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """What attention adds to tokens `[C, W]` that stand last in windows of rows `[R, F]`."""
        asked = torch.addmm(self.query[1], tokens, self.query[0])
        *of_rows, of_places, of_offset = asked.view(len(tokens), -1, sum(self.parts)).split(
            self.parts, dim=-1
        )  # each [C, heads, ...]
        windows, logits, scales = [], [], []
        for rows, scale, query in zip((states, actions), self.scales, of_rows, strict=True):
            rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
            alpha, beta = scale(rows, stride)
            window = rows.unfold(0, self.parts[2], stride)  # [C, F, H] without a copy
            logit = torch.baddbmm(of_places, query, window)
            logit = logit.mul_(alpha).addcmul_(beta, of_offset)
            if lengths is not None:
                place = torch.arange(self.parts[2], device=lengths.device)
                logit = logit.masked_fill((place >= lengths[:, None])[:, None], -torch.inf)
            logits.append(logit)
            windows.append(window)
            scales.append((alpha, beta))
        shares = torch.cat(logits, dim=-1).softmax(-1).chunk(2, dim=-1)  # [C, heads, H] each
        weighted = [share * alpha for share, (alpha, _) in zip(shares, scales, strict=True)]
        got = [w @ window.mT for w, window in zip(weighted, windows, strict=True)]
        offset = sum(
            (share * beta).sum(-1, keepdim=True)
            for share, (_, beta) in zip(shares, scales, strict=True)
        )
        got += [weighted[0] + weighted[1], torch.as_tensor(offset)]
        return torch.addmm(self.value[1], torch.cat(got, dim=-1).flatten(1), self.value[0])


def _centred(columns: Tensor) -> Tensor:
    return columns - columns.mean(0)


def _mixed(norm: nn.LayerNorm, columns: Tensor) -> Tensor:
    """`M` times columns `[W, ...]`: centred, weighted as `norm` does, and centred again."""
    return _centred(_centred(columns) * norm.weight.double()[:, None])


def _diagonals(rows: Tensor, stride: int) -> Tensor:
    """`[2, R, H]` to `[2, C, H]`: place `j` of window `c` is in row `c * stride + j`."""
    rows = rows.contiguous()
    kinds, count, places = rows.shape
    shape = (kinds, (count - places) // stride + 1, places)
    return rows.as_strided(shape, (count * places, stride * places, places + 1))
