"""Training the Decision Transformers of an offline run, one after the other, and what pays them."""

import shutil
from pathlib import Path
from typing import final

from preferl.evaluation.controls import negated, random, zero
from preferl.evaluation.protocols import Policy, Reward
from preferl.offline import arms
from preferl.offline.agents import OnUpdate
from preferl.offline.arms import Arms, agent_name
from preferl.offline.config import OfflineConfig
from preferl.offline.decision_policy import DecisionTransformerPolicy
from preferl.offline.inputs import Inputs
from preferl.offline.learned import LearnedReward
from preferl.offline.policy import CONFIG, OfflinePolicy
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import MetricSink
from preferl.runs import RunFolder


@final
class SequenceTrainer:
    """Trains Decision Transformers into a run's folder; what is done is not redone.

    Args:
        config: of the run.
        inputs: what they learn from.
        folder: gets checkpoints while they train, and a policy for each in the end.
        sink: gets each agent's numbers.
        checkpoint_every: updates between two checkpoints.
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

    def learn(self, taught: Arms, on_update: OnUpdate) -> None:
        """Agents of all arms and seeds; the returns that they are asked for are those of an arm."""
        steps, total = self._config.updates, len(taught.agents) * self._config.updates
        for k, (name, seed) in enumerate(zip(taught.agents, taught.agent_seeds, strict=True)):
            if (self._folder.folder / "policies" / name / CONFIG).is_file():
                continue
            agent = OFFLINE_LEARNERS.load(self._config.policy)(
                self._inputs.observation_space,
                self._inputs.action_space,
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
                agent.sequences(self._inputs.episodes, rewards=taught.flat_rewards[k]),
                folder=checkpoints,
                resume=True,
                checkpoint_every=self._checkpoint_every,
                on_progress=report,
            )
            agent.policy().save(self._folder.path(f"policies/{name}"))
            shutil.rmtree(checkpoints, ignore_errors=True)


def load_sequence_policy(
    folder: RunFolder, arm: str, seed: int, learned: Reward | None
) -> DecisionTransformerPolicy:
    """The policy of an arm, paid by what its returns were made of.

    Args:
        folder: of the run.
        arm: whose.
        seed: whose.
        learned: the learned reward.
    """
    path = Path(folder.path(f"policies/{agent_name(arm, seed)}"))
    return DecisionTransformerPolicy.load(path).paid_by(payer(arm, seed, learned))


def taught_policy(
    folder: RunFolder, config: OfflineConfig, seed: int, learned: LearnedReward
) -> Policy:
    """What the learned reward taught, of either kind."""
    if config.kind.asked:
        return load_sequence_policy(folder, arms.LEARNED, seed, learned.reward)
    return OfflinePolicy.load(folder.path(f"policies/{agent_name(arms.LEARNED, seed)}"))


def payer(arm: str, seed: int, learned: Reward | None) -> Reward | None:
    """What pays the policies of an arm as they act; None where the environment does."""
    if arm == arms.TRUE or learned is None:
        return None
    match arm:
        case arms.ZERO:
            return zero()
        case arms.RANDOM:
            return random(seed)
        case arms.NEGATED:
            return negated(learned)
    return learned
