"""Evaluations of an offline run's agents while they learn, kept as files of the run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

from preferl.evaluation.curve import Evaluation, Evaluator, often
from preferl.evaluation.policies import Policy
from preferl.evaluation.rollout import task_env
from preferl.feedback.step_rewards import Reward
from preferl.files import write_json
from preferl.offline.experiment.conditions import (
    ANSWERS,
    CLONING,
    LEARNED,
    TRUE,
    agent_name,
    reward_of_condition,
)
from preferl.offline.experiment.config import OfflineConfig
from preferl.offline.experiment.inputs import read_json
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import MetricSink
from preferl.runs import RunFolder
from preferl.training.generators import generators_left_alone

CURVES: Final = "curves"
"""Folder of a file for each agent that is evaluated while it learns."""

FIRST_EPISODE: Final = 30_000
"""Beyond the seed of the run: finished policies and the report have other episodes."""

OnEvaluation = Callable[[str, Evaluation], None]
"""Called with a condition, or an agent that learns alone, and its evaluation."""


@final
class AgentCurves:
    """Evaluates the agents of the condition that a run is about, every so many updates.

    These are the agents of the learned reward, or of the true one where the run has no other, or
    the clones of a run without rewards. Controls are evaluated at their end alone. Evaluations are
    made at the reports of progress, and a run that resumes does not repeat those of its folder.
    """

    def __init__(
        self,
        config: OfflineConfig,
        seeds: Sequence[int],
        folder: RunFolder,
        sink: MetricSink,
        on_evaluation: OnEvaluation | None,
    ) -> None:
        self._config = config
        self._folder = folder
        self._sink = sink
        self._on_evaluation = on_evaluation
        rewarded = TRUE if config.uses_true_reward else LEARNED
        of = {"rewards": rewarded, "answers": ANSWERS, "actions": CLONING}
        self._condition = of[config.kind.learns_from]
        self._seeds = {agent_name(self._condition, seed): seed for seed in seeds}
        self._evaluator = Evaluator(
            task_env(config),
            every=often(config.eval_every, config.updates) if config.episodes else 0,
            episodes=config.eval_episodes,
            seed=seeds[0] + FIRST_EPISODE,
            max_steps=config.max_steps,
        )

    @property
    def every(self) -> int:
        """Updates from one evaluation to the next; 0 without any."""
        return self._evaluator.every

    def offer(
        self,
        agents: Sequence[str],
        policies: Callable[[], Sequence[Any]],
        step: int,
        reward: Reward | None,
    ) -> None:
        """Evaluate those of a learner's agents that it is time for.

        Args:
            agents: their names.
            policies: gives copies of their policies as they are now, in the same order.
            step: updates that it has made.
            reward: learned, by which policies with a target return act.
        """
        over = step >= self._config.updates
        due = [
            (place, name)
            for place, name in enumerate(agents)
            if name in self._seeds and self._evaluator.due(step, self._last(name), over=over)
        ]
        if not due:
            return
        found: list[Evaluation] = []
        with generators_left_alone():
            now = policies()
            for place, name in due:
                policy = self._as_saved(now[place], self._seeds[name], reward)
                found.append(Evaluation(step, self._evaluator(policy)))
        for (_, name), evaluation in zip(due, found, strict=True):
            known = [one.to_json() for one in [*self.of(name), evaluation]]
            write_json(self._folder.path(f"{CURVES}/{name}.json"), {"evaluations": known})
        label = self._condition if self._config.kind.together else agents[0]
        pooled = Evaluation.pooled(found)
        self._sink.log(pooled.metrics(f"eval/{label}"), step)
        if self._on_evaluation is not None:
            self._on_evaluation(label, pooled)

    def of(self, agent: str) -> list[Evaluation]:
        """The evaluations of an agent so far."""
        file = self._folder.folder / f"{CURVES}/{agent}.json"
        if not file.is_file():
            return []
        return [Evaluation.from_json(one) for one in read_json(file)["evaluations"]]

    def to_json(self) -> dict[str, Any]:
        """All of them, by agent."""
        return {name: [one.to_json() for one in self.of(name)] for name in self._seeds}

    def _last(self, agent: str) -> int:
        """Updates at its latest evaluation; 0 before the first."""
        before = self.of(agent)
        return before[-1].step if before else 0

    def _as_saved(self, policy: Any, seed: int, reward: Reward | None) -> Policy:
        """A policy as it acts once it was saved and is read again."""
        learner = OFFLINE_LEARNERS.load(self._config.policy)
        by = reward_of_condition(self._condition, seed, reward)
        with TemporaryDirectory() as folder:
            policy.save(Path(folder) / "policy")
            loaded: Policy = learner.load_policy(Path(folder) / "policy", by)
            return loaded
