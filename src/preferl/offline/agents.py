"""Agents of an offline run: trained into its folder, cloned beside, and loaded to act."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from preferl.evaluation.policies import Policy
from preferl.feedback.step_rewards import Reward, control_rewards
from preferl.offline.arms import CLONING, LEARNED, TRUE, Arms, agent_name
from preferl.offline.config import OfflineConfig
from preferl.offline.decision_policy import DecisionTransformerPolicy
from preferl.offline.inputs import Inputs
from preferl.offline.learner import BehaviourCloning, Metrics, OfflineLearner, train
from preferl.offline.policy import CONFIG, OfflinePolicy
from preferl.offline.transitions import Transitions
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import MetricSink
from preferl.runs import RunFolder

OnUpdate = Callable[[int, int], None]
"""Called with how many updates are made, and of how many."""


@final
class AgentTrainer:
    """Trains agents into a run's folder, from where they stopped; what is done is not redone.

    Args:
        config: of the run.
        inputs: what they learn from.
        folder: gets states while they train, and a policy for each in the end.
        sink: gets the mean of each metric over the seeds of an arm, or each Decision
            Transformer's own.
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
        self._spaces = inputs.observation_space, inputs.action_space

    def learn(self, arms: Arms, on_update: OnUpdate) -> None:
        """Agents of all arms and seeds.

        Those of implicit Q-learning are one batched computation. Decision Transformers follow one
        another; the returns that they are asked for are those of their arm.
        """
        if self._config.kind.asked:
            self._learn_sequences(arms, on_update)
        elif self._missing(arms.agents):
            learner: OfflineLearner[Any] = OFFLINE_LEARNERS.load(self._config.policy)(
                *self._spaces,
                self._config.settings,
                seeds=arms.agent_seeds,
                steps=self._config.updates,
                device=self._config.device,
            )
            rewards, device = arms.flat_rewards, self._config.device
            data = Transitions.of(self._inputs.episodes, rewards=rewards, device=device)
            named = {arm: [agent_name(arm, seed) for seed in arms.seeds] for arm in arms.names}
            self._train(self._config.policy, learner, data, named, on_update)

    def clone(self, seeds: Sequence[int], on_update: OnUpdate) -> None:
        """Agents that imitate, with the settings that the others' policies have."""
        names = [agent_name(CLONING, seed) for seed in seeds]
        if self._missing(names):
            learner = BehaviourCloning(
                *self._spaces,
                self._config.clone,
                seeds=seeds,
                steps=self._config.clone_updates,
                device=self._config.device,
            )
            data = Transitions.of(self._inputs.episodes, device=self._config.device)
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
        every = self._checkpoint_every
        train(learner, data, state, checkpoint_every=every, on_progress=report)
        names = [name for group in named.values() for name in group]
        for name, policy in zip(names, learner.policies(), strict=True):
            policy.save(self._folder.path(f"policies/{name}"))
        state.unlink()

    def _learn_sequences(self, arms: Arms, on_update: OnUpdate) -> None:
        steps, total = self._config.updates, len(arms.agents) * self._config.updates
        for k, (name, seed) in enumerate(zip(arms.agents, arms.agent_seeds, strict=True)):
            if not self._missing([name]):
                continue
            agent = OFFLINE_LEARNERS.load(self._config.policy)(
                *self._spaces,
                self._config.settings,
                seed=seed,
                steps=steps,
                device=self._config.device,
            )

            def report(step: int, metrics: dict[str, float], k: int = k, name: str = name) -> None:
                self._sink.log({f"dt/{name}/{key}": v for key, v in metrics.items()}, step)
                on_update(k * steps + step, total)

            checkpoints = self._folder.path(f"training/{name}")
            agent.fit(
                agent.sequences(self._inputs.episodes, rewards=arms.flat_rewards[k]),
                folder=checkpoints,
                resume=True,
                checkpoint_every=self._checkpoint_every,
                on_progress=report,
            )
            agent.policy().save(self._folder.path(f"policies/{name}"))
            shutil.rmtree(checkpoints, ignore_errors=True)

    def _missing(self, names: Sequence[str]) -> bool:
        folders = [self._folder.folder / "policies" / name for name in names]
        return not all((folder / CONFIG).is_file() for folder in folders)


def load_agent(
    folder: RunFolder, config: OfflineConfig, arm: str, seed: int, learned: Reward | None
) -> Policy:
    """A policy of a run, as it acts.

    Args:
        folder: of the run.
        config: of the run.
        arm: whose.
        seed: whose.
        learned: the learned reward.
    """
    if config.kind.asked and arm != CLONING:
        return load_sequence_agent(folder, arm, seed, learned)
    return OfflinePolicy.load(Path(folder.path(f"policies/{agent_name(arm, seed)}")))


def load_sequence_agent(
    folder: RunFolder, arm: str, seed: int, learned: Reward | None
) -> DecisionTransformerPolicy:
    """The Decision Transformer of an arm, which goes by what its returns were made of."""
    path = Path(folder.path(f"policies/{agent_name(arm, seed)}"))
    return DecisionTransformerPolicy.load(path).paid_by(reward_of_arm(arm, seed, learned))


def reward_of_arm(arm: str, seed: int, learned: Reward | None) -> Reward | None:
    """What the policies of an arm go by as they act; None where it is the environment's reward."""
    if arm == TRUE or learned is None:
        return None
    return {LEARNED: learned, **control_rewards(learned, seed)}.get(arm, learned)
