"""The agents of an offline run, their training, and their evaluations while they learn."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import numpy as np

from preferl.configs import to_json
from preferl.data.comparisons import concatenate
from preferl.evaluation.curve import Evaluation, Evaluator, often
from preferl.evaluation.rollout import task_env
from preferl.feedback.step_rewards import Reward
from preferl.files import write_json
from preferl.models.folder import OFFLINE_POLICY
from preferl.offline.experiment.conditions import (
    CLONING,
    agent_name,
    main_condition,
    reward_of_condition,
)
from preferl.offline.experiment.config import OfflineConfig
from preferl.offline.experiment.inputs import Inputs, LearnedReward, OnProgress, read_json
from preferl.offline.learner_configs import LearnerConfig
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import MetricSink
from preferl.runs import RunFolder
from preferl.shapes import FloatArray
from preferl.training.generators import generators_left_alone

FIRST_CURVE_EPISODE: Final = 30_000
"""Beyond the seed of the run: finished policies and the report have other episodes."""

OnStage = Callable[[str, int, int], None]  # stage, how much of it is done, and of how much
OnEvaluation = Callable[[str, Evaluation], None]
"""Called with a condition, or an agent that learns alone, and its evaluation."""


@final
@dataclass(eq=False)
class OpenRun:
    """A run at work in its folder: what its stages share."""

    config: OfflineConfig
    seeds: tuple[int, ...]
    inputs: Inputs
    folder: RunFolder
    sink: MetricSink
    on_stage: OnStage
    on_evaluation: OnEvaluation | None = None
    stage: str = ""
    learned: LearnedReward | None = None

    def begin(self, stage: str) -> OnProgress:
        """Report a new stage, and return a function that reports its progress."""
        self.stage = stage
        self.on_stage(stage, 0, 1)
        return partial(self.on_stage, stage)

    def acting_reward(self, condition: str, seed: int) -> Reward | None:
        """The reward by which policies with a target return act; None for the environment's."""
        learned = None if self.learned is None else self.learned.reward
        return reward_of_condition(condition, seed, learned)

    def load_policy(self, condition: str, seed: int) -> Any:
        """The saved policy of an agent."""
        name = self.config.cloning if condition == CLONING else self.config.policy
        path = self.folder.path(f"policies/{agent_name(condition, seed)}")
        learner = OFFLINE_LEARNERS.load(name)
        return learner.load_policy(path, self.acting_reward(condition, seed))

    @property
    def evaluator(self) -> Evaluator:
        """What evaluates agents while they learn."""
        config = self.config
        return Evaluator(
            task_env(config),
            every=often(config.eval_every, config.updates) if config.episodes else 0,
            episodes=config.eval_episodes,
            seed=self.seeds[0] + FIRST_CURVE_EPISODE,
            max_steps=config.max_steps,
        )

    def evaluations(self) -> dict[str, list[Evaluation]]:
        """Those of the agents of the main condition so far, which the folder keeps."""
        curves = {}
        for seed in self.seeds:
            name = agent_name(main_condition(self.config), seed)
            file = self.folder.folder / f"curves/{name}.json"
            saved = read_json(file)["evaluations"] if file.is_file() else []
            curves[name] = [Evaluation.from_json(evaluation) for evaluation in saved]
        return curves


@final
@dataclass(frozen=True, eq=False)
class Agents:
    """Agents of one run that learn in the same way: `S` seeds in each of `C` conditions."""

    run: OpenRun
    policy: str
    labels: tuple[str, ...]  # of the conditions; metrics are means over their agents
    names: tuple[str, ...]  # of the `C * S` agents, those of a condition side by side
    seeds: tuple[int, ...]  # `C * S`
    signals: FloatArray | None  # `[C * S, T]` rewards, or `[C * S, P]` answers; None of clones

    @property
    def learner(self) -> type[LearnerConfig]:
        """How they take part."""
        return OFFLINE_LEARNERS.config(self.policy)

    @property
    def state(self) -> str:
        """Name of the file, or folder, that their training resumes from."""
        return f"{self._prefix}.safetensors" if self.learner.together else self.names[0]

    @property
    def updates(self) -> int:
        """Updates of each agent."""
        return self.run.config.steps or self.learner.updates

    @property
    def kind(self) -> str:
        """What agents that can learn as one computation have in common, as text."""
        config = self.run.config
        settings = to_json(self.learner.of_run(config))
        return json.dumps([self.policy, self.updates, config.implied, settings])

    @property
    def trained(self) -> bool:
        """Whether the folder has all their policies."""
        return all((place / OFFLINE_POLICY.config).is_file() for place in self.places())

    def places(self) -> list[Path]:
        """The folder of each policy."""
        return [self.run.folder.path(f"policies/{name}") for name in self.names]

    def learners(self) -> list["Agents"]:
        """All of them as one, or each by itself where a learner takes one at a time."""
        if self.learner.together:
            return [self]
        return [
            replace(
                self,
                labels=(name,),
                names=(name,),
                seeds=(self.seeds[k],),
                signals=None if self.signals is None else self.signals[k : k + 1],
            )
            for k, name in enumerate(self.names)
        ]

    def report(
        self, policies: Callable[[], Sequence[Any]], step: int, metrics: Mapping[str, FloatArray]
    ) -> None:
        """Log metrics `[C * S]` of an update, and evaluate the agents that are due.

        Only agents of the main condition are evaluated while they learn; an evaluation that the
        folder of a resumed run has is not repeated.
        """
        run = self.run
        values = {
            f"{self._prefix}/{label}/{name}": float(rows.mean())
            for name, value in metrics.items()
            for label, rows in zip(self.labels, np.split(value, len(self.labels)), strict=True)
        }
        run.sink.log(values, step)
        over = step >= run.config.updates
        evaluator = run.evaluator
        curves = {name: curve for name, curve in run.evaluations().items() if name in self.names}
        due = [
            name
            for name, curve in curves.items()
            if evaluator.due(step, curve[-1].step if curve else 0, over=over)
        ]
        if not due:
            return
        with generators_left_alone():
            now = dict(zip(self.names, policies(), strict=True))
            latest = [Evaluation(step, evaluator(self._as_saved(name, now[name]))) for name in due]
        for name, evaluation in zip(due, latest, strict=True):
            written = [each.to_json() for each in (*curves[name], evaluation)]
            write_json(run.folder.path(f"curves/{name}.json"), {"evaluations": written})
        pooled = Evaluation.pooled(latest)
        logged = pooled.metrics(f"eval/{self.labels[0]}")
        for name, evaluation in zip(due, latest, strict=True):
            logged |= evaluation.metrics(f"eval/{name}")
        run.sink.log(logged, step)
        if run.on_evaluation is not None:
            run.on_evaluation(self.labels[0], pooled)

    @property
    def _prefix(self) -> str:
        return self.learner.prefix or self.policy

    def _as_saved(self, name: str, policy: Any) -> Any:
        """An agent's policy as it acts once it was saved and is read again."""
        learner = OFFLINE_LEARNERS.load(self.policy)
        condition = main_condition(self.run.config)
        reward = self.run.acting_reward(condition, self.seeds[self.names.index(name)])
        with TemporaryDirectory() as folder:
            policy.save(Path(folder) / "policy")
            return learner.load_policy(Path(folder) / "policy", reward)


def build_learner(
    config: OfflineConfig,
    inputs: Inputs,
    policy: str,
    *,
    seeds: Sequence[int],
    steps: int = 1,
    device: str | None = None,
) -> Any:
    """The learner of a policy's name, for one agent or several."""
    return OFFLINE_LEARNERS.build(
        policy,
        observation_space=inputs.observation_space,
        action_space=inputs.action_space,
        config=OFFLINE_LEARNERS.config(policy).of_run(config),
        seed=seeds[0],
        seeds=seeds,
        steps=steps,
        device=device or config.device,
    )


def train(
    groups: Sequence[Agents],
    state: Path,
    *,
    device: str,
    checkpoint_every: int,
    on_update: OnProgress,
) -> None:
    """Train agents of the same kind and episodes as one learner, from where they stopped.

    `state` is the file that training resumes from; it goes once all policies are in their folders.
    """
    if all(group.trained for group in groups):
        return
    first = groups[0]
    config = first.run.config
    inputs = first.run.inputs
    learner = build_learner(
        config,
        inputs,
        first.policy,
        seeds=[seed for group in groups for seed in group.seeds],
        steps=first.updates,
        device=device,
    )

    def report(step: int, metrics: Mapping[str, Any]) -> None:
        end = 0
        for group in groups:
            rows = slice(end, end + len(group.names))
            end = rows.stop
            own = {name: np.atleast_1d(values)[rows] for name, values in metrics.items()}
            group.report(lambda rows=rows: learner.policies()[rows], step, own)  # type: ignore[misc]
        on_update(step, first.updates)

    options: dict[str, Any] = {}
    if first.learner.learns_from == "answers":
        answers = [group.run.inputs.comparisons for group in groups]
        options["comparisons"] = concatenate([each for each in answers if each is not None])
        if config.implied:  # by what each condition answers to the queries asked
            options["implied"] = True
    intervals = [group.run.evaluator.every for group in groups]
    if any(intervals):  # evaluations are made at the reports of progress
        options["every"] = min(first.learner.every, *filter(None, intervals))
    learner.learn(
        inputs.episodes,
        _stacked(groups),
        state,
        on_progress=report,
        checkpoint_every=checkpoint_every,
        **options,
    )
    places = [place for group in groups for place in group.places()]
    for place, policy in zip(places, learner.policies(), strict=True):
        policy.save(place)
    if state.is_dir():  # only now that the policies are there
        shutil.rmtree(state, ignore_errors=True)
    else:
        state.unlink(missing_ok=True)


def _stacked(groups: Sequence[Agents]) -> FloatArray | None:
    """The signals of all agents; answers of a run are NaN to the agents of the others."""
    signals = [group.signals for group in groups if group.signals is not None]
    if not signals:
        return None
    if groups[0].learner.learns_from == "rewards" or len(signals) == 1:
        return np.concatenate(signals)
    columns = [*accumulate((each.shape[1] for each in signals), initial=0)]
    rows = [*accumulate((len(each) for each in signals), initial=0)]
    stacked = np.full((rows[-1], columns[-1]), np.nan, np.float32)
    for k, answers in enumerate(signals):
        stacked[rows[k] : rows[k + 1], columns[k] : columns[k + 1]] = answers
    return stacked


def shared_state(groups: Sequence[Agents]) -> str:
    """Name of the file that training of several runs' agents resumes from, by what they learn."""
    learned = [
        [group.kind, to_json(group.run.config), group.seeds, group.run.inputs.about]
        for group in groups
    ]
    digest = hashlib.blake2b(json.dumps(learned, sort_keys=True).encode(), digest_size=8)
    return f"{digest.hexdigest()}.safetensors"
