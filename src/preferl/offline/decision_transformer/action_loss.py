"""The loss of the actions that a Decision Transformer predicts."""

from typing import Final, Literal

import torch.nn.functional as F
from torch import Tensor

from preferl.offline.learner_configs import ActionLoss
from preferl.training.distributed import ALONE, World

LEAST_SQUARE: Final = 1e-6  # floor of a squared error, so that an exact fit does not outweigh all

Loss = ActionLoss | Literal["choices"]


def action_loss(
    predicted: Tensor, actions: Tensor, mask: Tensor, loss: Loss = "squares", world: World = ALONE
) -> Tensor:
    """Compute the loss of predicted actions `[B, H, A]` over real steps, where `mask [B, H]` is 1.

    For `"choices"`, it is the cross-entropy, in nats, between logits and one-hot actions.
    `DTConfig` describes the other losses. The mean is over the steps of all processes of `world`.

    >>> import torch
    >>> action_loss(torch.tensor([[[9.0], [3.0]]]), torch.zeros(1, 2, 1), torch.tensor([[0, 1]]))
    tensor(9.)
    """
    real = mask.bool()
    predicted = predicted[real]
    actions = actions[real]
    steps = real.sum()
    match loss:
        case "choices":
            return world.mean(F.cross_entropy(predicted, actions.argmax(-1)), steps)
        case "gaussian":
            squares = world.mean((predicted - actions).square().mean(0), steps)
            return (squares + LEAST_SQUARE).log().mean() / 2
    return world.mean(F.mse_loss(predicted, actions), steps)
