"""Values under rewards that are linear in features, and the regret of segments.

Knox et al. (2024), "Models of human preference for learning reward functions", section 3; Dayan
(1993) for successor features, Barreto et al. (2017), "Successor features for transfer in
reinforcement learning", for the best of several policies.

Letters beside those of `preferl.shapes`: `X` states, `U` actions, `F` features, `G` policies, `W`
vectors of reward weights.
"""

import torch
from torch import Tensor

from preferl.functional.preference import pool


def successor_features(
    transitions: Tensor, features: Tensor, policies: Tensor, discount: float
) -> Tensor:
    """Return the features that follow each action under each policy, discounted and summed.

    Args:
        transitions: `[X, U, X]` probability of each next state. If a row sums to less than 1, the
            rest is the probability that the episode terminates.
        features: `[X, U, F]` features of each step.
        policies: `[G, X]` action of each policy in each state.
        discount: weight of each step relative to the step before, in (0, 1).

    Returns:
        `[G, X, U, F]`. Multiplied by the weights of a linear reward, this is the value of an
        action.

    >>> stay = torch.ones(1, 1, 1)  # one state, one action, a feature of 1 for ever
    >>> successor_features(stay, stay, torch.zeros(1, 1, dtype=torch.long), 0.75).item()
    4.0
    """
    state = torch.arange(len(transitions))
    followed = transitions[state, policies]  # [G, X, X]
    identity = torch.eye(len(transitions), dtype=transitions.dtype)
    states = torch.linalg.solve(identity - discount * followed, features[state, policies])
    return features + discount * torch.einsum("xun,gnf->gxuf", transitions, states)


def optimal_policies(
    transitions: Tensor, features: Tensor, weights: Tensor, discount: float
) -> Tensor:
    """Return the best action in each state under each linear reward, by policy iteration.

    The arguments are those of `successor_features`, and weights `[W, F]`. The result is `[W, X]`.

    >>> moves = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    >>> second = torch.tensor([[[0.0], [0.0]], [[1.0], [1.0]]])  # a feature of the second state
    >>> optimal_policies(moves, second, torch.tensor([[1.0], [-1.0]]), 0.5).tolist()
    [[1, 1], [0, 0]]
    """
    reward = torch.einsum("xuf,wf->wxu", features, weights)
    policies = reward.argmax(-1)
    while True:
        successors = successor_features(transitions, features, policies, discount)
        values = torch.einsum("wxuf,wf->wxu", successors, weights)
        present = values.gather(-1, policies[..., None])
        # Without a tolerance, rounding errors could change the best action for ever.
        tolerance = 1e3 * torch.finfo(values.dtype).eps * values.abs().amax()
        better = values.amax(-1) > present.squeeze(-1) + tolerance
        if not better.any():
            return policies
        policies = torch.where(better, values.argmax(-1), policies)


def advantages(successors: Tensor, weights: Tensor) -> Tensor:
    """Return the advantage of each action under each linear reward: 0 for the best, else negative.

    After an action, the policy is followed that is best for it. This gives the action's value. The
    best action of a state has advantage 0. If an optimal policy is among the policies, these are
    the optimal advantages. They are differentiable in the weights.

    Args:
        successors: `[G, X, U, F]`, see `successor_features`. If states are continuous, let each
            recorded step be a separate state, whose first action is the one that was taken.
        weights: `[W, F]` weights of rewards.

    Returns:
        `[W, X, U]`, at most 0.
    """
    values = torch.einsum("gxuf,wf->wgxu", successors, weights).amax(1)
    return values - values.amax(-1, keepdim=True)


def segment_regret(advantage: Tensor, states: Tensor, actions: Tensor, mask: Tensor) -> Tensor:
    """Return the regret of each segment: how far it falls behind optimal behaviour.

    Args:
        advantage: `[W, X, U]` advantages of the optimal policy; see `advantages`.
        states: `[..., L]` states of the segments' steps.
        actions: `[..., L]` actions of these steps.
        mask: `[..., L]` true where a step is real.

    Returns:
        `[W, ...]` minus the sum of advantages (Knox et al. 2024, equation 5). It is at least 0. It
        is 0 for segments with only optimal actions, however little they return.

    >>> advantage = torch.tensor([[[0.0, -1.0]]])
    >>> actions = torch.tensor([[0, 0], [0, 1]])
    >>> real = torch.ones(2, 2, dtype=torch.bool)
    >>> segment_regret(advantage, torch.zeros_like(actions), actions, real).tolist()
    [[0.0, 1.0]]
    """
    return pool(-advantage[:, states, actions], mask)
