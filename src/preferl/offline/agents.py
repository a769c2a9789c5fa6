"""Agents of an offline run: trained into its folder, cloned beside, and loaded to act."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from preferl.feedback.step_rewards import Reward, control_rewards
from preferl.models.folder import OFFLINE_POLICY
from preferl.offline.conditions import CLONING, LEARNED, TRUE, Conditions, agent_name
from preferl.offline.config import UPDATES, OfflineConfig
from preferl.offline.decision_policy import DecisionTransformerPolicy, load_offline_policy
from preferl.offline.decision_transformer import DecisionTransformer
from preferl.offline.inputs import Inputs, OnProgress
from preferl.offline.learner import BehaviourCloning, Metrics, OfflineLearner, train
from preferl.offline.policy import OfflinePolicy
from preferl.offline.transitions import Transitions
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import MetricSink
from preferl.runs import RunFolder


@final
@dataclass(frozen=True, eq=False)
class AgentTrainer:
    """Trains the agents of a run that its folder lacks, from where they stopped.

    The sink gets the mean of each metric over the seeds of a condition, or each Decision
    Transformer's own; `checkpoint_every` are the updates between two states.
    """

    config: OfflineConfig
    inputs: Inputs
    folder: RunFolder
    sink: MetricSink
    checkpoint_every: int

    def learn(self, conditions: Conditions, on_update: OnProgress) -> None:
        """Train agents of all conditions and seeds.

        Those of implicit Q-learning are one batched computation. Decision Transformers follow one
        another; their target returns are by the rewards of their condition.
        """
        config = self.config
        build = partial(
            OFFLINE_LEARNERS.load(config.policy),
            self.inputs.observation_space,
            self.inputs.action_space,
            config.settings,
            steps=config.updates,
            device=config.device,
        )
        if config.kind.has_target:
            self._train_in_turn(build, conditions, on_update)
        elif self._missing(conditions.agents):
            rewards, device = conditions.flat_rewards, config.device
            data = Transitions.of(self.inputs.episodes, rewards=rewards, device=device)
            names = {c: [agent_name(c, s) for s in conditions.seeds] for c in conditions.names}
            learner = build(seeds=conditions.agent_seeds)
            self._train(config.policy, learner, data, names, on_update)

    def clone(self, seeds: Sequence[int], on_update: OnProgress) -> None:
        """Train agents that imitate, with the settings of the others' policies."""
        config, names = self.config, [agent_name(CLONING, seed) for seed in seeds]
        if self._missing(names):
            steps, device = config.steps or UPDATES, config.device
            spaces = self.inputs.observation_space, self.inputs.action_space
            learner = BehaviourCloning(
                *spaces, config.clone, seeds=seeds, steps=steps, device=device
            )
            data = Transitions.of(self.inputs.episodes, device=device)
            self._train("cloning", learner, data, {CLONING: names}, on_update)

    def _train(
        self,
        what: str,
        learner: OfflineLearner[Any],
        data: Transitions,
        names: Mapping[str, Sequence[str]],
        on_update: OnProgress,
    ) -> None:
        """Train, save the policies by name, and only then remove the state."""

        def report(step: int, metrics: Metrics) -> None:
            values = {
                f"{what}/{condition}/{name}": float(value.reshape(len(names), -1)[k].mean())
                for name, value in metrics.items()
                for k, condition in enumerate(names)
            }
            self.sink.log(values, step)
            on_update(step, learner.steps)

        state = self.folder.path(f"training/{what}.safetensors")
        every = self.checkpoint_every
        train(learner, data, state, checkpoint_every=every, on_progress=report)
        agents = [name for group in names.values() for name in group]
        for name, policy in zip(agents, learner.policies(), strict=True):
            policy.save(self.folder.path(f"policies/{name}"))
        state.unlink()

    def _train_in_turn(
        self,
        build: Callable[..., DecisionTransformer],
        conditions: Conditions,
        on_update: OnProgress,
    ) -> None:
        steps, total = self.config.updates, len(conditions.agents) * self.config.updates
        for k, (name, seed) in enumerate(
            zip(conditions.agents, conditions.agent_seeds, strict=True)
        ):
            if not self._missing([name]):
                continue

            def report(step: int, metrics: dict[str, float], k: int = k, name: str = name) -> None:
                self.sink.log({f"dt/{name}/{key}": v for key, v in metrics.items()}, step)
                on_update(k * steps + step, total)

            agent, checkpoints = build(seed=seed), self.folder.path(f"training/{name}")
            agent.fit(
                agent.sequences(self.inputs.episodes, rewards=conditions.flat_rewards[k]),
                folder=checkpoints,
                resume=True,
                checkpoint_every=self.checkpoint_every,
                on_progress=report,
            )
            agent.policy().save(self.folder.path(f"policies/{name}"))
            shutil.rmtree(checkpoints, ignore_errors=True)

    def _missing(self, names: Sequence[str]) -> bool:
        folders = [self.folder.folder / "policies" / name for name in names]
        return not all((folder / OFFLINE_POLICY.config).is_file() for folder in folders)


def load_agent(
    folder: RunFolder, condition: str, seed: int, learned: Reward | None
) -> OfflinePolicy | DecisionTransformerPolicy:
    """Load a policy of a run; a Decision Transformer goes by the reward of its condition."""
    policy = load_offline_policy(folder.path(f"policies/{agent_name(condition, seed)}"))
    if isinstance(policy, DecisionTransformerPolicy):
        return policy.with_reward(reward_of_condition(condition, seed, learned))
    return policy


def reward_of_condition(condition: str, seed: int, learned: Reward | None) -> Reward | None:
    """The reward that a condition's policies go by; None where it is the environment's."""
    if condition == TRUE or learned is None:
        return None
    return {LEARNED: learned, **control_rewards(learned, seed)}.get(condition, learned)
