"""Successor features, optimal policies and regret: a corridor by hand."""

import pytest
import torch

from preferl.functional.regret import (
    advantages,
    optimal_policies,
    segment_regret,
    successor_features,
)

LEFT, RIGHT = 0, 1
DISCOUNT = 0.5


def corridor():
    """Three cells; right of the last one the episode ends. Features: [goes left, arrives]."""
    transitions = torch.zeros(3, 2, 3, dtype=torch.float64)
    features = torch.zeros(3, 2, 2, dtype=torch.float64)
    for cell in range(3):
        transitions[cell, LEFT, max(cell - 1, 0)] = 1
        features[cell, LEFT, 0] = 1
    transitions[0, RIGHT, 1] = 1
    transitions[1, RIGHT, 2] = 1
    features[2, RIGHT, 1] = 1
    return transitions, features


def test_successor_features_by_hand():
    policies = torch.tensor([[RIGHT] * 3, [LEFT] * 3])
    right, left = successor_features(*corridor(), policies, DISCOUNT)
    assert right[:, RIGHT].tolist() == [[0, 0.25], [0, 0.5], [0, 1]]
    assert right[:, LEFT].tolist() == [[1, 0.125], [1, 0.125], [1, 0.25]]
    assert left[:, LEFT].tolist() == [[2, 0]] * 3  # 1 + 1/2 + 1/4 + ...
    assert left[:, RIGHT].tolist() == [[1, 0], [1, 0], [0, 1]]


def test_optimal_policies_by_hand():
    weights = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.1, 1.0]], dtype=torch.float64)
    policies = optimal_policies(*corridor(), weights, DISCOUNT)
    # Of the third: for ever left is worth 0.2, and arriving 0.25, 0.5 and 1.
    assert policies.tolist() == [[RIGHT] * 3, [LEFT] * 3, [RIGHT] * 3]


def test_regret_is_what_optimal_actions_would_have_added():
    transitions, features = corridor()
    weights = torch.tensor([[0.1, 1.0]], dtype=torch.float64, requires_grad=True)
    successors = successor_features(transitions, features, torch.tensor([[RIGHT] * 3]), DISCOUNT)
    advantage = advantages(successors, weights)
    # Left of the middle: 0.1 + 0.25 * 0.5, against 0.5.
    assert advantage[0, 1].tolist() == pytest.approx([0.1 + 0.125 - 0.5, 0])
    states = torch.tensor([[0, 1, 2], [7, 1, 0], [7, 0, 0]])
    actions = torch.tensor([[RIGHT] * 3, [9, LEFT, RIGHT], [9, LEFT, LEFT]])
    mask = torch.tensor([[True] * 3, [False, True, True], [False, True, True]])
    segments = torch.where(mask, states, 0), torch.where(mask, actions, 0), mask
    answers = segment_regret(advantage, *segments)[0]
    assert answers.tolist() == pytest.approx([0, 0.275, 2 * (0.25 - 0.1 - 0.125)])
    answers.sum().backward()
    # Each step's regret is the better action's successor features minus the taken one's.
    expected = [-1 - 2, (0.5 - 0.125) + 2 * (0.25 - 0.125)]
    assert weights.grad[0].tolist() == pytest.approx(expected)
