"""The core of offline learners: several agents at once, their policies, progress and resuming."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast, final

import numpy as np
import torch
from gymnasium import spaces
from safetensors.torch import load_file, save_file
from torch import Tensor

from preferl.data.episodes import Episodes
from preferl.errors import CheckpointError, ConfigError, DataError, SpaceError, require_in
from preferl.feedback.step_rewards import Reward
from preferl.files import writing
from preferl.functional.value import cosine_decay, gaussian_log_density
from preferl.models.blocks import kept_by_seeds, kept_share
from preferl.models.folder import require_converged, require_state
from preferl.offline.learner_configs import CloningConfig, GaussianConfig
from preferl.offline.networks import Networks
from preferl.offline.policy import OfflinePolicy
from preferl.offline.transitions import (
    ActionScale,
    Batch,
    Minibatches,
    Transitions,
    observation_size,
)
from preferl.reading import reading
from preferl.shapes import FloatArray
from preferl.threads import MOST_WEIGHTS, threads_for
from preferl.training.recorded import RecordedUpdate

Settings = TypeVar("Settings", bound=GaussianConfig)
Metrics = dict[str, FloatArray]  # names to `[S]`, a number for each agent
OnProgress = Callable[[int, Metrics], None]  # the number of updates, and the last metrics


class OfflineLearner(ABC, Generic[Settings]):
    """`S` agents that learn side by side from the same transitions, one per seed.

    All agents are a single batched computation. An agent's weights and minibatches depend only on
    its own seed: if it is trained alone, it is the same agent, except for rounding. Policies are
    diagonal Gaussians with a tanh on the mean, and deviations that do not depend on the state.
    Samples are not squashed, so the density has its plain form (Kostrikov et al. 2022, and its
    reference implementation).

    Args:
        observation_space: a Box of floats, or a Dict of these.
        action_space: a Box of floats.
        config: settings; the defaults if None.
        seeds: one seed per agent. Agents with the same seed and rewards are the same.
        steps: number of planned updates, over which the policy's learning rate decays.
        device: device on which agents learn.

    Raises:
        SpaceError: a space is of another kind.
        ConfigError: there are no seeds, a seed is negative, or there is less than one update.
    """

    config: Settings
    _settings: ClassVar[type[GaussianConfig]]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: Settings | None = None,
        *,
        seeds: Sequence[int],
        steps: int,
        device: torch.device | str = "cpu",
    ) -> None:
        if not seeds or min(seeds) < 0:
            raise ConfigError(f"seeds: expected numbers of at least 0, got {list(seeds)}.")
        require_in("steps", steps, 1, math.inf)
        self.observation_space = observation_space
        self.action_space = action_space
        self.config = config or cast("Settings", self._settings())
        self.seeds = tuple(int(seed) for seed in seeds)
        self.steps = steps
        self.step = 0
        self.device = torch.device(device)
        self._scale = ActionScale.of(action_space, self.device)
        observation = observation_size(observation_space)
        action = len(self._scale.centre)
        self._policies = self._perceptrons(observation, action, log_std=(len(seeds), action, 1))
        self._networks = {"policy": self._policies, **self._build(observation, action)}
        self._policy_rate = torch.zeros((), device=self.device)  # a recorded update reads it
        self._make_update = self._fresh_update()
        for agent, seed in enumerate(self.seeds):
            generator = torch.Generator().manual_seed(seed)
            for networks in self._networks.values():
                for row in range(agent, networks.count, len(self.seeds)):
                    networks.initialise(row, generator)

    def fit(
        self,
        data: Transitions,
        steps: int,
        *,
        on_progress: OnProgress | None = None,
        every: int = 1000,
    ) -> Metrics:
        """Make `steps` more updates; return the metrics of the last minibatch.

        Small networks are computed by one processor thread.

        Args:
            data: transitions on the agents' device; rewards are `[T]`, or have a row per agent.
            steps: number of updates to make now.
            on_progress: called after every `every` updates, counted from the first call of `fit`,
                and at the end.
            every: updates between two calls of `on_progress`.

        Raises:
            ConfigError: there is less than one update.
            SpaceError: the transitions do not fit the spaces.
            DataError: rewards are for another number of agents, or data are on another device.
            DivergenceError: weights became NaN or infinite.
        """
        if min(steps, every) < 1:
            raise ConfigError(f"steps and every: expected at least 1, got {(steps, every)}.")
        self._check(data)
        minibatches = Minibatches(data, self._scale, self.seeds, self.config.batch_size)
        end = self.step + steps
        metrics: Metrics = {}
        with threads_for(small=self._weights <= MOST_WEIGHTS):
            while self.step < end:
                self._prepare()
                measured = self._make_update(self._drawn(minibatches))
                self.step += 1
                if self.step % every == 0 or self.step == end:
                    require_converged("the agents' weights", self._tensors().values())
                    metrics = {
                        name: np.asarray(values.detach().cpu(), np.float64)
                        for name, values in measured.items()
                    }
                    if on_progress is not None:
                        on_progress(self.step, metrics)
        return metrics

    @property
    def _weights(self) -> int:
        """How many numbers all networks of all agents have together."""
        parameters = [networks.parameters.values() for networks in self._networks.values()]
        return sum(tensor.numel() for tensors in parameters for tensor in tensors)

    def learn(
        self,
        episodes: Episodes,
        rewards: FloatArray | None,
        state: Path,
        *,
        checkpoint_every: int,
        on_progress: OnProgress,
        every: int = 1_000,
    ) -> None:
        """Make the planned updates; resume from the checkpoint file if it exists.

        Rewards `[S, T]` replace the episodes' own. The file is written every `checkpoint_every`
        updates. `on_progress` is called then, and also every `every` updates.
        """
        data = Transitions.of(episodes, rewards=rewards, device=self.device)
        if state.is_file():
            self.load_state(load_training(state))
        while self.step < self.steps:
            ahead = checkpoint_every - self.step % checkpoint_every
            steps = min(ahead, self.steps - self.step)
            self.fit(data, steps, on_progress=on_progress, every=every)
            with writing(state, durable=True) as draft:
                save_file(self.state(), draft)

    @staticmethod
    def load_policy(path: Path, reward: Reward | None) -> OfflinePolicy:  # noqa: ARG004
        """Read a saved policy. Unlike a Decision Transformer, it needs no reward to act."""
        return OfflinePolicy.load(path)

    def policies(self) -> list[OfflinePolicy]:
        """Return copies of the learned policies, one per seed."""
        log_std = self._policies.parameters["log_std"].detach().cpu()
        return [
            OfflinePolicy(
                self.observation_space,
                self.action_space,
                self._policies.layers(agent) | {"log_std": log_std[agent, :, 0].clone()},
                log_std_bounds=self.config.log_std_bounds,
                learner=type(self).__name__,
            )
            for agent in range(len(self.seeds))
        ]

    def state(self) -> dict[str, Tensor]:
        """Return copies of all tensors that exact resuming needs.

        Random numbers depend only on the seeds and on `step`, so no generator is saved.
        """
        state = {name: tensor.cpu().clone() for name, tensor in self._tensors().items()}
        return state | {"step": torch.tensor(self.step), "seeds": torch.tensor(self.seeds)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a state of agents with the same spaces, seeds and settings.

        Raises:
            CheckpointError: the state belongs to other agents; then nothing is changed.
        """
        tensors = self._tensors()
        seeds = torch.tensor(self.seeds)
        what = "training state of agents with these spaces, seeds and settings"
        require_state(what, state, tensors | {"step": torch.tensor(0), "seeds": seeds})
        if not state["seeds"].equal(seeds):
            raise CheckpointError(
                f"{what}: expected one of seeds {[*self.seeds]}, got one of seeds "
                f"{state['seeds'].tolist()}. Build the agents with the seeds of the state."
            )
        for name, tensor in tensors.items():
            tensor.copy_(state[name])
        self.step = int(state["step"])

    def _build(self, observation: int, action: int) -> dict[str, Networks]:  # noqa: ARG002  # a hook
        """Build the networks beside the policies, by name, in the order a seed fills them in."""
        return {}

    def _batch(self, minibatches: Minibatches) -> Batch:
        """Return the batch of the next update."""
        return minibatches(self.step)

    def _drawn(self, minibatches: Minibatches) -> Batch:
        """Return the next batch with all random numbers of its update."""
        batch = self._batch(minibatches)
        share = self.config.dropout
        return batch._replace(factors=self._kept(batch)) if share else batch

    def _rows(self, batch: Batch) -> int:  # noqa: ARG002  # a hook
        """Count the actions that a policy chooses in an update from this batch."""
        return self.config.batch_size

    def _prepare(self) -> None:
        """Prepare the next update, except for its batch."""
        self._set_rate(self.step, self.steps)

    def _set_rate(self, step: int, steps: int) -> None:
        """Set the policy's learning rate for update `step` of `steps` planned ones."""
        decayed = cosine_decay(step, steps) if self.config.decay else 1.0
        self._policy_rate.fill_(self.config.learning_rate * decayed)

    def _fresh_update(self) -> Callable[[Batch], dict[str, Tensor]]:
        """Return `_update`, as a recorded CUDA graph if the agents are on a GPU."""
        on_gpu = self.device.type == "cuda"
        return RecordedUpdate(self._update, self.device) if on_gpu else self._update

    @abstractmethod
    def _update(self, batch: Batch) -> dict[str, Tensor]:
        """Make one update; return its metrics, `[S]` each."""

    def _perceptrons(
        self, inputs: int, outputs: int, *, each: int = 1, **extra: tuple[int, ...]
    ) -> Networks:
        """Build `each` networks for each agent, side by side in one batch."""
        sizes = (inputs, *self.config.hidden, outputs)
        count = each * len(self.seeds)
        precision = self.config.precision
        device = self.device
        return Networks(sizes, count, precision=precision, device=device, extra=extra)

    def _tensors(self) -> dict[str, Tensor]:
        """Return all tensors that training changes, by name."""
        return {
            f"{of}.{name}": tensor
            for of, networks in self._networks.items()
            for name, tensor in networks.tensors().items()
        }

    def _climb(self, batch: Batch, weights: Tensor | None = None) -> dict[str, Tensor]:
        """Make recorded actions more likely under the policies, with weights `[S, B]` if given.

        Return `policy_loss` `[S]` before the step: minus the mean of weight times log density.
        """
        config = self.config
        mean = self._policies.forward(batch.states[:, 0], batch.factors).tanh()
        log_std = self._policies.parameters["log_std"].clamp(*config.log_std_bounds)
        density = gaussian_log_density(batch.actions.mT, mean.mT, log_std.mT)
        loss = -(density if weights is None else density * weights).mean(1)
        self._policies.descend(loss, self._policy_rate)
        return {"policy_loss": loss}

    def _kept(self, batch: Batch) -> tuple[Tensor, ...]:
        """Draw dropout factors for the units of each hidden layer, with each agent's own seed."""
        share = self.config.dropout
        rows = self._rows(batch)
        generator = torch.Generator(self.device)
        factors = []
        for layer, units in enumerate(self.config.hidden):
            like = torch.empty(len(self.seeds), rows, units, device=self.device)
            seeds = [seed ^ layer for seed in batch.dropout_seeds]
            drawn = kept_by_seeds(like, share, seeds, generator)
            factors.append(drawn.div_(kept_share(share)))
        return tuple(factors)

    def _check(self, data: Transitions) -> None:
        expected = (observation_size(self.observation_space), len(self._scale.centre))
        sizes = (data.observations.shape[1], data.actions.shape[1])
        if sizes != expected or data.next_observations.shape[1] != sizes[0]:
            raise SpaceError(
                f"transitions: expected observations and actions of {expected[0]} and "
                f"{expected[1]} numbers, got {sizes[0]} and {sizes[1]}. Use the spaces of the "
                "environment that was recorded."
            )
        rows = len(data.rewards) if data.rewards.ndim == 2 else 1
        if rows not in (1, len(self.seeds)):
            raise DataError(
                f"rows of rewards: expected one for each of {len(self.seeds)} agents, got {rows}."
            )
        if data.observations.device.type != self.device.type:
            raise DataError(
                f"device of transitions: expected {self.device}, got {data.rewards.device}."
            )


@final
class BehaviourCloning(OfflineLearner[CloningConfig]):
    """Imitates recorded actions without rewards: the control of all other learners.

    >>> from preferl.offline import Transitions
    >>> from preferl.testing import make_episodes
    >>> episodes = make_episodes(np.random.default_rng(0), [30, 20])
    >>> agents = BehaviourCloning(
    ...     spaces.Box(-2, 2, (2,)), spaces.Box(-1, 1, (2,)), seeds=[0, 1], steps=10
    ... )
    >>> agents.fit(Transitions.of(episodes), 10)["policy_loss"].shape
    (2,)
    """

    _settings = CloningConfig

    def _update(self, batch: Batch) -> dict[str, Tensor]:
        return self._climb(batch)


def load_training(path: Path) -> dict[str, Any]:
    """Read a training state."""
    fix = "Remove it to train from the beginning."
    with reading(f"training state {path}", expected="a whole file", fix=fix):
        state: dict[str, Any] = load_file(path)
    return state
