"""The contract of losses passes what keeps it and reports in words what does not."""

import pytest
import torch

from preferl.errors import ModelError
from preferl.registry import LOSSES
from preferl.testing import check_loss

pytestmark = pytest.mark.usefixtures("no_others")


@pytest.mark.parametrize("name", LOSSES.names())
def test_those_of_the_library_keep_it(name):
    check_loss(name)


def hinge(logits, preference):
    return torch.relu(1 - (2 * preference - 1) * logits)


def with_noise(logits, preference, noise):
    return (torch.sigmoid(logits) * (1 - noise) + noise / 2 - preference).abs()


@pytest.mark.parametrize("loss", [hinge, with_noise])
def test_ones_own_that_keep_it(loss):
    check_loss(loss)


def one_number(logits, preference):
    return hinge(logits, preference).mean()


def infinite(logits, preference):
    return -torch.log(1 - (torch.sigmoid(logits) - preference).abs() ** 2 - 1e-12)


def without_gradient(logits, preference):
    return hinge(logits, preference).detach()


def shares_the_batch(logits, preference):
    return hinge(logits, preference) / hinge(logits, preference).max()


def favours_the_first(logits, preference):
    return hinge(logits, preference) * (1 + preference)


def turned_round(logits, preference):
    return hinge(-logits, preference)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (one_number, r"one_number, shape for 2 members and 7 answers: expected \(2, 7\)"),
        (without_gradient, "gradient of 0.0: expected finite numbers"),
        (shares_the_batch, "a single answer"),
        (favours_the_first, "the same pairs the other way round"),
        (turned_round, "an answer that the model agrees with: .*the score of the first minus"),
    ],
)
def test_what_breaks_it_is_named(loss, words):
    with pytest.raises(ModelError, match=rf"(?s){words}"):
        check_loss(loss)


def test_losses_that_overflow_are_named():
    with pytest.raises(ModelError, match="finite numbers"):
        check_loss(infinite)
