"""Many members to one reward."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

Combine = Callable[[Tensor], Tensor]
"""`[E, ...]` to `[...]`."""


def mean(rewards: Tensor) -> Tensor:
    """The members' mean: `[E, ...]` to `[...]`."""
    return rewards.mean(0)


def lower_bound(deviations: float = 1.0) -> "partial[Tensor]":
    """Mean minus some standard deviations over members: a pessimist where they disagree.

    Negative `deviations` reward disagreement, as exploration bonuses do. Squares are divided by
    `E`. Imitation's `AddSTDRewardWrapper(alpha)` takes members as a sample and divides by `E - 1`:
    it is `lower_bound(-alpha * sqrt(E / (E - 1)))`, so 1.22 for `alpha = -1` with three members.

    >>> import torch
    >>> lower_bound(1.0)(torch.tensor([[0.0], [2.0]])).tolist()
    [0.0]
    """
    return partial(_lower_bound, deviations=deviations)


def _lower_bound(rewards: Tensor, deviations: float) -> Tensor:
    return rewards.mean(0) - deviations * rewards.std(0, correction=0)
