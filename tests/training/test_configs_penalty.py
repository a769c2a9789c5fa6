"""Penalties by hand, and the rule that holds two losses in a band."""

import pytest
import torch

from preferl.errors import ConfigError
from preferl.training import AdaptivePenalty

WEIGHTS = [torch.tensor([[1.0, -2.0]], requires_grad=True), torch.tensor([3.0], requires_grad=True)]


@pytest.mark.parametrize(("norm", "expected"), [(1, 0.6), (2, 1.4)])
def test_penalties_by_hand(norm, expected):
    assert AdaptivePenalty(0.1, norm=norm).of(WEIGHTS).item() == pytest.approx(expected)


def test_the_gradient_of_a_penalty():
    AdaptivePenalty(0.1).of(WEIGHTS).backward()
    torch.testing.assert_close(WEIGHTS[0].grad, torch.tensor([[0.2, -0.4]]))
    torch.testing.assert_close(WEIGHTS[1].grad, torch.tensor([0.6]))


def test_no_strength_is_no_penalty():
    assert AdaptivePenalty().of(WEIGHTS) == 0.0


@pytest.mark.parametrize(
    ("training", "validation", "expected"),
    [
        (1.0, 1.6, 2.5),
        (1.0, 1.5, 2.0),
        (1.0, 1.1, 2.0),
        (1.0, 1.0, 1.5),
        (0.1, 0.16, 2.5),  # only the ratio counts
        (0.0, 1.0, 2.0),
        (float("nan"), 1.0, 2.0),
        (1.0, float("nan"), 2.0),
    ],
)
def test_the_strength_follows_the_ratio_of_losses(training, validation, expected):
    penalty = AdaptivePenalty(2.0, band=(1.1, 1.5), factor=0.25)
    assert penalty.after(training, validation).strength == pytest.approx(expected)
    assert penalty.strength == 2.0


def test_without_a_band_the_strength_stays():
    penalty = AdaptivePenalty(2.0)
    assert penalty.after(0.1, 100.0) is penalty


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strength": -1.0}, "penalty strength"),
        ({"norm": 3}, "penalty norm"),
        ({"factor": 0.0}, "penalty factor"),
        ({"factor": 1.0}, "penalty factor"),
        ({"strength": 1.0, "band": (1.5, 1.1)}, "penalty band"),
        ({"band": (1.1, 1.5)}, "more than 0 with a band"),
    ],
)
def test_settings_out_of_range_are_named(settings, words):
    with pytest.raises(ConfigError, match=words):
        AdaptivePenalty(**settings)
