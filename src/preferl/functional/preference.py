"""From rewards to the likelihood of an answer: pool steps, combine members, compare scores.

The likelihood is that of Bradley and Terry (1952) and Christiano et al. (2017). It works on logits
in log space. Even a comparison that the model finds absurd then has an exact gradient.
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
"""Combines members' rewards `[E, ...]` to `[...]`."""


def pool(rewards: Tensor, mask: Tensor, pooling: Pooling = "sum", discount: float = 1.0) -> Tensor:
    """Sum or average the real steps' rewards, discounted from the first real step on.

    Args:
        rewards: `[..., B, L]`
        mask: `[B, L]` true where a step is real; real steps come last.
        pooling: `"sum"` scores a segment by its return (Christiano et al. 2017, equation 1).
            `"mean"` takes length out of the comparison.
        discount: weight of each step relative to the step before, in (0, 1].

    Returns:
        `[..., B]`; 0 where no step is real.

    >>> pool(torch.tensor([[9.0, 1.0, 2.0]]), torch.tensor([[False, True, True]]),
    ...      discount=0.5).tolist()
    [2.0]
    """
    # A masked place may hold any finite number; where() also keeps its gradient out.
    weighted = torch.where(mask, rewards, 0.0)
    if pooling == "sum" and discount == 1.0:
        return weighted.sum(-1)
    weight = mask.to(rewards.dtype)
    if discount != 1.0:
        position = (mask.cumsum(-1) - 1).clamp(min=0)
        weight = weight * weight.new_full((), discount) ** position
        weighted = weighted * weight
    total = weighted.sum(-1)
    # The first real step weighs 1, so the bound only matters if no step is real.
    return total if pooling == "sum" else total / weight.sum(-1).clamp(min=1)


def mean(rewards: Tensor) -> Tensor:
    """Return the members' mean: `[E, ...]` to `[...]`."""
    return rewards.mean(0)


def lower_bound(deviations: float = 1.0) -> "partial[Tensor]":
    """Return a function: mean minus `deviations` standard deviations over members.

    It is pessimistic where members disagree. Negative `deviations` reward disagreement, like an
    exploration bonus. Squares are divided by `E`. Imitation's `AddSTDRewardWrapper(alpha)` takes
    members as a sample and divides by `E - 1`. It equals `lower_bound(-alpha * sqrt(E / (E - 1)))`,
    so 1.22 for `alpha = -1` with three members.

    >>> lower_bound(1.0)(torch.tensor([[0.0], [2.0]])).tolist()
    [0.0]
    """
    return partial(_lower_bound, deviations=deviations)


def _lower_bound(rewards: Tensor, deviations: float) -> Tensor:
    return rewards.mean(0) - deviations * rewards.std(0, correction=0)


def preference_logits(scores: Tensor) -> Tensor:
    """Return log-odds that the first of each pair is preferred: scores `[..., P, 2]` to `[..., P]`.

    >>> preference_logits(torch.tensor([[3.0, 1.0]])).tolist()
    [2.0]
    """
    return scores[..., 0] - scores[..., 1]


def preference_probability(logits: Tensor, *, noise: float = 0.0) -> Tensor:
    """Return the probability that the first is preferred, by a teacher who errs at random.

    `noise` is the share of answers given uniformly at random, in [0, 1] (Christiano et al. 2017,
    section 2.2.3 assume 0.1).

    >>> preference_probability(torch.tensor([0.0, 100.0]), noise=0.1).tolist()
    [0.5, 0.949999988079071]
    """
    return noise / 2 + (1 - noise) * torch.sigmoid(logits)


AnswerLoss = Callable[[Tensor, Tensor], Tensor]
"""Maps logits `[..., P]` and preferences `[P]` to the loss of each answer, `[..., P]`."""


def cross_entropy(logits: Tensor, preference: Tensor, *, noise: float = 0.0) -> Tensor:
    """Return minus the log probability of each answer: `[..., P]` and `[P]` to `[..., P]`.

    With `q = sigmoid(logits)` and noise `ε`, an answer that the first is preferred has probability
    `ε/2 + (1 - ε) q`. The noise floor is inside the logarithm, so it changes gradients: a
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
    """Return (probability - preference)²: `[..., P]` and `[P]` to `[..., P]` (Brier 1950).

    It is at most 1, and its gradient vanishes where the model is sure. A wrong answer therefore
    costs less than with the cross-entropy. But a model that is sure of a mistake is also corrected
    less.

    >>> squared_error(torch.zeros(2), torch.tensor([1.0, 0.5])).tolist()
    [0.25, 0.0]
    """
    return (preference_probability(logits, noise=noise) - preference).square()


def contrastive_loss(
    first: Tensor, second: Tensor, preference: Tensor, *, bias: float = 1.0
) -> Tensor:
    """Return the loss of answers from scores of both segments: `[..., P]` twice to `[..., P]`.

    If the preferred segment has score `a` and the other has `b`, the loss is
    `-log(exp(a) / (exp(a) + exp(bias b)))` (Hejna et al. 2024, "Contrastive Preference Learning",
    section 3.2). With a bias of 1, it is the cross-entropy of their difference. With a bias below
    1, two low scores cost more than two high scores with the same difference. This keeps a policy
    near actions that are in the data.

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
    """Return the mean loss of answers, one number per member; by default the cross-entropy.

    Args:
        logits: `[..., P]`
        preference: `[P]` in [0, 1]; 0.5 pulls the two scores together. NaN (declined) is ignored.
        weight: `[P]` or `[..., P]`; ones by default.
        noise: `ε` of the cross-entropy, in [0, 1).
        loss: loss of each answer, instead of the cross-entropy; it also gets `noise`.

    Returns:
        `[...]` weighted sum divided by `P`. With this divisor, a minibatch's gradient does not
        depend on its size, and bootstrap weights keep their meaning.

    Raises:
        ConfigError: the loss returns numbers of another shape than that of the logits.

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
    """Return the share of decided answers that the model expects; an undecided model gets half.

    Logits `[..., P]` and preferences `[P]` become `[...]`. Ties and declined answers do not count.
    Without decided answers, the result is NaN.

    >>> preference_accuracy(torch.tensor([2.0, -1.0, 0.0]), torch.tensor([1.0, 1.0, 0.5])).item()
    0.5
    """
    side = torch.sign(torch.nan_to_num(preference, nan=0.5) - 0.5)
    right = (torch.sign(logits) * side + 1) / 2
    decided = side != 0
    return (right * decided).sum(-1) / decided.sum(-1)
