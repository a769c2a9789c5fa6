"""A whole offline run in a folder: fit a reward, relabel episodes, learn, evaluate, report."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from preferl.errors import require_in
from preferl.evaluation.policies import Policy
from preferl.evaluation.policy import PolicyReport, evaluate_policies
from preferl.evaluation.rollout import task_env
from preferl.files import write_json
from preferl.models.build import build_reward_model
from preferl.models.spaces import infer_spaces
from preferl.offline.agents import AgentTrainer, load_agent
from preferl.offline.conditions import (
    CLONING,
    LEARNED,
    ConditionScore,
    TargetSweep,
    agent_name,
    build_conditions,
    compare,
)
from preferl.offline.config import OfflineConfig, OfflineRun
from preferl.offline.inputs import (
    Inputs,
    LearnedReward,
    OnProgress,
    learn_reward,
    load_inputs,
    read_json,
)
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import MetricSink, open_sinks, require_places
from preferl.runs import RunFolder, open_run, require_openable
from preferl.training.configs import require_device

OnStage = Callable[[str, int, int], None]
"""Called with the stage in a few words, how much of it is done, and of how much."""

FIRST_EPISODE: Final = 10_000
"""Seed of the first episode of evaluations; the same for all policies."""

TARGETS: Final = ("q0", "q0.25", "q0.5", "q0.75", "q0.95")
"""Target returns of a sweep: quantiles of the recorded returns."""

SWEEP_EPISODES: Final = 20
"""Most episodes for each target return of a sweep; more would show no more."""

SIMULATORS: Final = ("gymnasium", "gymnasium-robotics", "mujoco")
"""Whose versions belong beside every score."""


def run_offline(
    config: OfflineConfig,
    out: Path | str,
    *,
    seeds: Iterable[int] = (0, 1, 2),
    report_to: Iterable[str] = ("jsonl", "tensorboard"),
    resume: bool = False,
    checkpoint_every: int = 5_000,
    processes: int = 2,
    on_progress: OnStage | None = None,
) -> dict[str, Any]:
    """Learn policies from recorded episodes and a learned reward, and compare them with controls.

    A reward is fitted to the labels (or taken from another run), relabels each recorded step, and
    is scaled by the range of returns. Agents for all conditions and seeds then learn side by side
    by implicit Q-learning, or one after the other as Decision Transformers, and clones beside
    them. The policies after the last update count: none is selected by its returns in the
    environment.

    The folder holds config and versions, metrics, the reward, every policy, `result.json` and
    `report.html`. Ctrl-C keeps them, and the same call with `resume` continues to the result of a
    run without interruption. Settings and data are checked before any folder is touched.

    Args:
        config: of the run.
        out: the folder; an older run there moves aside, unless it is resumed.
        seeds: one agent for each, in each condition; the first also seeds the fit of the reward.
            Three show how much training varies.
        report_to: where metrics of training go: some of `jsonl`, `tensorboard`, `wandb`.
        resume: the run that is in `out`, which must have the same settings.
        checkpoint_every: updates between two states to resume training from.
        processes: that evaluate policies side by side; a script needs
            `if __name__ == "__main__":` for more than one.
        on_progress: called with the progress.

    Returns:
        What `result.json` holds; after Ctrl-C only `interrupted` and the stage.

    Raises:
        ConfigError: a setting out of range, an unknown environment, task or place to report to,
            or a run to resume that has other settings.
        DataError: files that are missing, damaged, or do not belong to each other.
        ResumeError: the run to resume is finished, or there is none; nothing was changed.
        SpaceError: data of another environment, or a reward of other data.
        StorageError: another run is at work in `out`, or it cannot be written to.
    """
    run, places = OfflineRun(config, tuple(seeds)), tuple(report_to)
    require_places(places)
    require_in("checkpoint_every", checkpoint_every, 1, math.inf)
    require_openable(out, resume=resume)  # before what takes long
    inputs = load_inputs(config)
    _require_learnable(config, inputs)
    with open_run(out, config=run, seed=run.seeds[0], resume=resume, data=inputs.about) as folder:
        on_stage = on_progress or (lambda *_: None)
        stages = _Stages(config, run.seeds, inputs, folder, processes, on_stage)
        with closing(open_sinks(places, folder.folder)) as sink:
            try:
                return stages.run(sink, checkpoint_every)
            except KeyboardInterrupt:
                return {"interrupted": True, "stage": stages.stage}


def _require_learnable(config: OfflineConfig, inputs: Inputs) -> None:
    """Build the reward model and an agent once: the run would raise the same errors after hours."""
    require_device(config.device)
    preset = inputs.preset(config) if config.kind.taught else None
    if preset is not None:
        seen = infer_spaces(inputs.episodes.observations, inputs.episodes.actions)
        build_reward_model(preset.model, *seen, seed=0)
    OFFLINE_LEARNERS.build(
        config.policy,
        observation_space=inputs.observation_space,
        action_space=inputs.action_space,
        config=config.settings,
        seed=0,
        seeds=(0,),
        steps=1,
        device=config.device,
    )


@final
@dataclass(eq=False)
class _Stages:
    """One run, stage by stage; each leaves its outcome in the folder and is not repeated."""

    config: OfflineConfig
    seeds: tuple[int, ...]
    inputs: Inputs
    folder: RunFolder
    processes: int
    on_stage: OnStage
    stage: str = ""

    def run(self, sink: MetricSink, checkpoint_every: int) -> dict[str, Any]:
        """All stages in order; what `result.json` holds."""
        from preferl.offline.report import write_page  # loads what draws

        began, config = time.perf_counter(), self.config
        learned = None
        if config.kind.taught:
            on_epoch = self._begin("reading the reward" if config.reward else "fitting the reward")
            learned = learn_reward(config, self.inputs, self.folder, self.seeds[0], on_epoch)
        names = self._train(sink, checkpoint_every, learned)
        scores = self._evaluate(names, learned) if config.episodes else {}
        sweep = self._sweep(learned) if config.episodes and config.kind.has_target else None
        comparison = compare(
            {name: score.returns for name, score in scores.items()},
            {name: score.episodes for name, score in scores.items()},
        )
        labels = self.inputs.labels
        installed = {d.metadata["Name"].lower(): d.version for d in metadata.distributions()}
        result: dict[str, Any] = {
            "task": config.row.name if config.row else None,
            "env": config.env_id,
            "policy": config.policy,
            "seeds": list(self.seeds),
            "steps": config.updates,
            "episodes": config.episodes,
            "simulators": {name: installed[name] for name in SIMULATORS if name in installed},
            "arms": {name: score.to_json() for name, score in scores.items()},
            "verdict": None if comparison is None else comparison.to_json(),
            "reward": None if learned is None else learned.to_json(),
            "labels": None if labels is None else labels.to_json(),
            "seconds": round(time.perf_counter() - began, 2),
            "interrupted": False,
            "following": None if sweep is None else sweep.to_json(),
        }
        self._begin("writing the report")
        write_page(self.folder, config, self.inputs, result, scores, learned)
        self.folder.result(result)
        return result

    def _train(
        self, sink: MetricSink, checkpoint_every: int, learned: LearnedReward | None
    ) -> list[str]:
        """Train all agents; their conditions."""
        config, inputs = self.config, self.inputs
        trainer = AgentTrainer(config, inputs, self.folder, sink, checkpoint_every)
        names: list[str] = []
        if learned is not None:
            conditions = build_conditions(
                inputs.episodes,
                learned.rewards,
                seeds=self.seeds,
                task=config.row,
                controls=config.controls,
                scaled=not config.kind.has_target,
            )
            names += conditions.names
            trainer.learn(conditions, self._begin(f"training {len(conditions.agents)} agents"))
        if learned is None or (config.controls and inputs.clonable):
            names.append(CLONING)
            trainer.clone(self.seeds, self._begin(f"training {len(self.seeds)} clones"))
        return names

    def _evaluate(
        self, names: Sequence[str], learned: LearnedReward | None
    ) -> dict[str, ConditionScore]:
        """Scores by condition."""
        agents = {agent_name(name, seed): (name, seed) for name in names for seed in self.seeds}
        reward = None if learned is None else learned.reward
        reports = self._reports(
            f"evaluating {len(agents)} policies",
            agents,
            lambda agent: load_agent(self.folder, *agents[agent], reward),
            self.config.episodes,
        )
        return {
            name: ConditionScore.of(
                [reports[agent_name(name, seed)] for seed in self.seeds], self.config.row
            )
            for name in names
        }

    def _sweep(self, learned: LearnedReward | None) -> TargetSweep | None:
        """Returns of the policies of the learned reward for higher and lower targets."""
        if learned is None:
            return None
        policies: list[Any] = [
            load_agent(self.folder, LEARNED, seed, learned.reward) for seed in self.seeds
        ]
        named = {
            f"{agent_name(LEARNED, seed)}@{target}": (policy, target)
            for seed, policy in zip(self.seeds, policies, strict=True)
            for target in TARGETS
        }
        reports = self._reports(
            f"evaluating {len(TARGETS)} target returns",
            named,
            lambda name: named[name][0].with_target(named[name][1]),
            min(SWEEP_EPISODES, self.config.episodes),
        )
        returns = [policies[0].statistics.target_return(target) for target in TARGETS]
        achieved = np.array([reports[name].mean for name in named])
        return TargetSweep(TARGETS, np.array(returns), achieved.reshape(len(policies), -1))

    def _reports(
        self, stage: str, names: Iterable[str], policy: Callable[[str], Policy], episodes: int
    ) -> dict[str, PolicyReport]:
        """Reports by name; those that the folder has are not repeated."""
        config = self.config
        files = {name: self.folder.path(f"evaluations/{name}.json") for name in names}
        left = [name for name, file in files.items() if not file.is_file()]
        on_report, done = self._begin(stage), len(files) - len(left)

        def keep(name: str, report: PolicyReport) -> None:
            nonlocal done
            write_json(files[name], report.to_json())
            done += 1
            on_report(done, len(files))

        evaluate_policies(
            {name: policy(name) for name in left},
            task_env(config.env_id or ""),
            episodes=episodes,
            seed=FIRST_EPISODE,
            max_steps=config.max_steps,
            processes=self.processes,
            on_report=keep,
        )
        return {name: PolicyReport.from_json(read_json(file)) for name, file in files.items()}

    def _begin(self, stage: str) -> OnProgress:
        """Report a new stage; a function that reports its progress."""
        self.stage = stage
        self.on_stage(stage, 0, 1)
        return partial(self.on_stage, stage)
