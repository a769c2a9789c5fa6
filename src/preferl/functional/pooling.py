"""Step rewards to one score per segment."""

from typing import Literal

import torch
from torch import Tensor

Pooling = Literal["sum", "mean"]


def pool(rewards: Tensor, mask: Tensor, pooling: Pooling = "sum", discount: float = 1.0) -> Tensor:
    """Sum or average the real steps' rewards, discounted from the first real step on.

    Args:
        rewards: `[..., B, L]`
        mask: `[B, L]` true where a step is real; real steps come last.
        pooling: `"sum"` scores a segment by its return (Christiano et al. 2017, equation 1);
            `"mean"` takes length out of the comparison.
        discount: weight of each step relative to the one before, in (0, 1].

    Returns:
        `[..., B]`; 0 where no step is real.

    >>> pool(torch.tensor([[9.0, 1.0, 2.0]]), torch.tensor([[False, True, True]]),
    ...      discount=0.5).tolist()
    [2.0]
    """
    # A masked place may hold anything finite; where() also keeps its gradient out.
    weighted = torch.where(mask, rewards, 0.0)
    weight = mask.to(rewards.dtype)
    if discount != 1.0:
        position = (mask.cumsum(-1) - 1).clamp(min=0)
        weight = weight * weight.new_tensor(discount) ** position
        weighted = weighted * weight
    total = weighted.sum(-1)
    # The first real step weighs 1, so the bound only matters where none is real.
    return total if pooling == "sum" else total / weight.sum(-1).clamp(min=1)
