"""Training the agents of an offline run: all arms and seeds at once, and clones beside them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from preferl.offline.arms import Arms, agent_name
from preferl.offline.config import OfflineConfig
from preferl.offline.inputs import Inputs
from preferl.offline.learner import BehaviourCloning, Metrics, OfflineLearner, train
from preferl.offline.policy import CONFIG
from preferl.offline.transitions import Transitions
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import MetricSink
from preferl.runs import RunFolder

OnUpdate = Callable[[int, int], None]
"""Told how many updates are made, and of how many."""

CLONING = "cloning"
"""The arm of agents that imitate the data, whatever it was paid."""


@final
class AgentTrainer:
    """Trains agents into a run's folder, from where they stopped; what is done is not redone.

    Args:
        config: of the run.
        inputs: what they learn from.
        folder: gets states while they train, and a policy for each in the end.
        sink: gets the mean of each metric over the seeds of an arm.
        checkpoint_every: updates between two states.
    """

    def __init__(
        self,
        config: OfflineConfig,
        inputs: Inputs,
        folder: RunFolder,
        sink: MetricSink,
        *,
        checkpoint_every: int,
    ) -> None:
        self._config, self._inputs, self._folder = config, inputs, folder
        self._sink, self._checkpoint_every = sink, checkpoint_every

    def learn(self, arms: Arms, on_update: OnUpdate) -> None:
        """Agents of all arms and seeds as one batched computation of implicit Q-learning."""
        if self._missing(arms.agents):
            inputs = self._inputs
            learner: OfflineLearner[Any] = OFFLINE_LEARNERS.load(self._config.policy)(
                inputs.observation_space,
                inputs.action_space,
                self._config.settings,
                seeds=arms.agent_seeds,
                steps=self._config.updates,
                device=self._config.device,
            )
            data = Transitions.of(
                inputs.episodes, rewards=arms.flat_rewards, device=self._config.device
            )
            named = {arm: [agent_name(arm, seed) for seed in arms.seeds] for arm in arms.names}
            self._train(self._config.policy, learner, data, named, on_update)

    def clone(self, seeds: Sequence[int], on_update: OnUpdate) -> None:
        """Agents that imitate, with the settings that the others' policies have."""
        names = [agent_name(CLONING, seed) for seed in seeds]
        if self._missing(names):
            inputs = self._inputs
            learner = BehaviourCloning(
                inputs.observation_space,
                inputs.action_space,
                self._config.clone,
                seeds=seeds,
                steps=self._config.clone_updates,
                device=self._config.device,
            )
            data = Transitions.of(inputs.episodes, device=self._config.device)
            self._train("cloning", learner, data, {CLONING: names}, on_update)

    def _train(
        self,
        what: str,
        learner: OfflineLearner[Any],
        data: Transitions,
        named: Mapping[str, Sequence[str]],
        on_update: OnUpdate,
    ) -> None:
        """Train, save the policies by name, and only then forget the state."""

        def report(step: int, metrics: Metrics) -> None:
            values = {
                f"{what}/{arm}/{name}": float(value.reshape(len(named), -1)[k].mean())
                for name, value in metrics.items()
                for k, arm in enumerate(named)
            }
            self._sink.log(values, step)
            on_update(step, learner.steps)

        state = self._folder.path(f"training/{what}.safetensors")
        train(
            learner,
            data,
            state,
            checkpoint_every=self._checkpoint_every,
            on_progress=report,
        )
        names = [name for group in named.values() for name in group]
        for name, policy in zip(names, learner.policies(), strict=True):
            policy.save(self._folder.path(f"policies/{name}"))
        state.unlink()

    def _missing(self, names: Sequence[str]) -> bool:
        return not all(
            (self._folder.folder / "policies" / name / CONFIG).is_file() for name in names
        )
