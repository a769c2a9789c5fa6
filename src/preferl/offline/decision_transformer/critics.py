"""The critics of a Decision Transformer, which regularise its policy.

They make the policy prefer actions of higher value. This is the method DTR of Tu et al. 2025,
"In-Dataset Trajectory Return Regularization for Offline Preference-based Reinforcement Learning",
which builds on QT (Hu et al. 2024).
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from preferl.functional.value import soft_update
from preferl.models.blocks import Perceptrons
from preferl.offline.learner_configs import DTRConfig
from preferl.training.distributed import ALONE, World


@final
class Critics(nn.Module):
    """Two critics of states and actions, and their slowly moving targets."""

    unit: Tensor  # divides rewards, so that values are about as large as a horizon
    progress: Tensor  # share of the planned updates that have been made, in [0, 1]

    def __init__(self, inputs: int, config: DTRConfig, *, generator: torch.Generator) -> None:
        """Make critics. `inputs` is how many numbers a state and an action have together."""
        super().__init__()
        self.config = config
        sizes = (inputs, *config.hidden, 1)
        self.live = Perceptrons(sizes, 2, activation="relu", dropout=0.0, generator=generator)
        self.target = deepcopy(self.live).requires_grad_(False)
        self.register_buffer("unit", torch.tensor(1.0))
        self.register_buffer("progress", torch.tensor(0.0))

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        """Return the lower of both critics' values of `states [..., O]`, `actions [..., A]`."""
        return _values(self.live, states, actions).amin(0)

    @torch.no_grad()
    def update(self, progress: float) -> None:
        """Move the targets after an update, and store the progress of training."""
        self.progress.fill_(progress)
        for target, live in zip(self.target.parameters(), self.live.parameters(), strict=True):
            soft_update(target, live, self.config.target_rate)


def _values(critics: Perceptrons, states: Tensor, actions: Tensor) -> Tensor:
    """Return the values of both critics, `[2, ...]`."""
    rows = torch.cat([states, actions], dim=-1)
    values: Tensor = critics(rows.flatten(0, -2))
    return values.view(2, *rows.shape[:-1])


def window_targets(
    rewards: Tensor, terminated: Tensor, last_value: Tensor, discount: float
) -> tuple[Tensor, Tensor]:
    """Compute the target value of each step, `[B, H]`, and whether the step has one, `[B, H]`.

    `Q(s_i, a_i) = Σ_{j=i}^{t-1} γ^{j-i} r_j + γ^{t-i} V(s_t)` (Tu et al. 2025, eq. 5). The last
    step has a target only if the episode terminated there (`terminated` `[B]`), since otherwise
    the value that follows is not known.

    >>> targets, known = window_targets(
    ...     torch.tensor([[1.0, 2, 4]]), torch.tensor([False]), torch.tensor([8.0]), 0.5
    ... )
    >>> targets.tolist(), known.tolist()
    ([[4.0, 6.0, 4.0]], [[True, True, False]])
    """
    steps = rewards.shape[1]
    step = torch.arange(steps, device=rewards.device)
    steps_ahead = step - step[:, None]  # [H, H] from step i (row) to step j
    reward_weights = torch.where(
        (steps_ahead >= 0) & (step < steps - 1), discount ** steps_ahead.clamp(min=0), 0.0
    )
    targets = rewards @ reward_weights.T + last_value[:, None] * discount ** (steps - 1 - step)
    targets = torch.cat([targets[:, :-1], rewards[:, -1:]], dim=1)
    has_target = (step < steps - 1) | terminated[:, None].bool()
    return targets, has_target


def regularise(
    critics: Critics, batch: Mapping[str, Tensor], predicted: Tensor, world: World = ALONE
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Compute the critics' loss, the term that they add to the policy's loss, and metrics of both.

    The critics' loss has no gradient for the policy, and the policy's loss has none for the
    critics. `batch` has `terminated` `[B]`, which says whether the episode ended with a window's
    last step. `predicted` `[B, H, A]` are the policy's actions, with gradients. Means are over the
    windows of all processes of `world`.
    """
    states = batch["states"]
    real = batch["attention_mask"].bool()
    rewards = batch["rewards"][..., 0] / critics.unit
    with torch.no_grad():
        last_value = _values(critics.target, states[:, -1], predicted[:, -1].detach()).amin(0)
        discount = critics.config.discount
        targets, has_target = window_targets(rewards, batch["terminated"], last_value, discount)
    values = _values(critics.live, states, batch["actions"])[:, real]  # [2, R]
    error = (values - targets[real]) * has_target[real]
    count = has_target[real].sum()
    steps = real.sum()
    critic_loss = world.mean(error.square().sum() / count.clamp(min=1), count)
    frozen = {name: tensor.detach() for name, tensor in critics.live.named_parameters()}
    rows = torch.cat([states, predicted], dim=-1)[real]
    policy_values = functional_call(critics.live, frozen, (rows,))[0, :, 0]
    size = world.mean(policy_values.detach().abs().mean(), steps).clamp(min=1e-6)
    weight = critics.config.weight * critics.progress
    mean = world.mean(values.detach().mean(), steps)
    metrics = {"critic_loss": critic_loss.detach(), "q": mean}
    return critic_loss, -weight * world.mean(policy_values.mean(), steps) / size, metrics
