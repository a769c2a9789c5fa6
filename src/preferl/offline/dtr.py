"""A Decision Transformer that is drawn towards actions of higher value.

Tu et al. 2025, "In-Dataset Trajectory Return Regularization for Offline Preference-based
Reinforcement Learning" (DTR), which builds on the critics of QT (Hu et al. 2024).
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from preferl.functional.value import soft_update
from preferl.models.blocks import Perceptrons
from preferl.offline.dt_config import DTRConfig


@final
class Critics(nn.Module):
    """Two critics of states and actions, the targets they follow slowly, and how far training is.

    Attributes:
        unit: what rewards are divided by, so that values are of about the size of a horizon.
        progress: share of the planned updates that are made, in [0, 1].
    """

    unit: Tensor
    progress: Tensor

    def __init__(self, inputs: int, config: DTRConfig, *, generator: torch.Generator) -> None:
        """Critics of `inputs` numbers, those of a state and an action."""
        super().__init__()
        self.config = config
        sizes = (inputs, *config.hidden, 1)
        self.live = Perceptrons(sizes, 2, activation="relu", dropout=0.0, generator=generator)
        self.target = deepcopy(self.live).requires_grad_(False)
        self.register_buffer("unit", torch.tensor(1.0))
        self.register_buffer("progress", torch.tensor(0.0))

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        """The lower of both opinions: `[..., O]` and `[..., A]` to `[...]`."""
        return values(self.live, states, actions).amin(0)

    @torch.no_grad()
    def follow(self, progress: float) -> None:
        """After an update: targets move, and training is so far."""
        self.progress.fill_(progress)
        for target, live in zip(self.target.parameters(), self.live.parameters(), strict=True):
            soft_update(target, live, self.config.target_rate)


def values(critics: Perceptrons, states: Tensor, actions: Tensor) -> Tensor:
    """What both critics say, `[2, ...]`."""
    rows = torch.cat([states, actions], dim=-1)
    said: Tensor = critics(rows.flatten(0, -2))
    return said.view(2, *rows.shape[:-1])


def window_targets(
    rewards: Tensor, terminated: Tensor, last_value: Tensor, discount: float
) -> tuple[Tensor, Tensor]:
    """What each step of a window was worth: its rewards, and what the last step is worth.

    `Q(s_i, a_i) = Σ_{j=i}^{t-1} γ^{j-i} r_j + γ^{t-i} V(s_t)` (Tu et al. 2025, eq. 5). The last
    step itself has a target only where the episode ended there, since nothing follows it.

    Args:
        rewards: `[B, H]`
        terminated: `[B]` whether the last step ended the episode by the rules.
        last_value: `[B]` what the last step is worth.
        discount: `γ`.

    Returns:
        Targets `[B, H]`, and `[B, H]` whether there is one.

    >>> targets, known = window_targets(
    ...     torch.tensor([[1.0, 2, 4]]), torch.tensor([False]), torch.tensor([8.0]), 0.5
    ... )
    >>> targets.tolist(), known.tolist()
    ([[4.0, 6.0, 4.0]], [[True, True, False]])
    """
    steps = rewards.shape[1]
    place = torch.arange(steps, device=rewards.device)
    ahead = place - place[:, None]  # [H, H] from step i (row) to step j
    counted = torch.where((ahead >= 0) & (place < steps - 1), discount ** ahead.clamp(min=0), 0.0)
    targets = rewards @ counted.T + last_value[:, None] * discount ** (steps - 1 - place)
    targets = torch.cat([targets[:, :-1], rewards[:, -1:]], dim=1)
    known = (place < steps - 1) | terminated[:, None].bool()
    return targets, known


def regularise(
    critics: Critics, batch: Mapping[str, Tensor], predicted: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Losses of critics and policy on a minibatch.

    Args:
        critics: both of them and their targets.
        batch: windows, with `terminated` `[B]` of their last steps.
        predicted: `[B, H, A]` the policy's actions, with gradients.

    Returns:
        The critics' loss, what is added to the policy's loss (their gradients do not mix), and
        what is worth knowing about both.
    """
    states, real = batch["states"], batch["attention_mask"].bool()
    rewards = batch["rewards"][..., 0] / critics.unit
    with torch.no_grad():
        last = values(critics.target, states[:, -1], predicted[:, -1].detach()).amin(0)
        discount = critics.config.discount
        targets, known = window_targets(rewards, batch["terminated"], last, discount)
    judged = values(critics.live, states, batch["actions"])[:, real]  # [2, R]
    error = (judged - targets[real]) * known[real]
    critic_loss = error.square().sum() / known[real].sum().clamp(min=1)
    frozen = {name: tensor.detach() for name, tensor in critics.live.named_parameters()}
    rows = torch.cat([states, predicted], dim=-1)[real]
    opinion = functional_call(critics.live, frozen, (rows,))[0, :, 0]
    size = opinion.detach().abs().mean().clamp(min=1e-6)
    weight = critics.config.weight * critics.progress
    metrics = {"critic_loss": critic_loss.detach(), "q": judged.detach().mean()}
    return critic_loss, -weight * opinion.mean() / size, metrics
