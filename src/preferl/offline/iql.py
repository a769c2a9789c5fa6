"""Implicit Q-learning (Kostrikov et al. 2022), several agents as one batched computation."""

from typing import final

import torch
from torch import Tensor

from preferl.functional.value import advantage_weights, expectile_loss, soft_update, td_target
from preferl.offline.learner import OfflineLearner
from preferl.offline.learner_configs import IQLConfig
from preferl.offline.networks import Networks
from preferl.offline.transitions import Batch


@final
class IQL(OfflineLearner[IQLConfig]):
    """Learns values by expectiles, so that no action is judged that was not recorded.

    An update is, in this order: values towards an expectile of what the target critics say;
    the policy towards recorded actions, weighted by their advantage; twin critics towards reward
    plus the new value of what followed; the target critics a little towards the critics.

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
            self._follow(1.0)  # they begin as the critics
        with torch.no_grad():
            goal = self._judge(self._targets, batch).amin(0)
        value = self._value(batch.observations)
        value_loss = expectile_loss(goal - value, config.expectile).mean(-1)
        self._values.descend(value_loss, config.learning_rate)
        with torch.no_grad():
            now, following = self._value(batch.states.flatten(1, 2)).chunk(2, dim=1)
            weights = advantage_weights(goal - now, config.temperature, config.max_weight)
            reached = td_target(batch.rewards, batch.continues, following, config.discount)
        policy = self._climb(batch, weights)
        judged = self._judge(self._critics, batch)
        critic_loss = (judged - reached).square().mean(-1).sum(0)
        self._critics.descend(critic_loss, config.learning_rate)
        self._follow(config.target_rate)
        q1, q2 = judged.mean(-1)
        measured = {"value_loss": value_loss, "value": value.mean(-1), "critic_loss": critic_loss}
        return measured | policy | {"q1": q1, "q2": q2}

    def _judge(self, critics: Networks, batch: Batch) -> Tensor:
        """What both critics of each agent say, `[2, S, B]`."""
        said = critics.forward(batch.pairs.flatten(0, 1))
        return said.view(batch.pairs.shape[:3])

    def _value(self, observations: Tensor) -> Tensor:
        """`[S, B, O]` to `[S, B]`."""
        return self._values.forward(observations)[:, 0]

    @torch.no_grad()
    def _follow(self, rate: float) -> None:
        """Move the target critics a share of their way towards the critics."""
        for name, target in self._targets.parameters.items():
            soft_update(target, self._critics.parameters[name], rate)
