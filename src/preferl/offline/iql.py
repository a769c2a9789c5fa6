"""Implicit Q-learning (Kostrikov et al. 2022), several agents as one batched computation."""

from abc import abstractmethod
from typing import TypeVar, final

import torch
from torch import Tensor

from preferl.functional.value import advantage_weights, expectile_loss, soft_update, td_target
from preferl.offline.learner import OfflineLearner
from preferl.offline.learner_configs import IQLConfig
from preferl.offline.networks import Networks
from preferl.offline.transitions import Batch

IQLSettings = TypeVar("IQLSettings", bound=IQLConfig)


class ImplicitQLearner(OfflineLearner[IQLSettings]):
    """Learns values by expectiles, so that it evaluates only recorded actions.

    An update has four parts, in this order. Values move towards an expectile of the target critics'
    values. The policy moves towards recorded actions, weighted by their advantage. Twin critics
    follow their own loss, given the new value of the next state. The target critics move a little
    towards the critics.
    """

    def _build(self, observation: int, action: int) -> dict[str, Networks]:
        self._critics, self._targets = (
            self._perceptrons(observation + action, 1, each=2) for _ in range(2)
        )
        self._values = self._perceptrons(observation, 1)
        return {"critic": self._critics, "value": self._values}

    def _tensors(self) -> dict[str, Tensor]:
        targets = self._targets.parameters.items()
        return super()._tensors() | {f"target.{name}": t.detach() for name, t in targets}

    def _update(self, batch: Batch) -> dict[str, Tensor]:
        config = self.config
        if not self.step:
            self._move_targets(1.0)  # at first, targets equal the critics
        with torch.no_grad():
            goal = self._q_values(self._targets, batch).amin(0)
        value = self._values.forward(batch.states[:, 0])[:, 0]  # [S, 1, B] to [S, B]
        value_loss = expectile_loss(goal - value, config.expectile).mean(-1)
        self._values.descend(value_loss, config.learning_rate)
        with torch.no_grad():
            both = self._values.forward(batch.states.flatten(1, 2))[:, 0]  # [S, 2 * B]
            now, following = both.chunk(2, dim=1)
            weights = advantage_weights(goal - now, config.temperature, config.max_weight)
        policy = self._climb(batch, weights)
        q_values = self._q_values(self._critics, batch)
        critics = self._critic_loss(batch, q_values, following)
        self._critics.descend(critics["critic_loss"], config.learning_rate)
        self._move_targets(config.target_rate)
        q1, q2 = q_values.mean(-1)
        metrics = {"value_loss": value_loss, "value": value.mean(-1)}
        return metrics | critics | policy | {"q1": q1, "q2": q2}

    @abstractmethod
    def _critic_loss(self, batch: Batch, q_values: Tensor, following: Tensor) -> dict[str, Tensor]:
        """Compute `critic_loss` `[S]` and metrics, from values `[2, S, B]` and `[S, B]`."""

    def _q_values(self, critics: Networks, batch: Batch) -> Tensor:
        """Compute the values of both critics of each agent, `[2, S, B]`."""
        return critics.forward(batch.pairs.flatten(0, 1)).view(batch.pairs.shape[:3])

    @torch.no_grad()
    def _move_targets(self, rate: float) -> None:
        """Move the target critics by a share `rate` of their distance to the critics."""
        for name, target in self._targets.parameters.items():
            soft_update(target, self._critics.parameters[name], rate)


@final
class IQL(ImplicitQLearner[IQLConfig]):
    """Implicit Q-learning: twin critics move towards reward plus the next state's value.

    >>> import numpy as np
    >>> from gymnasium import spaces
    >>> from preferl.offline import Transitions
    >>> from preferl.testing import make_episodes
    >>> episodes = make_episodes(np.random.default_rng(0), [30, 20])
    >>> agents = IQL(spaces.Box(-2, 2, (2,)), spaces.Box(-1, 1, (2,)), seeds=[0, 1], steps=10)
    >>> sorted(agents.fit(Transitions.of(episodes), 10))
    ['critic_loss', 'policy_loss', 'q1', 'q2', 'value', 'value_loss']
    >>> [policy.predict(np.zeros((5, 2)))[0].shape for policy in agents.policies()]
    [(5, 2), (5, 2)]
    """

    _settings = IQLConfig

    def _critic_loss(self, batch: Batch, q_values: Tensor, following: Tensor) -> dict[str, Tensor]:
        target = td_target(batch.rewards, batch.continues, following, self.config.discount)
        return {"critic_loss": (q_values - target).square().mean(-1).sum(0)}
