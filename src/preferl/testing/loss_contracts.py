"""Checks of the contract that a loss of yours must keep (torch)."""

from typing import Any

import torch

from preferl.errors import ModelError
from preferl.functional.preference import AnswerLoss, preference_loss
from preferl.registry import LOSSES

LOGITS = (-30.0, -2.0, -0.5, 0.0, 0.5, 2.0, 30.0)
"""From sure of the second to sure of the first."""


def check_loss(loss: AnswerLoss | str) -> None:
    """Raise `ModelError` unless a loss of answers keeps what fits rely on.

    Each answer has one finite loss with a finite gradient, on which no other answer has an
    influence. A pair the other way round, answered the other way round, costs the same. A decided
    answer never costs more where the model agrees with it than where it contradicts it.

    The loss is a function or a name of `preferl.registry.LOSSES`; one that takes `noise` gets 0.1.

    >>> check_loss("squared_error")
    """
    name = LOSSES.known(loss)
    bound = LOSSES.bound(name, noise=0.1)
    logits = torch.tensor([LOGITS] * 2, requires_grad=True)  # [E, P]
    found = {}
    for answer in (0.0, 0.5, 1.0):
        preference = torch.full((len(LOGITS),), answer)
        found[answer] = losses = bound(logits, preference)
        got = getattr(losses, "shape", type(losses).__name__)
        _require(got == logits.shape, name, "shape for 2 members and 7 answers", (2, 7), got)
        _require(losses.isfinite().all(), name, f"losses of {answer}", "finite numbers", losses)
        mean = preference_loss(logits, preference, loss=bound).sum()
        slope = None
        if mean.requires_grad:
            (slope,) = torch.autograd.grad(mean, logits, allow_unused=True)
        there = slope is not None and bool(slope.isfinite().all())
        _require(there, name, f"gradient of {answer}", "finite numbers", slope)
        alone = torch.stack([bound(logits[:, [k]], preference[[k]])[:, 0] for k in range(7)], 1)
        _require(torch.allclose(alone, losses, atol=1e-5), name, "an answer alone", losses, alone)
        turned = bound(-logits, 1 - preference)
        same = torch.allclose(turned, losses, atol=1e-5)
        _require(same, name, "loss of the same pairs the other way round", losses, turned)
    against = found[1.0][:, :3]
    agreeing = found[1.0][:, -3:].flip(-1)
    fix = "Logits are the score of the first minus that of the second."
    expected = "at most that of the opposite one"
    got = (agreeing, against)
    less = bool((agreeing <= against).all())
    _require(less, name, "loss of an answer that the model agrees with", expected, got, fix)


def _require(
    holds: Any, name: str, what: str, expected: object, got: object, fix: str = ""
) -> None:
    ModelError.check(holds, f"{name}, {what}", expected, got, fix)
