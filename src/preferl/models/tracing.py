"""Rewards of whole episodes: every step paid for the window that ends there.

`T` steps have `T` windows of up to `H` steps. Models that can share work between windows say so by
`TracesEpisodes`; for all others each window is judged on its own. Both give the same numbers.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from preferl.models.base import RewardModel, TracesEpisodes
from preferl.shapes import leaves, take

ROWS = 4096
"""Steps judged at once: enough to keep the processor busy, few enough for its cache."""


def trace_episodes(model: RewardModel, features: Any, lengths: Tensor) -> Tensor:
    """Rewards of the last step of the window that ends at each step, `[E, T]`.

    Args:
        model: in evaluation mode, or dropout is drawn for each window anew.
        features: `[T, F]` of episodes end to end, or a dictionary of such, as the encoder makes
            them.
        lengths: `[K]` steps of each episode; windows never cross from one to the next.

    >>> from gymnasium.spaces import Box
    >>> from preferl.models import MLPReward
    >>> model = MLPReward(Box(-1, 1, (2,)), Box(-1, 1, (1,)), seed=0)
    >>> trace_episodes(model, torch.zeros(5, 3), torch.tensor([2, 3])).shape
    torch.Size([1, 5])
    """
    if isinstance(model, TracesEpisodes):
        return model.trace(features, lengths)
    return trace_windows(model, features, lengths, torch.arange(len(leaves(features)[0])))


@torch.no_grad()
def trace_windows(model: RewardModel, features: Any, lengths: Tensor, steps: Tensor) -> Tensor:
    """The same for chosen steps only, `[E, B]`, each window judged on its own.

    Args:
        model: any.
        features: `[T, F]`
        lengths: `[K]`
        steps: `[B]` rows of `features`.
    """
    position = positions(lengths)
    back = torch.arange(1 - model.context, 1)
    parts = []
    for some in steps.split(max(1, ROWS // model.context)):
        mask = position[some, None] + back >= 0  # [B, H]
        rows = torch.where(mask, some[:, None] + back, some[:, None])
        judged = model.judge(take(features, rows.to(model.device)), mask.to(model.device))
        parts.append(judged.rewards[..., -1])
    return torch.cat(parts, dim=1)


@torch.no_grad()
def trace_beginnings(model: RewardModel, features: Any, lengths: Tensor) -> Tensor:
    """Rewards of the first `H` steps of each episode by one pass over them; `[E, T]`, else 0.

    Only for models whose reward of a step is the same in all windows that begin together, however
    many steps follow.
    """
    rewards = torch.zeros(model.members, int(lengths.sum()), device=model.device)
    starts = lengths.cumsum(0) - lengths
    seen = lengths.clamp(max=model.context)
    for some in torch.arange(len(lengths)).split(max(1, ROWS // model.context)):
        longest = int(seen[some].max())
        ahead = torch.arange(longest) - (longest - seen[some, None])  # [k, longest]
        mask = (ahead >= 0).to(model.device)
        rows = (starts[some, None] + ahead.clamp(min=0)).to(model.device)
        judged = model.judge(take(features, rows), mask)
        rewards[:, rows[mask]] = judged.rewards[:, mask]
    return rewards


def full_windows(lengths: Tensor, context: int, span: int) -> Iterator[Tensor]:
    """Steps after the first `H` of their episode, in parts that lie within `span` rows."""
    late = (positions(lengths) >= context).nonzero()[:, 0]
    _, counts = torch.unique_consecutive(late // span, return_counts=True)
    return iter(late.split(counts.tolist()))


def positions(lengths: Tensor) -> Tensor:
    """`[T]` how many steps of its episode came before each.

    >>> positions(torch.tensor([2, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    starts = lengths.cumsum(0) - lengths
    return torch.arange(int(lengths.sum())) - starts.repeat_interleave(lengths)
