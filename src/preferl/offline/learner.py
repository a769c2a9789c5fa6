"""What offline learners share: several agents at once, progress, policies and resuming."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from preferl.errors import CheckpointError, ConfigError, DataError, SpaceError
from preferl.models.folder import require_state
from preferl.offline.policy import OfflinePolicy
from preferl.offline.transitions import (
    ActionScale,
    Batch,
    Minibatches,
    Transitions,
    observation_size,
)
from preferl.shapes import FloatArray

Metrics = dict[str, FloatArray]
"""Names to `[S]`, a number for each agent."""

OnProgress = Callable[[int, Metrics], None]
"""Called with the number of updates done and what the latest minibatch showed."""


class OfflineLearner(ABC):
    """`S` agents that learn side by side from the same transitions, one per seed.

    All of them are one batched computation, yet an agent's weights and minibatches depend on its
    own seed alone: training it alone gives the same agent, but for rounding.

    Attributes:
        observation_space: what observations look like.
        action_space: what actions look like.
        seeds: one per agent.
        steps: updates planned.
        step: updates done.
        device: where agents learn.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        seeds: Sequence[int],
        steps: int,
        device: torch.device | str,
    ) -> None:
        if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
            raise ConfigError.mismatch(
                "seeds", expected="different numbers of at least 0", got=list(seeds)
            )
        if steps < 1:
            raise ConfigError.mismatch("steps", expected="at least 1", got=steps)
        self.observation_space = observation_space
        self.action_space = action_space
        self.seeds = tuple(int(seed) for seed in seeds)
        self.steps = steps
        self.step = 0
        self.device = torch.device(device)
        self._scale = ActionScale.of(action_space, self.device)
        self._sizes = (observation_size(observation_space), len(self._scale.centre))

    def fit(
        self,
        data: Transitions,
        steps: int,
        *,
        on_progress: OnProgress | None = None,
        every: int = 1000,
    ) -> Metrics:
        """Learn for some updates, going on from where the agents stand.

        Args:
            data: on the agents' device; rewards `[T]`, or a row per agent.
            steps: updates to make now.
            on_progress: told every `every` updates and at the end.
            every: updates between two reports, counted from the first update ever.

        Returns:
            What the last minibatch showed.

        Raises:
            ConfigError: less than one update.
            SpaceError: transitions of other spaces.
            DataError: rewards for another number of agents, or on another device.
        """
        if steps < 1 or every < 1:
            raise ConfigError.mismatch("steps and every", expected="at least 1", got=(steps, every))
        self._check(data)
        minibatches = Minibatches(data, self._scale, self.seeds, self._batch_size)
        end = self.step + steps
        metrics: Metrics = {}
        with torch.no_grad():
            while self.step < end:
                told = (self.step + 1) % every == 0 or self.step + 1 == end
                measured = self._update(minibatches(self.step), measure=told)
                self.step += 1
                if told:
                    metrics = {k: np.asarray(v.cpu(), np.float64) for k, v in measured.items()}
                    if on_progress is not None:
                        on_progress(self.step, metrics)
        return metrics

    @abstractmethod
    def policies(self) -> list[OfflinePolicy]:
        """Copies of what the agents have learned, one policy per seed."""

    @property
    @abstractmethod
    def _batch_size(self) -> int: ...

    @abstractmethod
    def _update(self, batch: Batch, *, measure: bool) -> dict[str, Tensor]:
        """One update; `[S]` metrics if they are to be measured."""

    @abstractmethod
    def _tensors(self) -> dict[str, Tensor]:
        """All that training changes, by name."""

    @abstractmethod
    def _refresh(self) -> None:
        """Bring what depends on these tensors up to date after they were loaded."""

    def state(self) -> dict[str, Tensor]:
        """Copies of everything that training goes on from, exactly as if it had not stopped.

        What agents draw is a function of their seeds and `step`, so no random state is among it.
        """
        state = {name: tensor.cpu().clone() for name, tensor in self._tensors().items()}
        return state | {"step": torch.tensor(self.step), "seeds": torch.tensor(self.seeds)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state of agents with the same spaces, seeds and settings.

        Raises:
            CheckpointError: the state of other agents; nothing was changed.
        """
        own = self._tensors() | {"step": torch.tensor(0), "seeds": torch.tensor(self.seeds)}
        found = {name: tuple(tensor.shape) for name, tensor in state.items()}
        expected = {name: tuple(tensor.shape) for name, tensor in own.items()}
        if found != expected or tuple(state["seeds"].tolist()) != self.seeds:
            raise CheckpointError.mismatch(
                "training state",
                expected=f"{expected} of seeds {list(self.seeds)}",
                got=f"{found} of seeds {state.get('seeds', torch.empty(0)).tolist()}",
                fix="Build the agents with the spaces, seeds and settings it came from.",
            )
        require_state("training state", state, own)
        for name, tensor in self._tensors().items():
            tensor.copy_(state[name])
        self.step = int(state["step"])
        self._refresh()

    def _check(self, data: Transitions) -> None:
        sizes = (data.observations.shape[1], data.actions.shape[1])
        if sizes != self._sizes or data.next_observations.shape[1] != sizes[0]:
            raise SpaceError.mismatch(
                "transitions",
                expected="observations and actions of {} and {} numbers".format(*self._sizes),
                got="{} and {}".format(*sizes),
                fix="Use the spaces of the environment that was recorded.",
            )
        if data.rewards.ndim == 2 and len(data.rewards) not in (1, len(self.seeds)):
            raise DataError.mismatch(
                "rows of rewards",
                expected=f"one for each of {len(self.seeds)} agents",
                got=len(data.rewards),
            )
        if data.observations.device.type != self.device.type:
            raise DataError.mismatch(
                "device of transitions", expected=self.device, got=data.rewards.device
            )
