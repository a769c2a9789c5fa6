"""Implicit Q-learning (Kostrikov et al. 2022), several agents as one batched computation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, final

import torch
from gymnasium import spaces
from torch import Tensor

from preferl.errors import ConfigError, require_in
from preferl.functional.value import (
    advantage_weights,
    expectile_loss,
    expectile_weight,
    soft_update,
    td_target,
)
from preferl.offline.gaussian import GaussianConfig, GaussianPolicies
from preferl.offline.learner import OfflineLearner
from preferl.offline.networks import Networks, Record
from preferl.offline.policy import OfflinePolicy
from preferl.offline.transitions import Batch

PRESETS: dict[str, dict[str, float]] = {
    "mujoco": {},
    "antmaze": {"expectile": 0.9, "temperature": 10.0},
    "adroit": {"temperature": 0.5, "dropout": 0.1},
}


@final
@dataclass(frozen=True)
class IQLConfig(GaussianConfig):
    """Settings of `IQL` beside those of `GaussianConfig`; the defaults are for MuJoCo locomotion.

    Attributes:
        expectile: of the values, in (0, 1); 0.5 learns what the recorded policy is worth, towards
            1 what the best recorded actions are.
        temperature: an inverse one, at least 0; 0 clones, more trusts advantages more.
        dropout: share of the policy's hidden units dropped in training, in [0, 1).
        discount: per step, in [0, 1].
        target_rate: share by which the target networks follow per update, in (0, 1].
        max_weight: of one action in the policy's loss.
    """

    expectile: float = 0.7
    temperature: float = 3.0
    discount: float = 0.99
    target_rate: float = 0.005
    max_weight: float = 100.0

    def __post_init__(self) -> None:
        if not 0 < self.expectile < 1:
            raise ConfigError.mismatch("expectile", expected="in (0, 1)", got=self.expectile)
        require_in("temperature", self.temperature, 0, float("inf"))
        require_in("discount", self.discount, 0, 1)
        require_in("target_rate", self.target_rate, 1e-9, 1)
        require_in("max_weight", self.max_weight, 1e-9, float("inf"))
        super().__post_init__()

    @classmethod
    def preset(cls, name: Literal["mujoco", "antmaze", "adroit"]) -> Self:
        """The paper's settings for a family of tasks; "adroit" also serves robosuite.

        Raises:
            ConfigError: another name.

        >>> IQLConfig.preset("antmaze").expectile
        0.9
        """
        if name not in PRESETS:
            raise ConfigError.mismatch("preset", expected=f"one of {sorted(PRESETS)}", got=name)
        return cls(**PRESETS[name])  # type: ignore[arg-type]  # names and types are those above


@final
class IQL(OfflineLearner):
    """Learns values by expectiles, so that no action is judged that was not recorded.

    An update is, in this order: values towards an expectile of what the target critics say;
    the policy towards recorded actions, weighted by their advantage; twin critics towards reward
    plus the new value of what followed; the target critics a little towards the critics.

    >>> from preferl.testing import make_episodes
    >>> import numpy as np
    >>> from preferl.offline import Transitions
    >>> episodes = make_episodes(np.random.default_rng(0), [30, 20])
    >>> agents = IQL(spaces.Box(-2, 2, (2,)), spaces.Box(-1, 1, (2,)), seeds=[0, 1], steps=10)
    >>> sorted(agents.fit(Transitions.of(episodes), 10))
    ['critic_loss', 'policy_loss', 'q1', 'q2', 'value', 'value_loss']
    >>> [policy.predict(np.zeros((5, 2)))[0].shape for policy in agents.policies()]
    [(5, 2), (5, 2)]
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: IQLConfig | None = None,
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
            steps: updates planned, over which the policy's learning rate decays.
            device: where they learn.

        Raises:
            SpaceError: other spaces.
            ConfigError: equal seeds, or less than one update.
        """
        super().__init__(observation_space, action_space, seeds=seeds, steps=steps, device=device)
        self.config = config = config or IQLConfig()
        agents, (observation, action) = len(self.seeds), self._sizes

        def networks(inputs: int, count: int) -> Networks:
            sizes = (inputs, *config.hidden, 1)
            return Networks(sizes, count, precision=config.precision, device=self.device)

        self._values = networks(observation, agents)
        self._critics = networks(observation + action, 2 * agents)
        self._targets = networks(observation + action, 2 * agents)
        self._policies = GaussianPolicies(config, observation, action, agents, self.device)
        self._value_record = self._values.record(config.batch_size)
        self._both_record = self._values.record(2 * config.batch_size)
        self._critic_record = self._critics.record(config.batch_size)
        for agent, seed in enumerate(self.seeds):
            generator = torch.Generator().manual_seed(seed)
            self._policies.initialise(agent, generator)
            self._critics.initialise(agent, generator)
            self._critics.initialise(agents + agent, generator)
            self._values.initialise(agent, generator)
        self._targets.parameters.values.copy_(self._critics.parameters.values)
        self._refresh()

    def policies(self) -> list[OfflinePolicy]:
        """Copies of what the agents have learned, one policy per seed."""
        return self._policies.policies(self.observation_space, self.action_space, "IQL")

    @property
    def _batch_size(self) -> int:
        return self.config.batch_size

    def _tensors(self) -> dict[str, Tensor]:
        trained = {
            "value": self._values.optimiser,
            "critic": self._critics.optimiser,
            "policy": self._policies.optimiser,
        }
        tensors = {
            f"{of}.{name}": tensor
            for of, optimiser in trained.items()
            for name, tensor in optimiser.tensors.items()
        }
        return tensors | {"target.values": self._targets.parameters.values}

    def _refresh(self) -> None:
        for networks in (self._values, self._critics, self._targets, self._policies):
            networks.parameters.refresh()

    def _update(self, batch: Batch, *, measure: bool) -> dict[str, Tensor]:
        goal = self._judge(self._targets, batch).amin(0)
        value = self._value(batch.observations, self._value_record)
        difference = goal - value
        metrics = self._measure_values(value, difference) if measure else {}
        self._fit_values(difference)
        now, following = self._value(batch.states.flatten(1, 2), self._both_record).chunk(2, dim=1)
        weights = advantage_weights(goal - now, self.config.temperature, self.config.max_weight)
        rate = self.config.rate(self.step, self.steps)
        metrics |= self._policies.climb(batch, weights, rate, measure=measure)
        reached = td_target(batch.rewards, batch.continues, following, self.config.discount)
        judged = self._judge(self._critics, batch)
        error = judged - reached
        if measure:
            metrics |= self._measure_critics(judged, error)
        self._fit_critics(error)
        return metrics

    def _judge(self, critics: Networks, batch: Batch) -> Tensor:
        """What both critics of each agent say, `[2, S, B]`."""
        said = critics.forward(batch.pairs.flatten(0, 1), self._critic_record)
        return said.view(batch.pairs.shape[:3])

    def _value(self, observations: Tensor, record: Record) -> Tensor:
        """`[S, B, O]` to `[S, B]`."""
        return self._values.forward(observations, record)[:, 0]

    def _fit_values(self, difference: Tensor) -> None:
        by_value = expectile_weight(difference, self.config.expectile).mul_(difference)
        by_value.mul_(-2 / difference.shape[1])
        self._values.backward(by_value[:, None], self._value_record)
        self._values.optimiser.step(self.config.learning_rate)

    def _fit_critics(self, error: Tensor) -> None:
        by_output = error.mul(2 / error.shape[2]).view(-1, 1, error.shape[2])
        self._critics.backward(by_output, self._critic_record)
        self._critics.optimiser.step(self.config.learning_rate)
        critics, targets = self._critics.parameters, self._targets.parameters
        soft_update(targets.values, critics.values, self.config.target_rate)
        targets.refresh()

    def _measure_values(self, value: Tensor, difference: Tensor) -> dict[str, Tensor]:
        loss = expectile_loss(difference, self.config.expectile)
        return {"value_loss": loss.mean(-1), "value": value.mean(-1)}

    def _measure_critics(self, judged: Tensor, error: Tensor) -> dict[str, Tensor]:
        first, second = judged.mean(-1)
        return {"critic_loss": error.square().sum(0).mean(-1), "q1": first, "q2": second}
