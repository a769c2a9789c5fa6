"""Cumulative logits: numbers by hand, gradients, and thresholds that scipy finds, too."""

import numpy as np
import torch

from preferl.functional import ordered_thresholds, rating_loss

INF = float("inf")


def losses(scores, lower, upper, levels, noise=0.0):
    columns = [torch.tensor(column, dtype=torch.float64) for column in (scores, lower, upper)]
    return rating_loss(*columns, torch.tensor(levels), noise=noise)


def test_probabilities_of_levels_are_those_of_the_formula():
    """Three levels of thresholds -1 and 2, of a clip with score 0.5, then success above 1."""
    lower = [-INF, -1.0, 2.0, 1.0]
    upper = [-1.0, 2.0, INF, INF]
    at_most = [1 / (1 + np.exp(1.5)), 1 / (1 + np.exp(-1.5))]
    expected = [at_most[0], at_most[1] - at_most[0], 1 - at_most[1], 1 / (1 + np.exp(0.5))]
    levels = [3, 3, 3, 2]
    shown = torch.exp(-losses([0.5] * 4, lower, upper, levels))
    np.testing.assert_allclose(shown, expected, rtol=1e-12)
    noisy = torch.exp(-losses([0.5] * 4, lower, upper, levels, noise=0.3))
    np.testing.assert_allclose(noisy, 0.3 / np.array(levels) + 0.7 * np.array(expected))


def test_gradients_are_exact_however_absurd_the_rating_is():
    bounds = [[-INF, 0.0, 1.0, 2.0], [0.0, 1.0, 2.0, INF]]
    scores = torch.tensor([0.3, -0.7, 1.9, 2.5], dtype=torch.float64, requires_grad=True)
    lower, upper = (torch.tensor(b, dtype=torch.float64) for b in bounds)
    levels = torch.tensor([4] * 4)
    assert torch.autograd.gradcheck(lambda s: rating_loss(s, lower, upper, levels), scores)
    far = torch.tensor([-500.0, 500.0], dtype=torch.float64, requires_grad=True)
    rating_loss(
        far, torch.tensor([1.0, -INF]), torch.tensor([2.0, 1.0]), levels[:2]
    ).sum().backward()
    np.testing.assert_allclose(far.grad, [-1.0, 1.0])


def test_thresholds_rise_and_have_gradients():
    free = torch.tensor([[0.5, -3.0, 0.0, 4.0]], dtype=torch.float64, requires_grad=True)
    thresholds = ordered_thresholds(free)
    np.testing.assert_allclose(
        thresholds[0].detach(), 0.5 + np.cumsum([0, *np.log1p(np.exp([-3.0, 0.0, 4.0]))])
    )
    assert torch.autograd.gradcheck(ordered_thresholds, free)
