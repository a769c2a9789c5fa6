"""Rewards of the Preference Transformer, computed without the keys and values of windows.

Steps move through a window's places, so neither keys nor values can be kept from one window to the
next. A token is `LN(LN(e + p))`, where `e` is the embedding of a row and `p` that of a place. The
token is linear in both, up to two scales. The inverse squares of these scales are quadratic forms
of `e` and `p`:

    first:  (C e + C p) g_1 / σ + b_1                    C takes the mean away
    second: (M e + M p) g_2 / (σ τ) + c g_2 / τ + b_2    M = C g_1 C,  c = C b_1

With one block, only the last state token needs a query. With `α = 1 / (σ τ)` and `β = 1 / τ`, its
logit for row `r` at place `j` is `α_rj (q·K e_r + q·K p_j) + β_rj q·k`. Its sum of values has the
same form. Since `e` is linear in a step's few features `f`, `q·K e_r` is a product of as many
numbers per head with `f_r`. No embedding, key or value of any other step is ever computed.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from preferl.models.attention import Perceptron
from preferl.models.blocks import IN_PLACE
from preferl.shapes import BoolArray

if TYPE_CHECKING:
    from preferl.models.transformer import PreferenceTransformer

Rows = Callable[[Tensor], Tensor]
"""Maps `[R, in]` to `[R, out]` by weights that no longer change.

It avoids `nn.Module`, whose call costs as much as a layer's product of a few rows.
"""


@final
class Scales:
    """The two normalisations of states and actions, as quadratic forms of a step's features.

    The forms are the squared lengths of `C (e + p)` and `M (e + p)`, and twice the product of `M (e
    + p)` with `c`. Each form is split into a part that depends on `e` only and a part that a place
    adds, and is divided by the width. The forms have double precision, since their terms may
    cancel. In `embeds` `[2, W, F]`, each feature except the last belongs either to a state or to an
    action. `place` is `[W, H]`.
    """

    def __init__(
        self, embeds: Tensor, position: Tensor, norms: tuple[nn.LayerNorm, nn.LayerNorm]
    ) -> None:
        steps = embeds[..., :-1]  # [2, W, F - 1], [2, W, H]
        places = embeds[..., -1:] + position
        c = _centred(norms[0].bias.double()[:, None])
        width = len(position)
        (ce, me), (cp, mp) = ((_centred(x), _mixed(norms[0], x)) for x in (steps, places))
        squares = torch.stack([(e.mT @ e).sum(0) for e in (ce, me)])  # [2, F - 1, F - 1]
        kinds = F.pad((steps != 0).any(1).double(), (0, 1))  # [2, F]
        of_steps = [2 * e.mT @ p for e, p in ((ce, cp), (me, mp))]  # [2, F - 1, H]
        of_steps.append((2 * me.mT @ c).expand_as(of_steps[0]))
        own_squares = [cp.square().sum(1) + width * norms[0].eps, mp.square().sum(1)]
        own_squares.append(2 * (c.T @ mp)[:, 0])
        by_form = [
            torch.cat([e, p[:, None]], dim=1) for e, p in zip(of_steps, own_squares, strict=True)
        ]
        # [2 F, F]: `squares·f`, times `f`, has the parts of both squared lengths.
        self.squares = F.pad(squares / width, (0, 1, 0, 1)).flatten(0, 1)
        # [6, 2 F]: adds those parts up, for each form by kind; nothing for the last form.
        self.sums = F.pad(torch.block_diag(kinds, kinds), (0, 0, 0, 2))
        self.places = torch.cat(by_form) / width  # [6, F, H]: `f·places` is what each place adds
        self.offset = (c.square().sum() / width + norms[1].eps).float()

    def __call__(self, steps: Tensor, stride: int = 1) -> tuple[Tensor, Tensor]:
        """Compute `α` and `β`, `[C, 2, H]`, of windows in steps `[F, R]`, `stride` steps apart."""
        steps = steps.double()
        length = self.places.shape[2]
        parts = (self.squares @ steps).unflatten(0, (2, -1)) * steps  # [2, F, R]
        window_sums = (self.sums @ parts.flatten(0, 1)).unfold(1, length, stride)  # [6, C, H]
        windows = steps.unfold(1, length, stride)  # [F, C, H]
        if stride >= length:  # few windows, which share no step
            of_places = (self.places[:, :, None] * windows).sum(1)  # [6, C, H]
        else:
            by_place = torch.bmm(self.places.movedim(2, 0), windows.movedim(2, 0))  # [H, 6, C]
            of_places = by_place.movedim(0, 2)
        forms = (window_sums + of_places).to(torch.float32, memory_format=torch.contiguous_format)
        centred, mixed, offset = forms.unflatten(0, (3, 2)).transpose(1, 2).unbind()  # [C, 2, H]
        sigma = centred.rsqrt_()  # its inverse
        spread = offset.addcmul_(mixed, sigma)
        beta = torch.addcmul(self.offset, spread, sigma).rsqrt_()
        return sigma.mul_(beta), beta


@final
class OneBlock:
    """Computes rewards of windows by a model of one block with weights that no longer change.

    Without its line in `preferl.registry.ENGINES`, `PreferenceTransformer` computes the same
    numbers in 84 times the time. The sources of attention are the features of a state and of an
    action (with a 1 at their end for biases), places, and `c`. `query` maps a normalised token to
    each head's query for these sources, `[C, heads * N]`. `value` maps the numbers that each head
    takes from the sources to the numbers that are added to the token. `parts` splits `heads * N` by
    source.
    """

    @torch.no_grad()
    def __init__(self, model: "PreferenceTransformer") -> None:
        self._model = model
        block = model.blocks[0]
        norms = (model.input_norm, block.norm1)
        embeds = embeddings(model.state_embed, model.action_embed)  # [2, W, F]
        self.places = model.time_embed.weight[: model.context + 1]  # [H + 1, W], 0 for padding
        positions = self.places[1:].double().T  # [W, H]
        c = _centred(norms[0].bias.double()[:, None])
        sources = torch.cat([*(_mixed(norms[0], part) for part in (*embeds, positions)), c], dim=1)
        sources = sources * norms[1].weight.double()[:, None]  # [W, N]

        heads = model.config.heads
        q, k, v = (w.unflatten(0, (heads, -1)) for w in block.attn.qkv.weight.double().chunk(3))
        q_bias, _, v_bias = block.attn.qkv.bias.double().chunk(3)
        keys = k @ sources / k.shape[1] ** 0.5  # [heads, D, N]
        values = v @ sources
        output_weight = block.attn.out.weight.double().unflatten(1, (heads, -1))  # [W, heads, D]
        sizes = [2 * embeds.shape[2], model.context, 1]
        query = torch.einsum("hde,hdn->hne", q, keys)
        query_bias = torch.einsum("hd,hdn->hn", q_bias.view(heads, -1), keys)
        value = torch.einsum("ehd,hdn->hne", output_weight, values)
        constant = v.flatten(0, 1) @ norms[1].bias.double() + v_bias  # probabilities add up to 1
        value_bias = output_weight.flatten(1) @ constant + block.attn.out.bias
        self.scales = Scales(embeds, positions, norms)
        self.state = embeds[0].T.float().contiguous()  # [F, W] features to a state's embedding
        self.query = affine(*(_by_source(part, sizes).float() for part in (query, query_bias)))
        self.value = affine(_by_source(value, sizes).T.float(), value_bias.float())
        self.parts = [heads * size for size in sizes]
        self.norms = [normalisation(norm) for norm in (*norms, block.norm2)]
        self.perceptron = perceptron(block.mlp)
        self.reward = [normalisation(model.final_norm)]
        if model.config.head == "plain":
            self.reward += perceptron(model.head)
        else:
            self.reward.append(affine(model.pref_proj.weight[-1:], model.pref_proj.bias[-1:]))

    def full_windows(self, features: Tensor, steps: Tensor) -> Tensor:
        """Compute rewards `[B]` of windows that end at neighbouring steps of features `[T, F]`."""
        first = int(steps[0])
        end = int(steps[-1]) + 1
        rewards = self.after_windows(features[first + 1 - self._model.context : end])
        return rewards[steps.to(features.device) - first]

    def __call__(self, features: Tensor, mask: BoolArray) -> Tensor:
        """Map features `[B, H, F]` and mask `[B, H]` to rewards `[1, B]` of the last steps.

        The real steps of a padded window are moved to its first places.
        """
        context = self._model.context
        if mask.shape[1] != context:
            return self._model.judge_last(features, mask)
        if mask.all():
            return self.after_windows(features.flatten(0, 1), stride=context)[None]
        lengths = mask.sum(1).clip(1)  # [B]
        rows = np.arange(context) + (context - lengths)[:, None]  # [B, H]
        rows = rows.clip(max=context - 1) + context * np.arange(len(mask))[:, None]
        row_index = torch.from_numpy(rows.ravel()).to(features.device)
        moved = features.flatten(0, 1).index_select(0, row_index)  # [B * H, F]
        window_lengths = torch.from_numpy(lengths).to(features.device)
        return self.after_windows(moved, stride=context, lengths=window_lengths)[None]

    def after_windows(
        self, features: Tensor, stride: int = 1, lengths: Tensor | None = None
    ) -> Tensor:
        """Compute rewards `[C]` after windows in rows `[R, F - 1]` of states and actions.

        Windows begin `stride` rows apart. Their first `lengths` `[C]` rows are real; None means all
        rows.
        """
        context = len(self.places) - 1
        steps = F.pad(features.T, (0, 0, 0, 1), value=1.0)  # [F, R]
        if lengths is None:
            last = steps[:, context - 1 :: stride]
            position = self.places[context]
        else:
            begins = torch.arange(len(lengths), device=lengths.device) * stride
            last = steps[:, begins + lengths - 1]
            position = self.places[lengths]
        first, before_attention, before_perceptron = self.norms
        tokens = first(torch.addmm(position, last.T, self.state))
        tokens = tokens + self.attend(before_attention(tokens), steps, stride, lengths)
        tokens = tokens + through(self.perceptron, before_perceptron(tokens))
        return through(self.reward, tokens)[:, 0]

    def attend(
        self, tokens: Tensor, steps: Tensor, stride: int = 1, lengths: Tensor | None = None
    ) -> Tensor:
        """Compute what attention adds to the last tokens `[C, W]` of windows of steps `[F, R]`."""
        count = len(tokens)
        heads = self.parts[2]
        length = len(self.places) - 1
        windows = steps.unfold(1, length, stride).transpose(0, 1)  # [C, F, H] without a copy
        alpha, beta = (scale[:, None] for scale in self.scales(steps, stride))  # [C, 1, 2, H]
        query_parts = self.query(tokens).split(self.parts, dim=1)
        of_features = torch.bmm(query_parts[0].unflatten(1, (2 * heads, -1)), windows)
        logits = of_features.unflatten(1, (heads, 2))  # [C, heads, 2, H]
        logits.add_(query_parts[1].unflatten(1, (heads, 1, -1))).mul_(alpha)
        logits.addcmul_(beta, query_parts[2][..., None, None])
        if lengths is not None:
            step_numbers = torch.arange(length, device=lengths.device)
            logits.masked_fill_((step_numbers >= lengths[:, None])[:, None, None], -torch.inf)
        shares = logits.flatten(2).softmax(-1)  # [C, heads, 2 * H]
        weighted = shares.view_as(logits) * alpha
        attended = [
            torch.bmm(weighted.flatten(1, 2), windows.mT),  # [C, heads * 2, F]
            weighted.sum(2),  # [C, heads, H]
            torch.bmm(shares, beta.reshape(count, -1, 1)),  # [C, heads, 1]
        ]
        return self.value(torch.cat([part.flatten(1) for part in attended], dim=1))


def affine(weight: Tensor, bias: Tensor) -> Rows:
    """Return a linear layer as a function; weights `[out, in]` are stored for few rows."""
    return partial(torch.addmm, bias, mat2=weight.T.contiguous())


def normalisation(norm: nn.LayerNorm) -> Rows:
    """Return a layer normalisation as a function."""
    settings: Any = {"weight": norm.weight, "bias": norm.bias, "eps": norm.eps}
    return partial(torch.layer_norm, normalized_shape=norm.normalized_shape, **settings)


def perceptron(layers: Perceptron) -> list[Rows]:
    """Return the layers of a perceptron as functions, in order."""
    first, second = (affine(layer.weight, layer.bias) for layer in (layers.fc1, layers.fc2))
    return [first, IN_PLACE[layers.activation], second]


def through(layers: list[Rows], rows: Tensor) -> Tensor:
    """Apply layers to rows, one after another."""
    for layer in layers:
        rows = layer(rows)
    return rows


def embeddings(state: nn.Linear, action: nn.Linear) -> Tensor:
    """Return the embeddings `[2, W, F]` of a step's features and of 1: as state, then as action."""
    as_state = F.pad(state.weight, (0, action.in_features))
    as_action = F.pad(action.weight, (state.in_features, 0))
    weights = torch.stack([as_state, as_action])
    biases = torch.stack([state.bias, action.bias])
    return torch.cat([weights, biases[..., None]], dim=2).double()


def _by_source(heads: Tensor, sizes: list[int]) -> Tensor:
    """Reorder `[heads, N, ...]` to `[heads * N, ...]`: all heads of a source, then the next."""
    return torch.cat([part.flatten(0, 1) for part in heads.split(sizes, dim=1)])


def _centred(columns: Tensor) -> Tensor:
    return columns - columns.mean(-2, keepdim=True)


def _mixed(norm: nn.LayerNorm, columns: Tensor) -> Tensor:
    """Multiply columns `[..., W, N]` by `M`: centre, weigh as `norm` does, and centre again."""
    return _centred(_centred(columns) * norm.weight.double()[:, None])
