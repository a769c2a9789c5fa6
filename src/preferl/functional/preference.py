"""From rewards to the likelihood of an answer: pool steps, combine members, compare scores.

The likelihood is that of Bradley and Terry (1952) and Christiano et al. (2017). It works on logits
in log space, so that a comparison the model finds absurd still has an exact gradient.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from preferl.errors import ConfigError

Pooling = Literal["sum", "mean"]

Combine = Callable[[Tensor], Tensor]
"""`[E, ...]` to `[...]`."""


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
    if pooling == "sum" and discount == 1.0:
        return weighted.sum(-1)
    weight = mask.to(rewards.dtype)
    if discount != 1.0:
        position = (mask.cumsum(-1) - 1).clamp(min=0)
        weight = weight * weight.new_full((), discount) ** position
        weighted = weighted * weight
    total = weighted.sum(-1)
    # The first real step weighs 1, so the bound only matters where none is real.
    return total if pooling == "sum" else total / weight.sum(-1).clamp(min=1)


def mean(rewards: Tensor) -> Tensor:
    """The members' mean: `[E, ...]` to `[...]`."""
    return rewards.mean(0)


def lower_bound(deviations: float = 1.0) -> "partial[Tensor]":
    """Mean minus some standard deviations over members: a pessimist where they disagree.

    Negative `deviations` reward disagreement, as exploration bonuses do. Squares are divided by
    `E`. Imitation's `AddSTDRewardWrapper(alpha)` takes members as a sample and divides by `E - 1`:
    it is `lower_bound(-alpha * sqrt(E / (E - 1)))`, so 1.22 for `alpha = -1` with three members.

    >>> lower_bound(1.0)(torch.tensor([[0.0], [2.0]])).tolist()
    [0.0]
    """
    return partial(_lower_bound, deviations=deviations)


def _lower_bound(rewards: Tensor, deviations: float) -> Tensor:
    return rewards.mean(0) - deviations * rewards.std(0, correction=0)


def preference_logits(scores: Tensor) -> Tensor:
    """Log-odds that the first of each pair is preferred: `[..., P, 2]` scores to `[..., P]`.

    >>> preference_logits(torch.tensor([[3.0, 1.0]])).tolist()
    [2.0]
    """
    return scores[..., 0] - scores[..., 1]


def preference_probability(logits: Tensor, *, noise: float = 0.0) -> Tensor:
    """Probability that the first is preferred, by a teacher who errs at random.

    `noise` is the share of answers given uniformly at random, in [0, 1] (Christiano et al. 2017,
    section 2.2.3 assume 0.1).

    >>> preference_probability(torch.tensor([0.0, 100.0]), noise=0.1).tolist()
    [0.5, 0.949999988079071]
    """
    return noise / 2 + (1 - noise) * torch.sigmoid(logits)


AnswerLoss = Callable[[Tensor, Tensor], Tensor]
"""`[..., P]` logits and `[P]` preferences to the loss of each answer, `[..., P]`."""


def cross_entropy(logits: Tensor, preference: Tensor, *, noise: float = 0.0) -> Tensor:
    """Minus the logarithm of the probability of each answer: `[..., P]` and `[P]` to `[..., P]`.

    With `q = sigmoid(logits)` and noise `ε`, an answer that the first is preferred has probability
    `ε/2 + (1 - ε) q`. The noise floor lies inside the logarithm, so it does change gradients: a
    comparison that strongly contradicts the model is treated as a random answer.
    """
    if noise:
        floor = math.log(noise / 2)
        rest = math.log1p(-noise)
        least = logits.new_full((), floor)
        first = torch.logaddexp(least, rest + F.logsigmoid(logits))
        second = torch.logaddexp(least, rest + F.logsigmoid(-logits))
    else:
        first = F.logsigmoid(logits)
        second = F.logsigmoid(-logits)
    return -(preference * first + (1 - preference) * second)


def squared_error(logits: Tensor, preference: Tensor, *, noise: float = 0.0) -> Tensor:
    """Square of probability minus preference: `[..., P]` and `[P]` to `[..., P]` (Brier 1950).

    It is at most 1, and its gradient vanishes where the model is sure: a wrong answer costs less
    than under the cross-entropy, and so does the correction of a model that is sure of a mistake.

    >>> squared_error(torch.zeros(2), torch.tensor([1.0, 0.5])).tolist()
    [0.25, 0.0]
    """
    return (preference_probability(logits, noise=noise) - preference).square()


def contrastive_loss(
    first: Tensor, second: Tensor, preference: Tensor, *, bias: float = 1.0
) -> Tensor:
    """Loss of answers under scores of both segments: `[..., P]` and `[..., P]` to `[..., P]`.

    The preferred one's score `a` and the other's `b` cost `-log(exp(a) / (exp(a) + exp(bias b)))`
    (Hejna et al. 2024, "Contrastive Preference Learning", section 3.2). A bias of 1 is the
    cross-entropy of their difference. Below 1, scores that are low cost more than equally
    different ones that are high: a policy is kept near actions that are in the data.

    >>> high, low = torch.tensor([3.0, -1.0]), torch.tensor([1.0, -3.0])
    >>> [round(one, 4) for one in contrastive_loss(high, low, torch.ones(2), bias=0.5).tolist()]
    [0.0789, 0.4741]
    """
    loss_first = F.softplus(bias * second - first)
    loss_second = F.softplus(bias * first - second)
    return preference * loss_first + (1 - preference) * loss_second


def preference_loss(
    logits: Tensor,
    preference: Tensor,
    weight: Tensor | None = None,
    *,
    noise: float = 0.0,
    loss: AnswerLoss | None = None,
) -> Tensor:
    """Mean loss of answers under the model, by default the cross-entropy, one number per member.

    Args:
        logits: `[..., P]`
        preference: `[P]` in [0, 1]; 0.5 pulls the two scores together; NaN (declined) is ignored.
        weight: `[P]` or `[..., P]`; ones by default.
        noise: `ε` of the cross-entropy, in [0, 1).
        loss: of each answer, in place of the cross-entropy; it takes `noise` itself.

    Returns:
        `[...]` the weighted sum divided by `P`, so that a minibatch's gradient does not depend on
        its size and bootstrap weights keep their meaning.

    Raises:
        ConfigError: the loss gives numbers of another shape than the logits have.

    >>> preference_loss(torch.zeros(1), torch.tensor([1.0])).item()  # log 2
    0.6931471824645996
    """
    answered = ~torch.isnan(preference)
    target = torch.where(answered, preference, 0.5)
    each = cross_entropy(logits, target, noise=noise) if loss is None else loss(logits, target)
    if each.shape != logits.shape:
        raise ConfigError(
            f"loss of answers: expected one number per answer, of shape {[*logits.shape]}, got "
            f"{[*each.shape]}."
        )
    counted = answered if weight is None else torch.where(answered, weight, 0.0)
    return (each * counted).sum(-1) / max(1, preference.shape[-1])


def preference_accuracy(logits: Tensor, preference: Tensor) -> Tensor:
    """Share of decided answers that the model expects; an undecided model gets half.

    Logits `[..., P]` and preferences `[P]` become `[...]`. Ties and declined answers do not count,
    and without decided answers the result is NaN.

    >>> preference_accuracy(torch.tensor([2.0, -1.0, 0.0]), torch.tensor([1.0, 1.0, 0.5])).item()
    0.5
    """
    side = torch.sign(torch.nan_to_num(preference, nan=0.5) - 0.5)
    right = (torch.sign(logits) * side + 1) / 2
    decided = side != 0
    return (right * decided).sum(-1) / decided.sum(-1)
