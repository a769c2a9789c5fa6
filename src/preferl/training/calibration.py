"""Noise and scale of the likelihood, fitted to answers outside of the training data.

Guo et al., "On calibration of modern neural networks" (2017) scale the logits of a fitted
classifier by one number. The share of random answers is a second number (Christiano et al. 2017).
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from preferl.feedback.likelihood import Likelihood
from preferl.training.batches import Answers

PRIOR_ANSWERS: Final = 10.0
"""Weight of the prior on noise, counted in answers, so that few answers cannot move noise far."""

PRIOR_DEVIATION: Final = 1.0
"""Standard deviation of the scale's logarithm around 0; it covers factors from `1 / e` to `e`."""

MOST_EXPECTED: Final = 0.1
"""Most noise that the prior expects (Christiano et al. 2017); the noise of fits may be larger."""

UNKNOWN_NOISE: Final = 0.05
"""Where the search for noise begins if none is configured; at 0, the gradient would be 0."""


def fit_likelihood(logits: Tensor, answers: Answers, *, noise: float) -> Likelihood:
    """Fit noise and scale: they maximise the likelihood of answers times a weak prior.

    The prior is around `noise` and a scale of 1. Without answers, the result is `noise` and a scale
    of 1. An answer has a weight for each member that was not trained on it. The mean probability of
    these members, from their logits `[E, P]`, counts. Ties do not count: they mean that two clips
    are alike, not that answers are random.
    """
    logits, target, weight, votes = _decided(logits, answers)
    if not len(target):
        return Likelihood(noise)
    log_votes = torch.log(votes)
    log_count = torch.log(votes.sum(0))
    begin = torch.tensor(noise or UNKNOWN_NOISE, dtype=torch.float64)
    place = torch.stack([torch.logit(begin), torch.zeros_like(begin)]).requires_grad_()
    search = torch.optim.LBFGS(
        [place], max_iter=100, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def log_mean(logits: Tensor) -> Tensor:
        """Return the logarithm `[P]` of the voting members' mean probability."""
        certain = F.logsigmoid(-place[0])
        random = F.logsigmoid(place[0])
        floor = random - torch.log(torch.tensor(2.0, dtype=logits.dtype))
        member = torch.logaddexp(floor, certain + F.logsigmoid(torch.exp(place[1]) * logits))
        return torch.logsumexp(member + log_votes, 0) - log_count

    def loss() -> Tensor:
        search.zero_grad()
        first = log_mean(logits)
        second = log_mean(-logits)
        total = -(weight * (target * first + (1 - target) * second)).sum()
        share = noise * F.logsigmoid(place[0]) + (1 - noise) * F.logsigmoid(-place[0])
        total = total + (-PRIOR_ANSWERS * share + (place[1] / PRIOR_DEVIATION).square() / 2)
        total.backward()
        return total

    with torch.enable_grad():
        search.step(loss)
    share, scale = place.detach()
    return Likelihood(float(torch.sigmoid(share)), float(torch.exp(scale)))


def expected_noise(logits: Tensor, answers: Answers, *, noise: float) -> float:
    """Estimate the share of answers that are random, under a likelihood with this `noise`.

    This is a step of expectation maximisation (Dempster, Laird and Rubin 1977). A decided answer is
    random with the probability that it came from noise and not from the model. `fit_likelihood`
    explains which logits `[E, P]` count. Soft labels do not count, since none of them is random. A
    weak prior is around `UNKNOWN_NOISE`.

    >>> sure = torch.full((1, 90), 9.0)  # and 9 of 90 answers contradict it
    >>> given = torch.cat([torch.ones(81), torch.zeros(9)])
    >>> answers = Answers(torch.zeros(90, 2), given, torch.ones(1, 90))
    >>> noise = 0.05
    >>> for _ in range(20):
    ...     noise = expected_noise(sure, answers, noise=noise)
    >>> round(noise, 2)
    0.17
    """
    if answers.soft is not None:
        logits = logits[:, ~answers.soft]
        answers = answers[~answers.soft]
    logits, target, weight, votes = _decided(logits, answers)
    first = (votes * torch.sigmoid(logits)).sum(0) / votes.sum(0)
    given = target * first + (1 - target) * (1 - first)
    random = noise / 2 / (noise / 2 + (1 - noise) * given)
    total = (weight * random).sum() + PRIOR_ANSWERS * UNKNOWN_NOISE
    return float(total / (weight.sum() + PRIOR_ANSWERS))


def _decided(logits: Tensor, answers: Answers) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Select the decided answers that have a vote.

    Returns their logits `[E, D]`, preferences `[D]`, weights `[D]` and votes `[E, D]`.
    """
    votes = answers.weight > 0
    weight = answers.weight.amax(0)
    preference = answers.preference
    counts = votes.any(0) & (preference != 0.5) & ~preference.isnan()

    def kept(column: Tensor) -> Tensor:
        return column[..., counts].detach().double().cpu()

    return kept(logits), kept(preference), kept(weight), kept(votes.expand_as(logits))
