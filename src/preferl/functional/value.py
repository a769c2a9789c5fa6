"""Values and policies from recorded experience: Kostrikov et al. (2022), Peng et al. (2019)."""

import math

import torch
from torch import Tensor


def expectile_weight(difference: Tensor, expectile: float) -> Tensor:
    """Return the weight of an error: `expectile` if it is at least 0, else `1 - expectile`.

    >>> expectile_weight(torch.tensor([-2.0, 1.0]), 0.75).tolist()
    [0.25, 0.75]
    """
    return torch.where(difference < 0, 1 - expectile, expectile)


def expectile_loss(difference: Tensor, expectile: float) -> Tensor:
    """Return the asymmetric square `|τ - 1{d < 0}| d²`, not averaged (Kostrikov et al. 2022, 4.1).

    Errors are targets minus predictions. `τ` is in (0, 1). 0.5 gives half the square error; towards
    1, the prediction approaches the largest target.

    >>> expectile_loss(torch.tensor([-2.0, 2.0]), 0.75).tolist()
    [1.0, 3.0]
    """
    return expectile_weight(difference, expectile) * difference.square()


def advantage_weights(advantage: Tensor, temperature: float, max_weight: float = 100.0) -> Tensor:
    """Return the weights of actions in weighted cloning, `min(exp(β A), max)` (Peng et al. 2019).

    `A` is how much better an action is than the policy's average. `temperature` is the inverse
    temperature `β`: 0 clones every action equally, and larger numbers are greedier. The maximum
    keeps a few actions from dominating a minibatch.

    >>> advantage_weights(torch.tensor([0.0, 99.0]), 3.0).tolist()
    [1.0, 100.0]
    """
    # The exponent is limited, not the power, so that nothing overflows.
    return (temperature * advantage).clamp(max=math.log(max_weight)).exp().clamp_(max=max_weight)


def td_target(
    rewards: Tensor | float, continues: Tensor | float, values: Tensor, discount: float
) -> Tensor:
    """Return the target of an action's value, from one step and what followed: `r + γ c V(s')`.

    `continues` is 0 where the episode terminated, else 1; a time limit does not terminate. `values`
    are those of the next observations.

    >>> td_target(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0]), torch.tensor([4.0, 4.0]),
    ...           0.5).tolist()
    [3.0, 1.0]
    """
    return rewards + discount * continues * values


def gaussian_log_density(actions: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the log density of a diagonal Gaussian: actions `[..., A]` to `[...]`, in nats.

    >>> gaussian_log_density(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(2)).tolist()
    [-1.8378770351409912]
    """
    error = (actions - mean) * torch.exp(-log_std)
    return -(0.5 * error.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)


def soft_update(target: Tensor, source: Tensor, rate: float) -> Tensor:
    """Move `target` in place by the share `rate` of its distance to `source`, and return it.

    >>> soft_update(torch.tensor([0.0, 4.0]), torch.tensor([4.0, 0.0]), 0.25).tolist()
    [1.0, 3.0]
    """
    return target.lerp_(source, rate)


def cosine_decay(step: int, steps: int) -> float:
    """Return the share of a learning rate that is left after `step` of `steps`: half a cosine to 0.

    >>> cosine_decay(0, 100), round(cosine_decay(50, 100), 9), cosine_decay(100, 100)
    (1.0, 0.5, 0.0)
    """
    return 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
