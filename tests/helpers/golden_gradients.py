"""Which numbers of a model the loss depends on: only those say whether two trainings are the same.

What shifts the scores of both segments alike, or all keys of a row of attention, has no gradient
but rounding noise. Adam divides that by its own size and takes steps as long as any other, so that
two correct trainings end with different numbers there.
"""

from copy import deepcopy
from unittest import mock

import numpy as np
import torch
from torch import Tensor

ROUNDING = 1e-12
"""Of the largest gradient, in float64: far above rounding noise, far below any real gradient."""

PERTURBATION = 1e-5
"""Of parameters, relative: some hundred roundings of single precision."""


def doubled(model):
    """A copy that computes in double precision, from inputs that are rounded as before."""
    twin = deepcopy(model).double()
    twin.encoder.register_forward_hook(lambda _, __, features: features.double())
    return twin


def determined(
    model,
    places,
    losses,
    scores,
):
    """For each named parameter, true where its number after training is not rounding noise.

    Args:
        model: left as it is.
        places: names to views of a model's parameters.
        losses: all that training goes by.
        scores: the sum of all scores that the losses compare.
    """
    slopes = places(_gradients(doubled(model), losses))
    limit = ROUNDING * max(float(slope.max()) for slope in slopes.values())
    # What no step reaches, such as a place beyond all windows, is exactly flat and never moves.
    reached = places(_gradients(doubled(model), [scores]))
    return {
        name: ((slope > limit) | ((slope == 0) & (reached[name] == 0))).numpy()
        for name, slope in slopes.items()
    }


def _gradients(model, numbers):
    """The model with the largest absolute gradient of any number in place of each parameter."""
    largest = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for number in numbers:
        model.zero_grad()
        with mock.patch.object(Tensor, "float", Tensor.double):  # models round in places
            number(model).backward()
        for most, parameter in zip(largest, model.parameters(), strict=True):
            if parameter.grad is not None:
                torch.maximum(most, parameter.grad.abs(), out=most)
    with torch.no_grad():
        for most, parameter in zip(largest, model.parameters(), strict=True):
            parameter.copy_(most)
    return model.requires_grad_(False)


def rounding_spread(train, model, found):
    """How far apart correct trainings end, number by number: a few that round otherwise.

    A gradient that is small beside its rounding, or a unit near its kink, sends Adam another way.

    Args:
        train: trains a model in place, summing in an order of each seed; its numbers by name.
        model: before training; left as it is.
        found: the numbers that it came to.
    """
    spread = {name: np.zeros(np.shape(numbers)) for name, numbers in found.items()}
    for seed in range(1, 9):
        generator = torch.Generator().manual_seed(seed)
        twin = deepcopy(model)
        with torch.no_grad():
            for parameter in twin.parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.mul_(1 + PERTURBATION * noise)
        for name, numbers in train(twin, seed).items():
            spread[name] = np.maximum(spread[name], np.abs(np.asarray(numbers) - found[name]))
    return spread
