"""A whole offline run in a folder: fit a reward, relabel episodes, learn, evaluate, report."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from preferl.envs.config import SIMULATORS
from preferl.errors import ConfigError, require_in, require_one_of
from preferl.evaluation.curve import often
from preferl.evaluation.policies import Policy
from preferl.evaluation.policy import PolicyReport, evaluate_policies
from preferl.evaluation.rollout import task_env
from preferl.files import make_folder, write_json
from preferl.models.build import build_reward_model
from preferl.models.spaces import infer_spaces
from preferl.offline.experiment.agents import (
    Agents,
    build_learner,
    shared_state,
    train,
)
from preferl.offline.experiment.conditions import (
    CLONING,
    CONTROLS,
    Conditions,
    ConditionScore,
    agent_name,
    build_answer_conditions,
    build_conditions,
    compare,
    load_agent,
    target_sweep,
)
from preferl.offline.experiment.config import OfflineConfig, OfflineRun
from preferl.offline.experiment.curves import AgentCurves, OnEvaluation
from preferl.offline.experiment.inputs import (
    Inputs,
    LearnedReward,
    OnProgress,
    learn_reward,
    load_inputs,
    load_sharing,
    read_json,
)
from preferl.offline.transitions import ActionScale
from preferl.printing import get_logger
from preferl.reporting import PLACES_BY_DEFAULT, MetricSink, open_sinks, require_places
from preferl.runs import RunFolder, open_run, require_openable
from preferl.training.batches import to_tensor
from preferl.training.configs import require_device

LOGGER = get_logger(__name__)

OnStage = Callable[[str, int, int], None]  # stage, how much of it is done, and of how much
FIRST_EPISODE: Final = 10_000  # seed of evaluations, the same for all policies
TARGETS: Final = ("q0", "q0.25", "q0.5", "q0.75", "q0.95")  # of a sweep
SWEEP_EPISODES: Final = 20  # at most for each target return; more would show no more


def run_offline(
    config: OfflineConfig,
    out: Path | str,
    *,
    seeds: Iterable[int] = (0, 1, 2),
    report_to: Iterable[str] = PLACES_BY_DEFAULT,
    resume: bool = False,
    checkpoint_every: int = 5_000,
    processes: int = 2,
    on_progress: OnStage | None = None,
    on_evaluation: OnEvaluation | None = None,
) -> dict[str, Any]:
    """Learn policies from recorded episodes and a learned reward, and compare them with controls.

    A reward is fitted to the labels (or taken from another run), relabels each recorded step, and
    is scaled by the range of returns. With `reward="true"` the recorded rewards take its place.
    Agents for all conditions and seeds then learn side by side by implicit Q-learning, or one after
    the other as Decision Transformers, and clones beside them. The policies after the last update
    count: none is selected by its returns in the environment.

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
        on_progress: called with the stage in a few words, how much of it is done, and of how much.
        on_evaluation: called with each evaluation while agents learn (`config.eval_every`).

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
    run = OfflineRun(config, tuple(seeds))
    places = tuple(report_to)
    require_places(places)
    require_in("checkpoint_every", checkpoint_every, 1, math.inf)
    require_openable(out, resume=resume)  # before what takes long
    inputs = load_inputs(config)
    _require_learnable(config, inputs)
    how: dict[str, Any] = {"resume": resume, "report_to": places, "processes": processes}
    how |= {"checkpoint_every": checkpoint_every, "on_evaluation": on_evaluation}
    with _opened(
        run, Path(out), inputs, on_stage=on_progress or (lambda *_: None), **how
    ) as stages:
        try:
            return stages.run()
        except KeyboardInterrupt:
            return {"interrupted": True, "stage": stages.stage}


def train_together(
    runs: Mapping[Path, OfflineRun],
    states: Path | str,
    *,
    device: str = "cpu",
    checkpoint_every: int = 5_000,
    on_progress: OnStage | None = None,
) -> None:
    """Train the agents of several runs on the same episodes, those alike as one computation.

    On a GPU, a hundred agents take hardly longer than one. Each run fits its own reward, and its
    folder then has the policies that it would have trained alone, but for rounding; `run_offline`
    with `resume` goes on to evaluate them. Runs that have their policies are left alone. After
    Ctrl-C, the same call goes on.

    Args:
        runs: by folder, which is new or that of a run to resume.
        states: folder of what training resumes from.
        device: where agents learn, `"cpu"` or `"cuda"`, in place of the runs' own.
        checkpoint_every: updates between two states.
        on_progress: called with the stage in a few words, how much of it is done, and of how much.

    Raises:
        ConfigError: learners that train one agent at a time.
        DataError: runs on different episodes.
        ResumeError: a run that is finished.
    """
    require_device(device)
    require_in("checkpoint_every", checkpoint_every, 1, math.inf)
    on_stage = on_progress or (lambda *_: None)
    alone = [run.config.policy for run in runs.values() if not run.config.kind.together]
    if alone:
        raise ConfigError(
            f"policies: expected learners of several agents at once, got {alone}. Train them by "
            "`run_offline`."
        )
    inputs = load_sharing([run.config for run in runs.values()])
    make_folder(Path(states))
    alike: dict[str, list[Agents]] = {}
    with ExitStack() as stack:
        for number, (folder, run) in enumerate(runs.items()):
            on_stage("fitting rewards", number, len(runs))
            resume = (folder / "config.json").is_file()
            how: dict[str, Any] = {"resume": resume, "report_to": ("jsonl",)}
            stages = stack.enter_context(_opened(run, folder, inputs[number], **how))
            for group in stages.agents():
                alike.setdefault(group.kind, []).append(group)
        for groups in alike.values():
            state = Path(states) / shared_state(groups)
            if not state.exists():  # nothing of all of them: those that are left learn together
                groups = [group for group in groups if not group.trained]
                state = Path(states) / shared_state(groups)
            count = sum(len(group.names) for group in groups)
            on_update = partial(on_stage, f"training {count} agents")
            train(
                groups, state, device=device, checkpoint_every=checkpoint_every, on_update=on_update
            )


@contextmanager
def _opened(
    run: OfflineRun,
    out: Path,
    inputs: Inputs,
    *,
    resume: bool,
    report_to: tuple[str, ...],
    on_stage: OnStage = lambda *_: None,
    on_evaluation: OnEvaluation | None = None,
    processes: int = 1,
    checkpoint_every: int = 5_000,
) -> Iterator["_Stages"]:
    """The stages of a run, whose folder is held meanwhile."""
    for name in run.config.only_controls:
        require_one_of("only_controls", name, CONTROLS[run.config.kind.learns_from])
    about: dict[str, Any] = {"seed": run.seeds[0], "data": inputs.about}
    about["resolved"] = _resolved(run.config, inputs)
    with (
        open_run(out, config=run, resume=resume, **about) as folder,
        closing(open_sinks(report_to, folder.folder)) as sink,
    ):
        curves = AgentCurves(run.config, run.seeds, folder, sink, on_evaluation)
        more = (inputs, folder, processes, on_stage, sink, checkpoint_every, curves)
        yield _Stages(run.config, run.seeds, *more)


def _resolved(config: OfflineConfig, inputs: Inputs) -> dict[str, Any]:
    """The settings that agents and reward have, where a config leaves them to task and data."""
    resolved = {
        config.policy: config.settings,
        "task": config.row.name if config.row else None,
        "env": config.env_id,
        "steps": config.updates,
        "eval_every": often(config.eval_every, config.updates) if config.episodes else 0,
    }
    preset = inputs.preset(config) if config.kind.learns_from == "rewards" else None
    if preset is not None:
        resolved["model"] = preset.model
        resolved["trainer"] = preset.trainer
        resolved["held_out"] = preset.held_out
    return resolved


def _require_learnable(config: OfflineConfig, inputs: Inputs) -> None:
    """Build the reward model and an agent once: the run would raise the same errors after hours."""
    require_device(config.device)
    preset = inputs.preset(config) if config.kind.learns_from == "rewards" else None
    if preset is not None:
        seen = infer_spaces(inputs.episodes.observations, inputs.episodes.actions)
        build_reward_model(preset.model, *seen, seed=0)
    build_learner(config, inputs, config.policy, seeds=(0,))
    if config.kind.together or (config.controls and inputs.clonable):
        scale = ActionScale.of(inputs.action_space)
        actions = inputs.episodes.actions
        if widest := scale.beyond(to_tensor(actions, "cpu").flatten(1)):
            words = "Recorded actions go to %g, and without the bounds of an environment policies "
            words += "end at 1. Evaluate them in their environment, which has bounds."
            LOGGER.warning(words, widest)


def _of_all(on_update: OnProgress, number: int, count: int, step: int, steps: int) -> None:
    """Report how far one of several learners is as a part of the whole."""
    on_update(number * steps + step, count * steps)


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
    sink: MetricSink
    checkpoint_every: int
    curves: AgentCurves
    stage: str = ""
    learned: LearnedReward | None = None

    def run(self) -> dict[str, Any]:
        """All stages in order; what `result.json` holds."""
        from preferl.offline.experiment.report import write_page  # loads what draws

        began = time.perf_counter()
        config = self.config
        groups = self.agents()
        for group in groups:
            what = "clones" if group.signals is None else "agents"
            on_update = self._begin(f"training {len(group.names)} {what}")
            parts = group.learners()
            for number, part in enumerate(parts):
                train(
                    [part],
                    self.folder.path(f"training/{part.state}"),
                    device=config.device,
                    checkpoint_every=self.checkpoint_every,
                    on_update=partial(_of_all, on_update, number, len(parts)),
                )
        names = [name for group in groups for name in group.labels]
        learned = self.learned
        scores = self._evaluate(names) if config.episodes else {}
        sweep = self._sweep(names[0]) if config.episodes and config.kind.has_target else None
        returns = {name: score.returns for name, score in scores.items()}
        comparison = compare(returns, {name: score.episodes for name, score in scores.items()})
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
            "conditions": {name: score.to_json() for name, score in scores.items()},
            "comparison": None if comparison is None else comparison.to_json(),
            "evaluations": self.curves.to_json(),
            "reward": None if learned is None else learned.to_json(),
            "labels": None if labels is None else labels.to_json(),
            "seconds": round(time.perf_counter() - began, 2),
            "interrupted": False,
            "following": sweep,
        }
        self._begin("writing the report")
        write_page(self.folder, config, self.inputs, result, scores, learned)
        self.folder.result(result)
        return result

    def agents(self) -> list[Agents]:
        """The agents of all conditions and the clones, once there is a reward to learn from."""
        config = self.config
        inputs = self.inputs
        how: dict[str, Any] = {"seeds": self.seeds, "controls": config.controls}
        conditions = None
        if config.kind.learns_from == "rewards":
            if not config.uses_true_reward:
                stage = "reading the reward" if config.reward else "fitting the reward"
                about = (config, inputs, self.folder, self.seeds[0], self._begin(stage))
                self.learned = learn_reward(*about)
            conditions = build_conditions(
                inputs.episodes,
                None if self.learned is None else self.learned.rewards,
                task=config.row,
                scaled=not config.kind.has_target,
                **how,
            )
        elif config.kind.learns_from == "answers" and inputs.comparisons is not None:
            conditions = build_answer_conditions(inputs.comparisons, **how)
        only = config.only_controls
        if conditions is not None and only:
            conditions = conditions.with_controls(only)
        groups = [] if conditions is None else [self._group(config.policy, conditions)]
        cloning = config.controls and inputs.clonable and (not only or CLONING in only)
        if conditions is None or cloning:
            groups.append(self._group(config.cloning, None))
        return groups

    def _group(self, policy: str, conditions: Conditions | None) -> Agents:
        """Those of all conditions, or clones."""
        labels = (CLONING,) if conditions is None else conditions.names
        return Agents(
            config=self.config,
            inputs=self.inputs,
            folder=self.folder,
            sink=self.sink,
            curves=self.curves,
            reward=None if self.learned is None else self.learned.reward,
            policy=policy,
            labels=labels,
            names=tuple(agent_name(label, seed) for label in labels for seed in self.seeds),
            seeds=self.seeds if conditions is None else tuple(conditions.agent_seeds),
            signals=None if conditions is None else conditions.flat_signals,
        )

    def _policy(self, condition: str, seed: int) -> Any:
        reward = None if self.learned is None else self.learned.reward
        return load_agent(self.folder, self.config, condition, seed, reward)

    def _evaluate(self, names: Sequence[str]) -> dict[str, ConditionScore]:
        """Scores by condition."""
        agents = {agent_name(n, s): partial(self._policy, n, s) for n in names for s in self.seeds}
        stage = f"evaluating {len(agents)} policies"
        reports = self._reports(stage, agents, self.config.episodes)
        count = len(self.seeds)
        return {
            name: ConditionScore.of(reports[k * count : (k + 1) * count], self.config.row)
            for k, name in enumerate(names)
        }

    def _sweep(self, condition: str) -> dict[str, Any]:
        """Returns of the policies of a condition for higher and lower targets."""
        policies = [self._policy(condition, seed) for seed in self.seeds]
        each = {
            f"{agent_name(condition, seed)}@{target}": partial(policy.with_target, target)
            for seed, policy in zip(self.seeds, policies, strict=True)
            for target in TARGETS
        }
        stage = f"evaluating {len(TARGETS)} target returns"
        episodes = self.config.episodes
        reports = self._reports(stage, each, min(SWEEP_EPISODES, episodes))
        achieved = np.array([report.mean for report in reports]).reshape(len(policies), -1)
        returns = [policies[0].statistics.target_return(target) for target in TARGETS]
        return target_sweep(TARGETS, returns, achieved)

    def _reports(
        self, stage: str, policies: Mapping[str, Callable[[], Policy]], episodes: int
    ) -> list[PolicyReport]:
        """Reports on policies, by functions that load them; what the folder has is not repeated."""
        files = {name: self.folder.path(f"evaluations/{name}.json") for name in policies}
        left = [name for name, file in files.items() if not file.is_file()]
        on_report = self._begin(stage)
        done = len(files) - len(left)

        def keep(name: str, report: PolicyReport) -> None:
            nonlocal done
            write_json(files[name], report.to_json())
            done += 1
            on_report(done, len(files))

        evaluate_policies(
            {name: policies[name]() for name in left},
            task_env(self.config),
            episodes=episodes,
            seed=FIRST_EPISODE,
            max_steps=self.config.max_steps,
            processes=self.processes,
            on_report=keep,
        )
        return [PolicyReport.from_json(read_json(file)) for file in files.values()]

    def _begin(self, stage: str) -> OnProgress:
        """Report a new stage; a function that reports its progress."""
        self.stage = stage
        self.on_stage(stage, 0, 1)
        return partial(self.on_stage, stage)
