"""Penalties by hand, and the rule that holds two losses in a band."""

import json

import pytest
import torch

from preferl.configs import from_json, to_json
from preferl.errors import ConfigError
from preferl.training import AdaptivePenalty

WEIGHTS = [torch.tensor([[1.0, -2.0]], requires_grad=True), torch.tensor([3.0], requires_grad=True)]


@pytest.mark.parametrize(("norm", "expected"), [(1, 0.6), (2, 1.4), (3, 3.6)])
def test_penalties_by_hand(norm, expected):
    assert AdaptivePenalty(0.1, norm=norm).of(WEIGHTS).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("training", "validation", "expected"),
    [
        (1.0, 1.6, 2.5),
        (1.0, 1.5, 2.0),
        (1.0, 1.0, 1.5),
        (0.1, 0.16, 2.5),  # only the ratio counts
        (1.0, float("nan"), 2.0),
    ],
)
def test_the_strength_follows_the_ratio_of_losses(training, validation, expected):
    penalty = AdaptivePenalty(2.0, band=(1.1, 1.5), factor=0.25)
    assert penalty.after(training, validation).strength == pytest.approx(expected)
    assert penalty.strength == 2.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strength": -1.0}, "penalty strength"),
        ({"norm": 0.5}, "penalty norm: expected at least 1"),
        ({"measure": "entropy"}, "penalty: expected one of power.*'entropy'"),
        ({"measure": lambda weights: weights}, "penalty: expected a function or class with a name"),
        ({"strength": 1.0, "band": (1.5, 1.1)}, "penalty band"),
        ({"band": (1.1, 1.5)}, "more than 0 with a band"),
    ],
)
def test_settings_out_of_range_are_named(settings, words):
    with pytest.raises(ConfigError, match=words):
        AdaptivePenalty(**settings)


def largest(parameters):
    """The largest weight."""
    return torch.cat([weights.abs().flatten() for weights in parameters]).max()


def each(parameters):
    """Not one number."""
    return torch.cat([weights.flatten() for weights in parameters])


def test_a_measure_of_ones_own(no_others):
    penalty = AdaptivePenalty(0.5, measure=largest)
    assert penalty.of(WEIGHTS).item() == 1.5
    written = json.loads(json.dumps(to_json(penalty)))
    assert written["measure"] == f"{__name__}:largest"
    assert from_json(AdaptivePenalty, written) == penalty
    assert penalty.after(1.0, 2.0) == penalty


def test_a_measure_that_is_not_one_number_is_refused(no_others):
    with pytest.raises(ConfigError, match=r"each: expected a tensor of one number, got .*\[3\]"):
        AdaptivePenalty(0.5, measure=each).of(WEIGHTS)
