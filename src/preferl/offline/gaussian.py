"""The policy that offline agents learn, and the gradient of its weighted likelihood."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from gymnasium import spaces
from torch import Tensor

from preferl.errors import ConfigError, require_in
from preferl.functional.value import cosine_decay, gaussian_log_density
from preferl.offline.networks import Networks
from preferl.offline.policy import OfflinePolicy
from preferl.offline.transitions import Batch
from preferl.training.precision import Precision

KEEP_LEVELS = 2**16
"""A share of units to drop is rounded to one in this many: two random bytes decide each unit."""


@dataclass(frozen=True)
class GaussianConfig:
    """Settings that all learners of Gaussian policies share.

    Attributes:
        dropout: share of the policy's hidden units dropped in training, in [0, 1).
        hidden: units of each hidden layer.
        learning_rate: of Adam.
        batch_size: transitions per update and agent.
        decay: whether the policy's learning rate falls to 0 over the planned updates by half a
            cosine.
        log_std_bounds: of the policy's log deviations.
        precision: of products between hidden layers; "bfloat16" is nearly twice as fast on
            processors that have it, while parameters and everything else keep 32 bits.
    """

    dropout: float = 0.0
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    batch_size: int = 256
    decay: bool = True
    log_std_bounds: tuple[float, float] = (-5.0, 2.0)
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if any(units < 1 for units in self.hidden):
            raise ConfigError.mismatch("hidden", expected="units of at least 1", got=self.hidden)
        if not 0 <= self.dropout < 1:
            raise ConfigError.mismatch("dropout", expected="in [0, 1)", got=self.dropout)
        require_in("learning_rate", self.learning_rate, 0, float("inf"))
        require_in("batch_size", self.batch_size, 1, float("inf"))
        low, high = self.log_std_bounds
        if not -float("inf") < low < high < float("inf"):
            raise ConfigError.mismatch(
                "log_std_bounds", expected="a low and a higher one", got=(low, high)
            )
        if self.precision not in ("float32", "bfloat16"):
            raise ConfigError.mismatch(
                "precision", expected="float32 or bfloat16", got=self.precision
            )

    def rate(self, step: int, steps: int) -> float:
        """The policy's learning rate after `step` of the planned `steps`."""
        return self.learning_rate * (cosine_decay(step, steps) if self.decay else 1.0)


@final
class GaussianPolicies:
    """`S` diagonal Gaussian policies: a tanh on the mean, deviations that are the same everywhere.

    Samples are not squashed, so the density has its plain form (Kostrikov et al. 2022, and its
    reference implementation).

    Attributes:
        parameters: of all agents.
        optimiser: of these parameters.
    """

    def __init__(
        self,
        config: GaussianConfig,
        observation: int,
        action: int,
        agents: int,
        device: torch.device,
    ) -> None:
        """Policies of `observation` numbers to `action` numbers, one for each agent."""
        sizes = (observation, *config.hidden, action)
        extra = {"log_std": (agents, action, 1)}
        self._networks = Networks(
            sizes, agents, precision=config.precision, device=device, extra=extra
        )
        self._record = self._networks.record(config.batch_size)
        self.parameters = self._networks.parameters
        self.optimiser = self._networks.optimiser
        self._bounds = config.log_std_bounds
        self._dropped = round(config.dropout * KEEP_LEVELS)
        self._keep = 1 - self._dropped / KEEP_LEVELS
        self._generator = torch.Generator(device)

    def initialise(self, agent: int, generator: torch.Generator) -> None:
        """Fill one agent's parameters; its deviations begin at 1."""
        self._networks.initialise(agent, generator)

    def policies(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], about: str
    ) -> list[OfflinePolicy]:
        """A copy of each agent's policy as it is now."""
        log_std = self.parameters.named["log_std"].cpu().clone()
        return [
            OfflinePolicy(
                observation_space,
                action_space,
                self._networks.layers(agent) | {"log_std": log_std[agent, :, 0].clone()},
                log_std_bounds=self._bounds,
                learner=about,
            )
            for agent in range(len(log_std))
        ]

    def climb(
        self, batch: Batch, weights: Tensor | None, rate: float, *, measure: bool
    ) -> dict[str, Tensor]:
        """One step towards more likely actions, each counted by its weight.

        Args:
            batch: a minibatch for each agent.
            weights: `[S, B]`; None counts all alike.
            rate: learning rate.
            measure: whether to return the loss.

        Returns:
            `policy_loss`, `[S]` before the step: minus the mean of weight times log density.
        """
        kept = self._kept(batch.dropout_seeds) if self._dropped else None
        mean = self._networks.forward(batch.observations, self._record, kept).tanh_()
        raw = self.parameters.named["log_std"]
        log_std = raw.clamp(*self._bounds)
        metrics = {}
        if measure:
            density = gaussian_log_density(batch.actions.mT, mean.mT, log_std.mT)
            metrics["policy_loss"] = -(density if weights is None else density * weights).mean(1)
        self._descend(batch.actions, mean, log_std, weights)
        inside = (raw >= self._bounds[0]) & (raw <= self._bounds[1])
        self.optimiser.gradients["log_std"].mul_(inside)
        self.optimiser.step(rate)
        return metrics

    def _descend(
        self, actions: Tensor, mean: Tensor, log_std: Tensor, weights: Tensor | None
    ) -> None:
        """Write the gradients of the loss; actions and mean are `[S, A, B]`."""
        error = actions - mean
        scaled = error * torch.exp(-2 * log_std)  # the log density's gradient by the mean
        by_std = 1 - error * scaled
        if weights is not None:
            scaled.mul_(weights[:, None])
            by_std.mul_(weights[:, None])
        torch.mean(by_std, dim=2, keepdim=True, out=self.optimiser.gradients["log_std"])
        by_output = scaled.mul_(mean.square().sub_(1)).div_(actions.shape[2])
        self._networks.backward(by_output, self._record, self._keep)

    def _kept(self, seeds: Sequence[int]) -> list[Tensor]:
        """Factors of hidden units, drawn for each agent from its own seed."""
        return [self._kept_of(hidden, seeds, k) for k, hidden in enumerate(self._record.hidden)]

    def _kept_of(self, hidden: Tensor, seeds: Sequence[int], layer: int) -> Tensor:
        agents, rows, units = hidden.shape
        # Sixteen random bits a unit; the generator makes 64 at a time.
        words = torch.empty(agents, -(-rows * units // 4), dtype=torch.int64, device=hidden.device)
        for agent, seed in enumerate(seeds):
            self._generator.manual_seed(seed ^ layer)
            words[agent].random_(-(2**63), None, generator=self._generator)
        bits = words.view(torch.int16)[:, : rows * units].view(hidden.shape)
        return (bits >= self._dropped - KEEP_LEVELS // 2).float().div_(self._keep)
