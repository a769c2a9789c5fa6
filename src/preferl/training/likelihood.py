"""Fits noise and scale of the likelihood to answers that no weight was fitted to.

Guo et al., "On calibration of modern neural networks" (2017) scale the logits of a fitted
classifier by one number; the share of random answers is a second one (Christiano et al. 2017).
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from preferl.feedback.likelihood import Likelihood

PRIOR_ANSWERS: Final = 10.0
"""Answers that the configured noise counts as much as, so that few answers cannot move it far."""

PRIOR_DEVIATION: Final = 1.0
"""Of the scale's logarithm around 0: a factor of `e` either way needs no excuse."""

UNKNOWN_NOISE: Final = 0.05
"""Where the search for noise begins if none is configured; at 0 there would be no gradient."""


def fit_likelihood(
    logits: Tensor,
    preference: Tensor,
    weight: Tensor,
    votes: Tensor,
    *,
    noise: float,
) -> Likelihood:
    """The noise and scale under which answers were likeliest, given what members say of them.

    The members that may vote on an answer give their mean probability, as those of an ensemble
    do. Ties do not count: they say that two clips are alike, not that answers are random.

    Args:
        logits: `[E, P]`
        preference: `[P]` in [0, 1].
        weight: `[P]` how much each answer counts.
        votes: `[E, P]` true where a member has not been trained on an answer.
        noise: configured share of random answers, in [0, 1): what holds without answers, and
            nearly so with few.

    Returns:
        The two numbers that maximise the likelihood times a weak prior around that noise and a
        scale of 1.
    """
    counts = votes.any(0) & (preference != 0.5) & ~preference.isnan() & (weight > 0)
    if not counts.any():
        return Likelihood(noise)
    logits = logits[:, counts].detach().double().cpu()
    votes = votes[:, counts].double().cpu()
    target = preference[counts].double().cpu()
    weight = weight[counts].double().cpu()
    begin = torch.tensor(noise or UNKNOWN_NOISE, dtype=torch.float64)
    place = torch.stack([torch.logit(begin), torch.zeros_like(begin)]).requires_grad_()
    search = torch.optim.LBFGS(
        [place], max_iter=100, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        search.zero_grad()
        first, second = (_log_mean(sign * logits, votes, place) for sign in (1, -1))
        total = -(weight * (target * first + (1 - target) * second)).sum()
        total = total + _prior(place, noise)
        total.backward()
        return total

    with torch.enable_grad():
        search.step(loss)
    share, scale = place.detach()
    return Likelihood(float(torch.sigmoid(share)), float(torch.exp(scale)))


def _log_mean(logits: Tensor, votes: Tensor, place: Tensor) -> Tensor:
    """`[P]` logarithm of the voting members' mean probability."""
    certain, random = F.logsigmoid(-place[0]), F.logsigmoid(place[0])
    floor = random - torch.log(torch.tensor(2.0, dtype=logits.dtype))
    each = torch.logaddexp(floor, certain + F.logsigmoid(torch.exp(place[1]) * logits))
    return torch.logsumexp(each + torch.log(votes), 0) - torch.log(votes.sum(0))


def _prior(place: Tensor, noise: float) -> Tensor:
    """Minus the logarithm of the prior's density, up to a constant."""
    share = noise * F.logsigmoid(place[0]) + (1 - noise) * F.logsigmoid(-place[0])
    return -PRIOR_ANSWERS * share + (place[1] / PRIOR_DEVIATION).square() / 2
