"""Behaviour cloning: the policy that makes the recorded actions most likely."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from gymnasium import spaces
from torch import Tensor

from preferl.offline.gaussian import GaussianConfig, GaussianPolicies
from preferl.offline.learner import OfflineLearner
from preferl.offline.policy import OfflinePolicy
from preferl.offline.transitions import Batch


@final
@dataclass(frozen=True)
class CloningConfig(GaussianConfig):
    """Settings of `BehaviourCloning`: those of `GaussianConfig`, as IQL's policy has them."""


@final
class BehaviourCloning(OfflineLearner):
    """Learns to act as was recorded, whatever it was paid: the control for every other learner.

    >>> import numpy as np
    >>> from preferl.offline import Transitions
    >>> from preferl.testing import make_episodes
    >>> episodes = make_episodes(np.random.default_rng(0), [30, 20])
    >>> agents = BehaviourCloning(
    ...     spaces.Box(-2, 2, (2,)), spaces.Box(-1, 1, (2,)), seeds=[0, 1], steps=10
    ... )
    >>> agents.fit(Transitions.of(episodes), 10)["policy_loss"].shape
    (2,)
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: CloningConfig | None = None,
        *,
        seeds: Sequence[int],
        steps: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """Build the agents.

        Args:
            observation_space: a Box of floats, or a Dict of these.
            action_space: a Box of floats.
            config: settings; the defaults if None.
            seeds: one per agent, all different.
            steps: updates planned, over which the learning rate decays.
            device: where they learn.

        Raises:
            SpaceError: other spaces.
            ConfigError: equal seeds, or less than one update.
        """
        super().__init__(observation_space, action_space, seeds=seeds, steps=steps, device=device)
        self.config = config = config or CloningConfig()
        observation, action = self._sizes
        self._policies = GaussianPolicies(config, observation, action, len(self.seeds), self.device)
        for agent, seed in enumerate(self.seeds):
            self._policies.initialise(agent, torch.Generator().manual_seed(seed))

    def policies(self) -> list[OfflinePolicy]:
        """Copies of what the agents have learned, one policy per seed."""
        return self._policies.policies(
            self.observation_space, self.action_space, "BehaviourCloning"
        )

    @property
    def _batch_size(self) -> int:
        return self.config.batch_size

    def _tensors(self) -> dict[str, Tensor]:
        return {f"policy.{k}": tensor for k, tensor in self._policies.optimiser.tensors.items()}

    def _refresh(self) -> None:
        self._policies.parameters.refresh()

    def _update(self, batch: Batch, *, measure: bool) -> dict[str, Tensor]:
        rate = self.config.rate(self.step, self.steps)
        return self._policies.climb(batch, None, rate, measure=measure)
