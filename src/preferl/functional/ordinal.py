"""The likelihood of ratings: cumulative logits over ordered levels (proportional odds).

McCullagh 1980, "Regression Models for Ordinal Data", section 2. White et al. 2024, "Rating-based
Reinforcement Learning" also fit rewards to ratings of single clips.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def ordered_thresholds(free: Tensor) -> Tensor:
    """Turn free numbers `[..., K]` into rising thresholds: the first number, then softplus gaps.

    >>> ordered_thresholds(torch.tensor([-1.0, 0.0, 0.0])).tolist()  # softplus(0) is log 2
    [-1.0, -0.3068528175354004, 0.3862943649291992]
    """
    return torch.cat([free[..., :1], F.softplus(free[..., 1:])], dim=-1).cumsum(-1)


def rating_loss(
    scores: Tensor, lower: Tensor, upper: Tensor, levels: Tensor, *, noise: float = 0.0
) -> Tensor:
    """Compute minus the logarithm of the probability of each rating, `[..., R]`.

    A clip with score `s` gets at most level `k` with probability `sigmoid(t_k - s)`. A level
    between the thresholds `lower` and `upper` therefore has probability `noise / levels + (1 -
    noise) (sigmoid(upper - s) - sigmoid(lower - s))`. An outcome is a rating with two levels:
    success has probability `sigmoid(s - t)` without noise.

    Args:
        scores: `[..., R]` scores of the rated clips, the same as in the logits of comparisons.
        lower: `[..., R]` threshold below each rating's level; minus infinity below the lowest
            level.
        upper: `[..., R]` threshold above each level, larger than `lower`; infinity above the
            highest level.
        levels: `[R]` number of levels of the rating's scale.
        noise: share of ratings taken to be random, in [0, 1); random ratings have each level
            equally often.

    >>> loss = rating_loss(
    ...     torch.tensor([0.0, 0.0]), torch.tensor([-1.0, 1.0]), torch.tensor([1.0, torch.inf]),
    ...     torch.tensor([3, 3]))
    >>> [round(p, 4) for p in (-loss).exp().tolist()]  # sigmoid(1) - sigmoid(-1), and sigmoid(-1)
    [0.4621, 0.2689]
    """
    # sigmoid(a) - sigmoid(b) = sigmoid(a) sigmoid(-b) (1 - exp(b - a)), exact in log space.
    width = torch.log(-torch.expm1(lower - upper))
    log_probability = F.logsigmoid(upper - scores) + F.logsigmoid(scores - lower) + width
    if not noise:
        return -log_probability
    random = math.log(noise) - torch.log(levels)
    return -torch.logaddexp(random, math.log1p(-noise) + log_probability)
