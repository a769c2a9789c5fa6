"""A whole offline run in a folder: fit a reward, relabel episodes, learn, evaluate, report."""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import numpy as np

from preferl.configs import to_json
from preferl.data.comparisons import concatenate
from preferl.envs.config import SIMULATORS
from preferl.errors import ConfigError, require_in, require_one_of
from preferl.evaluation.curve import Evaluation, evaluation_interval
from preferl.evaluation.policies import Policy
from preferl.evaluation.policy import PolicyReport, evaluate_policies
from preferl.evaluation.rollout import task_env
from preferl.files import make_folder, write_json
from preferl.models.build import build_reward_model
from preferl.models.folder import POLICY
from preferl.models.spaces import infer_spaces
from preferl.offline.experiment.conditions import (
    CLONING,
    CONTROLS,
    Conditions,
    ConditionScore,
    agent_name,
    build_answer_conditions,
    build_conditions,
    compare,
    main_condition,
    target_sweep,
)
from preferl.offline.experiment.config import OfflineConfig, OfflineRun
from preferl.offline.experiment.inputs import (
    Inputs,
    OnEvaluation,
    OnProgress,
    OnStage,
    OpenRun,
    learn_reward,
    load_inputs,
    load_shared_inputs,
    read_json,
)
from preferl.offline.learner_configs import LearnerConfig
from preferl.offline.transitions import ActionScale
from preferl.printing import get_logger
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import PLACES_BY_DEFAULT, open_sinks, require_places
from preferl.runs import open_run, require_openable
from preferl.runs.summary import EVALUATED, MetricCurve, RunSummary
from preferl.shapes import FloatArray
from preferl.training.batches import to_tensor
from preferl.training.configs import require_device
from preferl.training.generators import generators_left_alone

LOGGER = get_logger(__name__)

FIRST_EPISODE: Final = 10_000  # seed of evaluations, the same for all policies
TARGETS: Final = ("q0", "q0.25", "q0.5", "q0.75", "q0.95")  # target returns of a sweep
SWEEP_EPISODES: Final = 20  # most episodes for each target return


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

    A reward is fitted to the labels, or taken from another run. It relabels each recorded step, and
    its rewards are scaled by the range of returns. With `reward="true"`, the recorded rewards are
    used instead. Then agents for all conditions and seeds learn, side by side by implicit
    Q-learning, or one after another as Decision Transformers. Clones learn beside them. The
    policies after the last update count: none is selected by its returns in the environment.

    The folder holds config, versions, metrics, the reward, every policy, `result.json` and
    `report.html`. After Ctrl-C, they stay there. The same call with `resume` then continues to the
    result of a run without interruption. Settings and data are checked before any folder is
    touched.

    Args:
        config: settings of the run.
        out: the folder; an older run there moves aside, unless it is resumed.
        seeds: in each condition, one agent for each seed. The first seed is also that of the
            reward's fit. Three seeds show how much training varies.
        report_to: where metrics of training go: some of `jsonl`, `tensorboard`, `wandb`.
        resume: continue the run that is in `out`, which must have the same settings.
        checkpoint_every: updates between two states from which training can be resumed.
        processes: number of processes that evaluate policies side by side. With more than one, a
            script needs `if __name__ == "__main__":`.
        on_progress: called with the stage in a few words, how much of it is done, and how much
            there is in all.
        on_evaluation: called with each evaluation while agents learn (`config.eval_every`).

    Returns:
        The contents of `result.json`; after Ctrl-C, only `interrupted` and the stage.

    Raises:
        ConfigError: a setting is out of range, the environment, the task or a place to report to is
            unknown, or the run to resume has other settings.
        DataError: files are missing, damaged, or do not belong to each other.
        ResumeError: the run to resume is finished, or there is none. Nothing was changed.
        SpaceError: the data are of another environment, or the reward is of other data.
        StorageError: another run works in `out`, or `out` cannot be written to.
    """
    run = OfflineRun(config, tuple(seeds))
    places = tuple(report_to)
    require_places(places)
    require_in("checkpoint_every", checkpoint_every, 1, math.inf)
    require_openable(out, resume=resume)  # before expensive work
    inputs = load_inputs(config)
    _require_learnable(config, inputs)
    with _opened(run, Path(out), inputs, resume, places, on_progress, on_evaluation) as stages:
        try:
            return _conduct(stages, processes, checkpoint_every)
        except KeyboardInterrupt:
            return {"interrupted": True, "stage": stages.stage}


def _conduct(run: OpenRun, processes: int, checkpoint_every: int) -> dict[str, Any]:
    """Fit a reward, relabel, train, evaluate and report; return the contents of `result.json`.

    Each stage leaves its results in the folder, and is not repeated.
    """
    from preferl.offline.experiment.report import write_page  # loads the drawing library

    started_at = time.perf_counter()
    config = run.config
    groups = _agents(run)
    for group in groups:
        agents_word = "clones" if group.signals is None else "agents"
        on_update = run.begin(f"training {len(group.names)} {agents_word}")
        learners = group.learners()
        for number, agents in enumerate(learners):
            train(
                [agents],
                run.folder.path(f"training/{agents.state}"),
                device=config.device,
                checkpoint_every=checkpoint_every,
                on_update=partial(_of_all, on_update, number, len(learners)),
            )
    scores = {}
    sweep = None
    if config.episodes:
        conditions = [label for group in groups for label in group.labels]
        scores = _evaluate(run, conditions, processes)
        if config.kind.has_target:
            sweep = _sweep(run, conditions[0], processes)
    comparison = compare(
        {name: score.returns for name, score in scores.items()},
        {name: score.episodes for name, score in scores.items()},
    )
    result = _facts(run) | {
        "conditions": {name: score.to_json() for name, score in scores.items()},
        "comparison": None if comparison is None else comparison.to_json(),
        "following": sweep,
        "seconds": round(time.perf_counter() - started_at, 2),
    }
    run.begin("writing the report")
    write_page(run, result, scores)
    run.folder.result(result, _summary(run, scores, result["seconds"]))
    return result


def _facts(run: OpenRun) -> dict[str, Any]:
    """Return the contents of `result.json` beside the scores of its policies."""
    config = run.config
    labels = run.inputs.labels
    installed = {d.metadata["Name"].lower(): d.version for d in metadata.distributions()}
    return {
        "task": config.row.name if config.row else None,
        "env": config.env_id,
        "policy": config.policy,
        "seeds": list(run.seeds),
        "steps": config.updates,
        "episodes": config.episodes,
        "simulators": {name: installed[name] for name in SIMULATORS if name in installed},
        "evaluations": {
            name: [evaluation.to_json() for evaluation in curve]
            for name, curve in run.evaluations().items()
        },
        "reward": None if run.learned is None else run.learned.to_json(),
        "labels": None if labels is None else labels.to_json(),
        "interrupted": False,
    }


def _summary(run: OpenRun, scores: Mapping[str, ConditionScore], seconds: float) -> RunSummary:
    """Return the summary of a finished run, for `preferl runs`."""
    config = run.config
    learned = run.learned
    estimates = {name: score.estimate for name, score in scores.items()}
    summary = replace(
        summary_before(config, run.seeds),
        seconds=seconds,
        steps=config.updates,
        score=estimates.pop(main_condition(config), None),
        unit="normalised score" if config.row and scores else "return",
        beside=estimates,
    )
    if learned is None:
        return summary
    return replace(
        summary,
        answers=None if learned.fit is None else learned.fit["pairs"],
        accuracy=learned.estimate,
        reward=learned.numbers,
    )


def summary_before(config: OfflineConfig, seeds: Sequence[int]) -> RunSummary:
    """Return what a run is about, with metrics of its main condition and of clones as curves."""
    condition = main_condition(config)
    agents = [agent_name(condition, seed) for seed in seeds]
    evaluated = tuple(f"eval/{agent}/mean_reward" for agent in agents)
    curves = [MetricCurve(EVALUATED, "return", evaluated, "updates")]
    titles = {
        "value": (f"Expected {condition} return", "expected return"),
        "policy_loss": ("Loss of the policy", "loss"),
        "loss": ("Loss of the agents", "loss"),
    }
    if condition == CLONING:
        titles = {}
    prefix = config.kind.prefix or config.policy
    for metric, (title, unit) in titles.items():
        metrics = tuple(f"{prefix}/{name}/{metric}" for name in (condition, *agents))
        curves.append(MetricCurve(title, unit, metrics, "updates"))
    cloning = MetricCurve("Loss of cloning", "loss", ("cloning/cloning/policy_loss",), "updates")
    subject = config.env_id or config.demonstrations or config.dataset
    return RunSummary("offline", f"{subject}", (*curves, cloning), steps_of="updates")


def train_together(
    runs: Mapping[Path, OfflineRun],
    states: Path | str,
    *,
    device: str = "cpu",
    checkpoint_every: int = 5_000,
    on_progress: OnStage | None = None,
) -> None:
    """Train the agents of several runs on the same episodes; equal kinds are a single computation.

    On a GPU, a hundred agents take hardly longer than one. Each run fits its own reward. Its folder
    then has the policies that it would have trained alone, except for rounding. `run_offline` with
    `resume` evaluates them afterwards. Runs that already have their policies are left alone. After
    Ctrl-C, the same call continues.

    Args:
        runs: configs by folder. Each folder is new, or that of a run to resume.
        states: folder of the states from which training is resumed.
        device: device on which agents learn, `"cpu"` or `"cuda"`, instead of the runs' own.
        checkpoint_every: updates between two states.
        on_progress: called with the stage in a few words, how much of it is done, and how much
            there is in all.

    Raises:
        ConfigError: a learner trains one agent at a time.
        DataError: the runs have different episodes.
        ResumeError: a run is finished.
    """
    require_device(device)
    require_in("checkpoint_every", checkpoint_every, 1, math.inf)
    on_stage = on_progress or _silent
    single_policies = [run.config.policy for run in runs.values() if not run.config.kind.together]
    if single_policies:
        raise ConfigError(
            f"policies: expected learners of several agents at once, got {single_policies}. Train "
            "them with `run_offline`."
        )
    inputs = load_shared_inputs([run.config for run in runs.values()])
    make_folder(Path(states))
    alike: dict[str, list[Agents]] = {}
    with ExitStack() as stack:
        for number, (folder, run) in enumerate(runs.items()):
            on_stage("fitting rewards", number, len(runs))
            resume = (folder / "config.json").is_file()
            stages = stack.enter_context(_opened(run, folder, inputs[number], resume, ("jsonl",)))
            for group in _agents(stages):
                alike.setdefault(group.kind, []).append(group)
        for groups in alike.values():
            state = Path(states) / shared_state(groups)
            if not state.exists():  # without any state, the runs that are left learn together
                groups = [group for group in groups if not group.trained]
                state = Path(states) / shared_state(groups)
            count = sum(len(group.names) for group in groups)
            train(
                groups,
                state,
                device=device,
                checkpoint_every=checkpoint_every,
                on_update=partial(on_stage, f"training {count} agents"),
            )


@contextmanager
def _opened(
    run: OfflineRun,
    out: Path,
    inputs: Inputs,
    resume: bool,
    report_to: Sequence[str],
    on_stage: OnStage | None = None,
    on_evaluation: OnEvaluation | None = None,
) -> Iterator[OpenRun]:
    """Hold the folder of a run during the block."""
    config = run.config
    for name in config.only_controls:
        require_one_of("only_controls", name, CONTROLS[config.kind.learns_from])
    with (
        open_run(
            out,
            config=run,
            resume=resume,
            seed=run.seeds[0],
            data=inputs.description,
            resolved=_resolved(config, inputs),
            summary=summary_before(config, run.seeds),
        ) as folder,
        closing(open_sinks(report_to, folder.folder)) as sink,
    ):
        yield OpenRun(config, run.seeds, inputs, folder, sink, on_stage or _silent, on_evaluation)


def _silent(_stage: str, _done: int, _of: int) -> None:
    """Report no progress."""


def _resolved(config: OfflineConfig, inputs: Inputs) -> dict[str, Any]:
    """Return settings of agents and reward that a config leaves to the task and the data."""
    resolved = {
        config.policy: config.settings,
        "task": config.row.name if config.row else None,
        "env": config.env_id,
        "steps": config.updates,
        "eval_every": evaluation_interval(config.eval_every, config.updates)
        if config.episodes
        else 0,
    }
    preset = inputs.preset(config)
    if preset is not None:
        resolved["model"] = preset.model
        resolved["trainer"] = preset.trainer
        resolved["held_out"] = preset.held_out
    return resolved


def _require_learnable(config: OfflineConfig, inputs: Inputs) -> None:
    """Build the reward model and an agent once, to raise their errors now and not after hours."""
    require_device(config.device)
    episodes = inputs.episodes
    preset = inputs.preset(config)
    if preset is not None:
        spaces = infer_spaces(episodes.observations, episodes.actions)
        build_reward_model(preset.model, *spaces, seed=0)
    build_learner(config, inputs, config.policy, seeds=(0,))
    if config.kind.together or (config.controls and inputs.clonable):
        scale = ActionScale.of(inputs.action_space)
        if widest := scale.beyond(to_tensor(episodes.actions, "cpu").flatten(1)):
            LOGGER.warning(
                "Recorded actions go to %g, and without the bounds of an environment policies end "
                "at 1. Evaluate them in their environment, which has bounds.",
                widest,
            )


def _of_all(on_update: OnProgress, number: int, count: int, step: int, steps: int) -> None:
    """Report the progress of one of several learners as a part of the whole."""
    on_update(number * steps + step, count * steps)


@final
@dataclass(frozen=True, eq=False)
class Agents:
    """Agents of one run that learn in the same way: `S` seeds in each of `C` conditions."""

    run: OpenRun
    policy: str
    labels: tuple[str, ...]  # names of conditions; metrics are means over a condition's agents
    names: tuple[str, ...]  # names of the `C * S` agents, grouped by condition
    seeds: tuple[int, ...]  # `C * S`
    signals: FloatArray | None  # `[C * S, T]` rewards, or `[C * S, P]` answers; None for clones

    @property
    def learner(self) -> type[LearnerConfig]:
        """The class of their settings, which tells how they take part in a run."""
        return OFFLINE_LEARNERS.config(self.policy)

    @property
    def state(self) -> str:
        """Name of the file or folder from which their training is resumed."""
        return f"{self._prefix}.safetensors" if self.learner.together else self.names[0]

    @property
    def updates(self) -> int:
        """Updates of each agent."""
        return self.run.config.steps or self.learner.updates

    @property
    def kind(self) -> str:
        """What agents must have in common to learn as one computation, as text."""
        config = self.run.config
        settings = to_json(self.learner.of_run(config))
        return json.dumps([self.policy, self.updates, config.implied, settings])

    @property
    def trained(self) -> bool:
        """Whether the folder has all of their policies."""
        return all((folder / POLICY.config).is_file() for folder in self.places())

    def places(self) -> list[Path]:
        """Return the folder of each policy."""
        return [self.run.folder.path(f"policies/{name}") for name in self.names]

    def learners(self) -> list["Agents"]:
        """Return the agents as one group, or one by one if the learner takes one at a time."""
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

        Only agents of the main condition are evaluated while they learn. Evaluations that the
        folder of a resumed run has are not repeated.
        """
        run = self.run
        values = {
            f"{self._prefix}/{label}/{name}": float(rows.mean())
            for name, value in metrics.items()
            for label, rows in zip(self.labels, np.split(value, len(self.labels)), strict=True)
        }
        run.sink.log(values, step)
        has_ended = step >= run.config.updates
        evaluator = run.evaluator
        curves = {name: curve for name, curve in run.evaluations().items() if name in self.names}
        due_names = [
            name
            for name, curve in curves.items()
            if evaluator.due(step, curve[-1].step if curve else 0, over=has_ended)
        ]
        if not due_names:
            return
        with generators_left_alone():
            present_policies = dict(zip(self.names, policies(), strict=True))
            new_evaluations = [
                Evaluation(step, evaluator(self._as_saved(name, present_policies[name])))
                for name in due_names
            ]
        for name, evaluation in zip(due_names, new_evaluations, strict=True):
            written = [item.to_json() for item in (*curves[name], evaluation)]
            write_json(run.folder.path(f"curves/{name}.json"), {"evaluations": written})
        pooled = Evaluation.pooled(new_evaluations)
        logged = pooled.metrics(f"eval/{self.labels[0]}")
        for name, evaluation in zip(due_names, new_evaluations, strict=True):
            logged |= evaluation.metrics(f"eval/{name}")
        run.sink.log(logged, step)
        if run.on_evaluation is not None:
            run.on_evaluation(self.labels[0], pooled)

    @property
    def _prefix(self) -> str:
        return self.learner.prefix or self.policy

    def _as_saved(self, name: str, policy: Any) -> Any:
        """Return an agent's policy as it acts after it was saved and read again."""
        learner = OFFLINE_LEARNERS.load(self.policy)
        condition = main_condition(self.run.config)
        reward = self.run.acting_reward(condition, self.seeds[self.names.index(name)])
        with TemporaryDirectory() as folder:
            policy.save(Path(folder) / "policy")
            return learner.load_policy(Path(folder) / "policy", reward)


def _conditions(run: OpenRun) -> Conditions | None:
    """Return what agents of each condition learn from; None without rewards or answers."""
    config = run.config
    inputs = run.inputs
    if config.kind.learns_from == "rewards":
        rewards = None
        if not config.uses_true_reward:
            on_epoch = run.begin("reading the reward" if config.reward else "fitting the reward")
            run.learned = learn_reward(config, inputs, run.folder, run.seeds[0], on_epoch)
            rewards = run.learned.rewards
        return build_conditions(
            inputs.episodes,
            rewards,
            seeds=run.seeds,
            task=config.row,
            controls=config.controls,
            scaled=not config.kind.has_target,
        )
    if config.kind.learns_from == "answers" and inputs.comparisons is not None:
        return build_answer_conditions(
            inputs.comparisons, seeds=run.seeds, controls=config.controls
        )
    return None


def _agents(run: OpenRun) -> list[Agents]:
    """Return the agents of all conditions, and the clones."""
    config = run.config
    conditions = _conditions(run)
    groups = []
    if conditions is not None:
        if config.only_controls:
            conditions = conditions.with_controls(config.only_controls)
        groups.append(
            Agents(
                run,
                config.policy,
                labels=conditions.names,
                names=conditions.agents,
                seeds=tuple(conditions.agent_seeds),
                signals=conditions.flat_signals,
            )
        )
    has_main_agents = not config.only_controls or CLONING in config.only_controls
    if conditions is None or (config.controls and run.inputs.clonable and has_main_agents):
        names = tuple(agent_name(CLONING, seed) for seed in run.seeds)
        groups.append(Agents(run, config.cloning, (CLONING,), names, run.seeds, signals=None))
    return groups


def build_learner(
    config: OfflineConfig,
    inputs: Inputs,
    policy: str,
    *,
    seeds: Sequence[int],
    steps: int = 1,
    device: str | None = None,
) -> Any:
    """Build the learner of a policy's name, for one agent or several."""
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

    `state` is the file from which training is resumed. It is removed when all policies are saved.
    """
    if all(group.trained for group in groups):
        return
    first = groups[0]
    inputs = first.run.inputs
    learner = build_learner(
        first.run.config,
        inputs,
        first.policy,
        seeds=[seed for group in groups for seed in group.seeds],
        steps=first.updates,
        device=device,
    )
    ends = np.cumsum([len(group.names) for group in groups])

    def report(step: int, metrics: Mapping[str, Any]) -> None:
        for group, end in zip(groups, ends.tolist(), strict=True):
            rows = slice(end - len(group.names), end)
            agent_metrics = {name: np.atleast_1d(values)[rows] for name, values in metrics.items()}
            group.report(lambda rows=rows: learner.policies()[rows], step, agent_metrics)  # type: ignore[misc]
        on_update(step, first.updates)

    learner.learn(
        inputs.episodes,
        _stacked(groups),
        state,
        on_progress=report,
        checkpoint_every=checkpoint_every,
        **_options(groups),
    )
    places = [folder for group in groups for folder in group.places()]
    for folder, policy in zip(places, learner.policies(), strict=True):
        policy.save(folder)
    _remove(state)  # only now, when the policies are saved


def _remove(state: Path) -> None:
    """Remove the file or folder from which training is resumed."""
    if state.is_dir():
        shutil.rmtree(state, ignore_errors=True)
    else:
        state.unlink(missing_ok=True)


def _options(groups: Sequence[Agents]) -> dict[str, Any]:
    """Return arguments of `learn` that only some learners take."""
    first = groups[0]
    options: dict[str, Any] = {}
    if first.learner.learns_from == "answers":
        answers = [group.run.inputs.comparisons for group in groups]
        options["comparisons"] = concatenate([part for part in answers if part is not None])
        if first.run.config.implied:  # from the answers of each condition
            options["implied"] = True
    intervals = [group.run.evaluator.every for group in groups]
    if any(intervals):  # evaluations are made when progress is reported
        options["every"] = min(first.learner.every, *filter(None, intervals))
    return options


def _stacked(groups: Sequence[Agents]) -> FloatArray | None:
    """Return the signals of all agents. For an agent, answers of other runs are NaN."""
    signals = [group.signals for group in groups if group.signals is not None]
    if not signals:
        return None
    if groups[0].learner.learns_from == "rewards" or len(signals) == 1:
        return np.concatenate(signals)
    columns = [*accumulate((signal.shape[1] for signal in signals), initial=0)]
    rows = [*accumulate((len(signal) for signal in signals), initial=0)]
    stacked = np.full((rows[-1], columns[-1]), np.nan, np.float32)
    for k, answers in enumerate(signals):
        stacked[rows[k] : rows[k + 1], columns[k] : columns[k + 1]] = answers
    return stacked


def shared_state(groups: Sequence[Agents]) -> str:
    """Return the name of the file from which training of several runs' agents is resumed."""
    learned = [
        [group.kind, to_json(group.run.config), group.seeds, group.run.inputs.description]
        for group in groups
    ]
    digest = hashlib.blake2b(json.dumps(learned, sort_keys=True).encode(), digest_size=8)
    return f"{digest.hexdigest()}.safetensors"


def _evaluate(run: OpenRun, conditions: Sequence[str], processes: int) -> dict[str, ConditionScore]:
    """Return scores by condition."""
    policies = {
        agent_name(condition, seed): partial(run.load_policy, condition, seed)
        for condition in conditions
        for seed in run.seeds
    }
    on_report = run.begin(f"evaluating {len(policies)} policies")
    reports = _reports(run, policies, run.config.episodes, processes, on_report)
    return {
        condition: ConditionScore.of(
            [reports[agent_name(condition, seed)] for seed in run.seeds], run.config.row
        )
        for condition in conditions
    }


def _sweep(run: OpenRun, condition: str, processes: int) -> dict[str, Any]:
    """Evaluate the policies of a condition with higher and lower target returns."""
    policies = {seed: run.load_policy(condition, seed) for seed in run.seeds}
    aimed = {
        f"{agent_name(condition, seed)}@{target}": partial(policy.with_target, target)
        for seed, policy in policies.items()
        for target in TARGETS
    }
    on_report = run.begin(f"evaluating {len(TARGETS)} target returns")
    episodes = min(SWEEP_EPISODES, run.config.episodes)
    reports = _reports(run, aimed, episodes, processes, on_report)
    achieved = np.array([report.mean for report in reports.values()])
    statistics = policies[run.seeds[0]].statistics
    returns = [statistics.target_return(target) for target in TARGETS]
    return target_sweep(TARGETS, returns, achieved.reshape(len(policies), -1))


def _reports(
    run: OpenRun,
    policies: Mapping[str, Callable[[], Policy]],
    episodes: int,
    processes: int,
    on_report: OnProgress,
) -> dict[str, PolicyReport]:
    """Return reports on policies, given functions that load them; use those in the folder."""
    files = {name: run.folder.path(f"evaluations/{name}.json") for name in policies}
    left = [name for name, file in files.items() if not file.is_file()]
    finished_count = len(files) - len(left)

    def keep(name: str, report: PolicyReport) -> None:
        nonlocal finished_count
        write_json(files[name], report.to_json())
        finished_count += 1
        on_report(finished_count, len(files))

    evaluate_policies(
        {name: policies[name]() for name in left},
        task_env(run.config),
        episodes=episodes,
        seed=FIRST_EPISODE,
        max_steps=run.config.max_steps,
        processes=processes,
        on_report=keep,
    )
    return {name: PolicyReport.from_json(read_json(file)) for name, file in files.items()}
