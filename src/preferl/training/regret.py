"""Rewards from answers that compare regret instead of return (Knox et al. 2024).

People who know a task may prefer the clip with better decisions to the clip that earned more. For
example, they prefer a walk towards the goal that has not arrived yet to a stay beside a small
reward. For such answers, the score of a segment is minus its regret under the reward that is being
learned.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor

from preferl.errors import ConfigError, DataError
from preferl.functional.preference import pool, preference_logits, preference_loss
from preferl.functional.regret import (
    advantages,
    optimal_policies,
    segment_regret,
    successor_features,
)

STARTS: Final = 8
"""Number of random first weights. The likelihood by regret has several maxima; the best counts."""

UPDATES: Final = 300
RATE: Final = 0.1
ROUNDS: Final = 3

PRIOR: Final = 0.01
"""Half the inverse variance of the normal prior of a weight."""

Score = Callable[[Tensor], Tensor]
"""Maps reward weights `[W, F]` to the scores of the segments of each pair, `[W, P, 2]`."""


@final
@dataclass(frozen=True, eq=False)
class LinearTask:
    """A task of finitely many states and actions, whose reward is linear in features of steps.

    Attributes:
        transitions: `[X, U, X]` probability of each next state. If a row sums to less than 1, the
            rest is the probability that the episode terminates.
        features: `[X, U, F]` features of each step.
        discount: weight of each step relative to the step before it, in (0, 1).

    Raises:
        DataError: the shapes do not agree, or probabilities are negative or sum to more than 1.
        ConfigError: the discount is out of range.
    """

    transitions: Tensor
    features: Tensor
    discount: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.discount < 1:
            raise ConfigError(
                f"LinearTask.discount: expected a number above 0 and below 1, got {self.discount}. "
                "Take 0.999 for a task whose episodes end by themselves."
            )
        shape = (*self.transitions.shape[:2], self.transitions.shape[0])
        if self.transitions.shape != shape or self.features.shape[:-1] != shape[:2]:
            raise DataError(
                "LinearTask: expected transitions [X, U, X] and features [X, U, F], got shapes "
                f"{[*self.transitions.shape]} and {[*self.features.shape]}."
            )
        if (self.transitions < 0).any() or (self.transitions.sum(-1) > 1 + 1e-6).any():
            raise DataError(
                "LinearTask.transitions: expected probabilities of at least 0, which sum to at "
                "most 1 over next states; got others."
            )

    def optimal_policies(self, weights: Tensor) -> Tensor:
        """Return the best action in each state under rewards of weights `[W, F]`: `[W, X]`."""
        return optimal_policies(self.transitions, self.features, weights, self.discount)

    def successors(self, policies: Tensor) -> Tensor:
        """Return the successor features of policies `[G, X]`: `[G, X, U, F]`."""
        return successor_features(self.transitions, self.features, policies, self.discount)

    def advantages(self, weights: Tensor) -> Tensor:
        """Return the optimal advantages under the reward of weights `[F]`: `[X, U]`."""
        policy = self.optimal_policies(weights[None])
        return advantages(self.successors(policy), weights[None])[0]


def fit_by_return(
    features: Tensor, mask: Tensor, preference: Tensor, *, noise: float = 0.0, seed: int = 0
) -> Tensor:
    """Return the weights of the linear reward under which preferred segments return more.

    Args:
        features: `[P, 2, L, F]` features of the steps of each pair.
        mask: `[P, 2, L]` true where a step is real.
        preference: `[P]` probability that the first is preferred; NaN is ignored.
        noise: share of answers taken to be random, in [0, 1).
        seed: seed of the first weights.

    Returns:
        `[F]`. In its units, the first of two segments is preferred in 73 of 100 answers if it
        returns 1 more.
    """
    totals = pool(features.movedim(-1, 0), mask)  # [F, P, 2]

    def score(weights: Tensor) -> Tensor:
        return torch.einsum("wf,fps->wps", weights, totals)

    starts = _random_weights(STARTS, features.shape[-1], features.dtype, seed)
    weights, losses = _fit(score, starts, preference, noise)
    return weights[losses.argmin()]


def fit_by_regret(
    task: LinearTask,
    states: Tensor,
    actions: Tensor,
    mask: Tensor,
    preference: Tensor,
    *,
    noise: float = 0.0,
    policies: int = 64,
    seed: int = 0,
) -> Tensor:
    """Return the weights of the linear reward under which preferred segments are regretted less.

    The advantages of a reward need its optimal policy, which changes while the reward is learned. A
    set of policies stands in for it. In the first round, they are optimal under random rewards. In
    the second and third round, policies that are optimal under the rewards of the round before are
    added (section 5 and appendix F of the paper).

    Args:
        task: everything about the task except its reward.
        states: `[P, 2, L]` states of the steps of each pair.
        actions: `[P, 2, L]` actions of these steps.
        mask: `[P, 2, L]` true where a step is real.
        preference: `[P]` probability that the first is preferred; NaN is ignored.
        noise: share of answers taken to be random, in [0, 1).
        policies: number of policies of random rewards. More policies cost time and come nearer to
            each reward's optimal policy.
        seed: seed of random rewards and first weights.

    Returns:
        `[F]`. In its units, the first of two segments is preferred in 73 of 100 answers if it is
        regretted 1 less.

    Raises:
        DataError: the task does not have some of the states or actions.
    """
    for name, numbers, count in zip(
        ("states", "actions"), (states, actions), task.transitions.shape[:2], strict=True
    ):
        if ((numbers < 0) | (numbers >= count))[mask].any():
            raise DataError(
                f"{name} of fit_by_regret: expected numbers from 0 to {count - 1}, got "
                f"{int(numbers[mask].min())} to {int(numbers[mask].max())}."
            )
    states = torch.where(mask, states, 0)
    actions = torch.where(mask, actions, 0)
    size = task.features.shape[-1]
    drawn = _random_weights(STARTS + policies, size, task.features.dtype, seed)
    weights = drawn[:STARTS]
    followed = task.optimal_policies(drawn[STARTS:])
    for _ in range(ROUNDS):
        score = partial(_minus_regret, task.successors(followed), states, actions, mask)
        weights, losses = _fit(score, weights, preference, noise)
        followed = torch.cat([followed, task.optimal_policies(weights)])
    return weights[losses.argmin()]


def _minus_regret(
    successors: Tensor, states: Tensor, actions: Tensor, mask: Tensor, weights: Tensor
) -> Tensor:
    return -segment_regret(advantages(successors, weights), states, actions, mask)


def _random_weights(count: int, size: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Return directions `[count, size]`, evenly over the sphere."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, size, generator=generator, dtype=dtype), dim=-1)


def _fit(score: Score, weights: Tensor, preference: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Climb the posterior from all weights `[W, F]` at once; return them with their losses `[W]`.

    The prior of each weight is normal. It keeps a reward finite even if all answers agree with it.
    """
    weights = weights.clone().requires_grad_()
    optimiser = torch.optim.Adam([weights], lr=RATE)
    for _ in range(UPDATES):
        logits = preference_logits(score(weights))
        losses = preference_loss(logits, preference, noise=noise)
        losses = losses + PRIOR * weights.square().sum(-1) / len(preference)
        optimiser.zero_grad()
        losses.sum().backward()
        optimiser.step()
    return weights.detach(), losses.detach()
