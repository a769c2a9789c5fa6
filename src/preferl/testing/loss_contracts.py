"""Checks of the contract that a loss of yours must keep (torch)."""

import torch

from preferl.errors import ModelError
from preferl.functional.preference import AnswerLoss, preference_loss
from preferl.registry import LOSSES

LOGITS = (-30.0, -2.0, -0.5, 0.0, 0.5, 2.0, 30.0)
"""Logits, from certainty about the second clip to certainty about the first."""


def check_loss(loss: AnswerLoss | str) -> None:
    """Raise `ModelError` unless a loss of answers has the properties that fits rely on.

    Each answer has one finite loss with a finite gradient, and no other answer changes it. The loss
    of a pair stays the same if its clips and its answer are swapped. A decided answer never costs
    more if the model agrees with it than if the model contradicts it.

    The loss is a function or a name in `preferl.registry.LOSSES`. If it takes `noise`, it gets 0.1.

    >>> check_loss("squared_error")
    """
    name = LOSSES.registered_name(loss)
    bound = LOSSES.bound(name, noise=0.1)
    logits = torch.tensor([LOGITS] * 2, requires_grad=True)  # [E, P]
    for answer in (0.0, 0.5, 1.0):
        preference = torch.full((len(LOGITS),), answer)
        losses = bound(logits, preference)
        shape = getattr(losses, "shape", type(losses).__name__)
        if shape != logits.shape:
            raise ModelError(
                f"{name}, shape for 2 members and 7 answers: expected (2, 7), got {shape}."
            )
        if not losses.isfinite().all():
            raise ModelError(f"{name}, losses of {answer}: expected finite numbers, got {losses}.")
        mean = preference_loss(logits, preference, loss=bound).sum()
        slope = None
        if mean.requires_grad:
            (slope,) = torch.autograd.grad(mean, logits, allow_unused=True)
        if slope is None or not slope.isfinite().all():
            raise ModelError(f"{name}, gradient of {answer}: expected finite numbers, got {slope}.")
        alone = torch.stack([bound(logits[:, [k]], preference[[k]])[:, 0] for k in range(7)], 1)
        if not torch.allclose(alone, losses, atol=1e-5):
            raise ModelError(f"{name}, a single answer: expected {losses}, got {alone}.")
        turned = bound(-logits, 1 - preference)
        if not torch.allclose(turned, losses, atol=1e-5):
            raise ModelError(
                f"{name}, loss of the same pairs the other way round: expected {losses}, got "
                f"{turned}."
            )
    against = losses[:, :3]
    agreeing = losses[:, -3:].flip(-1)
    if (agreeing > against).any():
        raise ModelError(
            f"{name}, loss of an answer that the model agrees with: expected at most that of the "
            f"opposite one, got {agreeing} and {against}. Logits are the score of the first minus "
            "that of the second."
        )
