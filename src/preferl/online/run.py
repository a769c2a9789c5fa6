"""An online run in a folder: learn, save everything, evaluate, and write a report."""

import inspect
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from gymnasium import spaces

from preferl.configs import to_json
from preferl.data.arrays import save_comparisons, save_episodes
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes, join
from preferl.data.segment_sampling import Short
from preferl.data.segments import Clips
from preferl.envs.factory import draws, env_factory
from preferl.errors import ConfigError, FeedbackError
from preferl.evaluation.curve import evaluation_interval
from preferl.evaluation.filming import film, frame_rate
from preferl.evaluation.policies import Policy, RandomPolicy
from preferl.evaluation.policy import PolicyReport, evaluate_policy
from preferl.evaluation.reward_report import (
    RewardReport,
    TransitionReward,
    evaluate_reward,
    of_transitions,
)
from preferl.feedback.instant import InstantFeedback, sample_comparisons, teacher_in_words
from preferl.feedback.protocols import Feedback, PairSampler, Teacher
from preferl.feedback.scripted import ScriptedTeacher
from preferl.feedback.step_rewards import Reward, control_rewards
from preferl.online.acting import act, record
from preferl.online.algorithms import (
    algorithm_of,
    build_algorithm,
    make_environments,
    normalised,
)
from preferl.online.checkpoints.policy_folder import save_policy
from preferl.online.configs import EvaluationConfig, OnlineConfig
from preferl.online.loop import (
    LoopParts,
    OnEvaluation,
    OnIteration,
    PreferenceLoop,
    build_parts,
)
from preferl.online.reports import OnlineReport, trust_of
from preferl.online.rollouts import learn_within
from preferl.online.wrappers.recording import zeros_of
from preferl.printing import get_logger
from preferl.registry import TEACHERS
from preferl.reporting import PLACES_BY_DEFAULT, open_sinks, require_places
from preferl.runs import RunFolder, open_run, require_openable, versions
from preferl.runs.summary import EVALUATED, UNSEEN, Estimate, MetricCurve, RunSummary
from preferl.store.feedback import StoredFeedback
from preferl.training.reward_function import RewardFunction, save_reward

if TYPE_CHECKING:
    from preferl.evaluation.report import Figure, Video

LOGGER = get_logger(__name__)

SHOWN: Final = {"oracle": "true reward"}
"""Names of policies in the report that differ from the names in the result."""

CURVES: Final = (
    MetricCurve(EVALUATED, "return", ("eval/mean_reward",)),
    MetricCurve("Return of the exploring policy", "return", ("policy/true_return",)),
    *(
        MetricCurve(f"Accuracy on {words} answers", "accuracy", (f"reward/{kind}_accuracy",))
        for kind, words in UNSEEN.items()
    ),
)
"""Metrics whose curves the summary of a run draws."""

OnStage = Callable[[str], None]
"""Called with a few words about the next stage."""


def run_online(
    config: OnlineConfig,
    out: Path | str,
    *,
    evaluation: EvaluationConfig | None = None,
    teacher: Teacher | None = None,
    feedback: Feedback | None = None,
    sampler: PairSampler | None = None,
    comparisons: Comparisons | None = None,
    episodes: Episodes | None = None,
    true_reward: TransitionReward | None = None,
    on_iteration: OnIteration | None = None,
    on_evaluation: OnEvaluation | None = None,
    on_stage: OnStage | None = None,
    report_to: Iterable[str] = PLACES_BY_DEFAULT,
    resume: bool = False,
    keep_experience: bool = False,
) -> dict[str, Any]:
    """Learn from preferences, and write all results into a folder.

    The folder holds the config, versions, metrics, the comparisons after every iteration, the
    reward, the policy, `result.json` and `report.html`. After Ctrl-C, the folder holds what is
    there so far. The same call with `resume` then continues from the last whole iteration.
    Checkpoints are removed after the evaluation.

    Args:
        config: settings of learning.
        out: the folder. An older run there moves aside, unless it is resumed.
        evaluation: settings of the evaluation at the run's end; the defaults if None.
        teacher: answers instead of the config's scripted teacher; `config.json` then names it.
        feedback: takes queries, for example for people who answer in a browser.
        sampler: chooses queries instead of the config's sampler; `config.json` names it under
            `resolved`.
        comparisons: answers that exist already, see `learn_from_preferences`.
        episodes: recorded episodes, see `learn_from_preferences`.
        true_reward: the true reward as a function of transitions, for the report's EPIC distance.
        on_iteration: called with the report of each iteration.
        on_evaluation: called after each evaluation of the policy while it learns.
        on_stage: called with the name of each stage before it begins.
        report_to: where metrics go: some of `jsonl`, `tensorboard`, `wandb`.
        resume: continue the run that is in `out`.
        keep_experience: also write the latest `buffer_steps` steps, with the environment's own
            rewards. They are episodes in the folder `experience` (see `load_episodes`).

    Returns:
        The contents of `result.json`.

    Raises:
        ConfigError: settings contradict each other, `report_to` names an unknown place, or the run
            in `out` has other settings.
        CheckpointError: the checkpoint in `out` is damaged.
        ResumeError: the run to resume is finished, or there is none. Nothing was changed.
        FeedbackError: the teacher's answers have another shape than `[P]`.
        StorageError: another run works in `out`, or `out` cannot be written to.
    """
    evaluation = evaluation or EvaluationConfig()
    places = tuple(report_to)
    if teacher is not None:
        config = replace(config, teacher=_recorded(teacher))
    _require_evaluable(config, true_reward)
    require_places(places)
    require_openable(out, resume=resume)  # before expensive work
    parts = build_parts(
        config,
        teacher=teacher,
        feedback=feedback,
        sampler=sampler,
        comparisons=comparisons,
        episodes=episodes,
    )
    agent = parts.learner.algorithm
    with closing(agent.get_env()), parts.learner.threads():
        _require_answers_of_shape(parts)
        if not resume:  # a warm start may read the older run that moves aside below
            parts.require_suitable(parts.read_warm_start())
        evaluation = _filmable(config, evaluation, agent.action_space)
        with open_run(
            out,
            config=config,
            seed=config.seed,
            resume=resume,
            resolved=_resolved(parts, sampler),
            summary=RunSummary("online", config.env_name, CURVES),
        ) as folder:
            report = _learn(
                parts,
                folder,
                report_to=places,
                on_iteration=on_iteration,
                on_evaluation=on_evaluation,
            )
            _save(parts, folder, report, keep_experience=keep_experience)
            return _conclude(
                parts,
                folder,
                report,
                evaluation=evaluation,
                true_reward=true_reward,
                on_stage=on_stage or (lambda _: None),
            )


def _require_evaluable(config: OnlineConfig, true_reward: TransitionReward | None) -> None:
    """Raise errors now that would otherwise only be raised in the evaluation at the end."""
    if config.steps == 0:
        raise ConfigError(
            "steps: expected at least 1, since a whole run evaluates its agent, got 0. Take "
            "steps, or call preferl.learn_from_preferences(config, episodes=...), which returns a "
            "reward."
        )
    if true_reward is not None:
        of_transitions(true_reward)


def _learn(
    parts: LoopParts,
    folder: RunFolder,
    *,
    report_to: Sequence[str],
    on_iteration: OnIteration | None,
    on_evaluation: OnEvaluation | None,
) -> OnlineReport:
    """Learn in the folder of the run, from its last whole iteration."""
    with closing(open_sinks(report_to, folder.folder)) as sink:
        loop = PreferenceLoop(
            parts,
            sink=sink,
            on_iteration=on_iteration,
            on_answers=partial(save_comparisons, folder.path("comparisons")),
            on_evaluation=on_evaluation,
            checkpoints=folder.path("checkpoints"),
        )
        return loop.learn()


def _save(
    parts: LoopParts, folder: RunFolder, report: OnlineReport, *, keep_experience: bool
) -> None:
    """Write the policy and the reward, and the experience if it is to be kept."""
    learner = parts.learner
    save_policy(folder.path("policy"), learner.algorithm, algorithm_of(parts.config, learner.env))
    if report.reward is not None:
        save_reward(folder.path("reward"), report.reward)
    if keep_experience and report.experience is not None:
        save_episodes(folder.path("experience"), report.experience)


def _conclude(
    parts: LoopParts,
    folder: RunFolder,
    report: OnlineReport,
    *,
    evaluation: EvaluationConfig,
    true_reward: TransitionReward | None,
    on_stage: OnStage,
) -> dict[str, Any]:
    """Evaluate the agent and the reward, write report and result, and return the result."""
    config = parts.config
    result = _result(parts, report)
    summary = RunSummary(
        "online",
        config.env_name,
        CURVES,
        seconds=result["seconds"],
        steps=report.env_steps,
        answers=result["comparisons"],
        findings=report.findings,
    )
    try:
        if not report.interrupted:
            evaluated = _evaluate(
                config, evaluation, report, true_reward=true_reward, on_stage=on_stage
            )
            on_stage("writing the report")
            _write_report(folder.path("report.html"), parts, report, evaluated)
            summary = evaluated.completed(summary)
            result |= evaluated.to_json()
    except KeyboardInterrupt:  # learning is saved; only the evaluation is missing
        result["interrupted"] = True
    folder.result(result, summary)
    if not result["interrupted"]:  # nothing is left to resume
        shutil.rmtree(folder.path("checkpoints"), ignore_errors=True)
    return result


def _resolved(parts: LoopParts, sampler: PairSampler | None) -> dict[str, Any]:
    """Return the values that the run chose for settings left open by the config."""
    config = parts.config
    resolved = {
        "algorithm": algorithm_of(config, parts.learner.env),
        "sampler": config.sampler if sampler is None else _name_of(sampler),
        "model": config.model,
        "trainer": config.trainer,
        "initial_epochs": config.initial_epochs or config.trainer.epochs,
        "eval_every": evaluation_interval(config.eval_every, config.steps),
    }
    if isinstance(parts.feedback, StoredFeedback):
        resolved["answered_by"] = "people"
        resolved["question"] = parts.feedback.project.question
    return resolved


def _result(parts: LoopParts, report: OnlineReport) -> dict[str, Any]:
    """Return the part of `result.json` that is about learning."""
    return {
        "env": parts.config.env_name,
        "seed": parts.config.seed,
        "comparisons": 0 if report.comparisons is None else len(report.comparisons),
        "declined": _declined(parts.feedback),
        "env_steps": report.env_steps,
        "seconds": round(report.seconds, 2),
        "interrupted": report.interrupted,
        "time": {part: round(seconds, 2) for part, seconds in report.part_seconds.items()},
        "evaluations": {"taught": [evaluation.to_json() for evaluation in report.evaluations]},
        "trust": _trust(parts, report),
        "accuracy_in_words": report.accuracy_in_words,
    }


def _recorded(teacher: Teacher) -> Teacher:
    """Return a teacher for `config.json`: itself if JSON can hold it, else its class's name."""
    has_name = hasattr(teacher, "__qualname__") or TEACHERS.has_config(type(teacher))
    return teacher if has_name else cast("Teacher", type(teacher))


def _name_of(sampler: PairSampler) -> str:
    """Return `module:Name` of a function, or of the class of an object."""
    sampler_object: Any = sampler if inspect.isroutine(sampler) else type(sampler)
    return f"{sampler_object.__module__}:{sampler_object.__qualname__}"


def _require_answers_of_shape(parts: LoopParts) -> None:
    """Raise `FeedbackError` now if a teacher's answers have a shape that cannot be used."""
    if isinstance(parts.feedback, InstantFeedback):
        algorithm = parts.learner.algorithm
        axes = (0, 2, parts.config.segment_length)
        observations = zeros_of(algorithm.observation_space, axes)
        actions = np.asarray(zeros_of(algorithm.action_space, axes))
        no_clips = Clips(observations, actions, np.ones(axes, bool), np.zeros(axes))
        parts.feedback.require_shape(no_clips)


def _trust(parts: LoopParts, report: OnlineReport) -> dict[str, dict[str, float]]:
    """Return the trust in each annotator by name; names come from the table of people, if any."""
    names: tuple[str, ...] = ()
    with suppress(FeedbackError):  # raised if nothing has been answered yet
        if isinstance(parts.feedback, StoredFeedback):
            names = parts.feedback.answers().names
    return trust_of(report, names)


def _declined(feedback: Feedback) -> int | None:
    """Return how many queries were declined; None if the feedback does not count them."""
    if isinstance(feedback, InstantFeedback | StoredFeedback):
        return feedback.declined
    return None


def _filmable(
    config: OnlineConfig, evaluation: EvaluationConfig, actions: spaces.Space[Any]
) -> EvaluationConfig:
    """Turn films off if nothing is drawn; raise errors now that filming would raise later."""
    if evaluation.clip_steps and not draws(env_factory(config)):
        LOGGER.warning("%s draws no pictures: the report has no clips.", config.env_name)
        return replace(evaluation, clip_steps=0)
    _clips(config, min(1, evaluation.clip_steps), before=RandomPolicy(actions, 0))
    return evaluation


@dataclass(frozen=True, eq=False)
class _Evaluated:
    """Results of the evaluation at a run's end.

    Attributes:
        policies: reports of the random policy, the taught agent and the oracle.
        rewards: reports of the learned reward and its controls; empty without one.
        shown: a whole episode of the taught agent.
        clips: films of the agent before and after it was taught.
        has_true_reward: whether the environment gave any reward.
    """

    policies: dict[str, PolicyReport]
    rewards: dict[str, RewardReport]
    shown: Episodes
    clips: "list[Video]"
    has_true_reward: bool

    def to_json(self) -> dict[str, Any]:
        """Return the part of `result.json` that is about the evaluation."""
        rewards = {name: report.to_json() for name, report in self.rewards.items()}
        return {name: round(report.mean, 3) for name, report in self.policies.items()} | {
            "policies": {name: report.to_json() for name, report in self.policies.items()},
            "has_true_reward": self.has_true_reward,
            "reward": rewards.pop("learned", None),
            "controls": rewards,
        }

    def completed(self, summary: RunSummary) -> RunSummary:
        """Return the summary of a run, completed by the results of its evaluation."""
        scores = {
            name: Estimate.of_episodes(report.returns, report.success_rate)
            for name, report in self.policies.items()
            if self.has_true_reward or report.success is not None  # returns of 0 mean nothing
        }
        learned = self.rewards.get("learned")
        return replace(
            summary,
            score=scores.pop("taught", None),
            beside=scores,
            accuracy=None if learned is None else learned.estimate,
            reward={} if learned is None else learned.numbers,
        )


def _evaluate(
    config: OnlineConfig,
    evaluation: EvaluationConfig,
    report: OnlineReport,
    *,
    true_reward: TransitionReward | None,
    on_stage: OnStage,
) -> _Evaluated:
    """Evaluate policies and reward."""
    seed = config.seed
    taught = report.learner.algorithm
    env = env_factory(config)
    random = RandomPolicy(taught.action_space, seed)
    policies: dict[str, Policy] = {"random": random, "taught": taught}
    on_stage("filming the agent before and after")
    clips = _clips(config, evaluation.clip_steps, before=random, after=taught)
    if evaluation.oracle:
        on_stage(f"training on the true reward, {config.steps:,} steps, to compare")
        policies["oracle"] = train_on_true_reward(config)
    on_stage("evaluating policies and reward")
    reports = {
        name: evaluate_policy(policy, env, episodes=evaluation.episodes, seed=seed + 10_000)
        for name, policy in policies.items()
    }
    # New experience of bad and good behaviour; nothing was learned from it.
    random_episodes = record(random, env, 2_000, seed=seed + 20_000)
    new_episodes = join([random_episodes, record(taught, env, 2_000, seed=seed + 20_001)])
    with closing(make_environments(env, 1, seed=seed + 40_000)) as venv:
        filmed = act(taught, venv, episodes=1)
    return _Evaluated(
        policies=reports,
        rewards=_evaluate_rewards(
            report.reward,
            _held_out(config, new_episodes, evaluation.queries),
            new_episodes,
            true_reward=true_reward,
            seed=seed,
        ),
        shown=filmed,
        clips=clips,
        has_true_reward=report.has_true_reward or new_episodes.has_true_reward,
    )


def train_on_true_reward(config: OnlineConfig) -> Any:
    """Train the config's algorithm on the environment's own reward for the same number of steps.

    The environments are closed afterwards. To train the algorithm further, set other environments.
    """
    environment_factory = env_factory(config)
    copies = config.environments
    env = make_environments(environment_factory, copies, seed=config.seed, vec_env=config.vec_env)
    env = normalised(env) if config.normalise_observations else env
    with closing(env):
        algorithm_config = algorithm_of(config, env)
        algorithm = build_algorithm(algorithm_config, env, seed=config.seed, device=config.device)
        learn_within(algorithm, config.steps)
    return algorithm


def _evaluate_rewards(
    learned: RewardFunction | None,
    held_out: Comparisons,
    episodes: Episodes,
    *,
    true_reward: TransitionReward | None,
    seed: int,
) -> dict[str, RewardReport]:
    """Evaluate the learned reward and its controls on the same queries; empty without a reward."""
    if learned is None:
        return {}
    rewards: dict[str, Reward] = {"learned": learned, **control_rewards(learned, seed)}
    return {
        name: evaluate_reward(reward, held_out, episodes=episodes, true_reward=true_reward)
        for name, reward in rewards.items()
    }


def _held_out(config: OnlineConfig, episodes: Episodes, count: int) -> Comparisons:
    """Answer queries about `episodes` by the true return, without error."""
    rng = np.random.default_rng([config.seed, 0x0E7])
    exact = ScriptedTeacher.oracle()
    # All of these episodes may be shorter than those that the reward was fitted to.
    short: Short = "pad" if config.short == "pad" else "auto"
    return sample_comparisons(episodes, count, config.segment_length, exact, rng, short=short)


def _clips(config: OnlineConfig, steps: int, **policies: Policy) -> "list[Video]":
    """Film policies named "before" and "after" in episodes that begin in the same way."""
    if not steps:
        return []
    from preferl.evaluation.report import Video
    from preferl.video import encode

    env = env_factory(config)
    rate = frame_rate(env)
    clips = []
    for moment, policy in policies.items():
        frames = film(policy, env, seed=config.seed + 1, steps=steps)
        video = Video(
            encode(frames, fps=rate),
            moment.capitalize(),
            f"{config.env_name}: the agent {moment} it was taught.",
            start=len(frames) / rate / 2,  # in the middle, where the behaviours differ most
        )
        clips.append(video)
    return clips


def _write_report(
    path: Path, parts: LoopParts, report: OnlineReport, evaluated: _Evaluated
) -> None:
    from preferl.evaluation.report import Fact, Report, Section, write_report
    from preferl.evaluation.summary import evaluation_curve, findings_section, run_report

    config = parts.config
    answers = 0 if report.comparisons is None else len(report.comparisons)
    title = f"{config.env_name}, taught by {answers} comparisons"
    if report.reward is None:
        nothing = Section("No answers", ("Nothing was learned.",))
        write_report(path, Report(title, sections=(nothing, findings_section(report.findings))))
        return
    curves = [evaluation_curve("taught", [report.evaluations])] if report.evaluations else []
    page = run_report(
        title,
        policies={SHOWN.get(name, name): policy for name, policy in evaluated.policies.items()},
        taught="taught",
        reward=evaluated.rewards["learned"],
        controls={
            name: control for name, control in evaluated.rewards.items() if name != "learned"
        },
        findings=report.findings,
        curves=curves,
        curve_episodes=config.eval_episodes,
        clips=evaluated.clips,
        reward_figures=[_shown_reward(report.reward, evaluated)],
        left_out=report.accuracy_in_words,
        trust=_trust(parts, report),
        has_true_reward=evaluated.has_true_reward,
        lead=_lead(parts.feedback, has_true_reward=evaluated.has_true_reward),
        facts=(
            Fact("Comparisons", f"{answers:,}", f"{config.segment_length} steps each"),
            Fact("Environment steps", f"{report.env_steps:,}", report.time_in_words),
        ),
        details={"Settings": to_json(config), "Versions": versions()},
    )
    write_report(path, page)


def _shown_reward(reward: RewardFunction, evaluated: _Evaluated) -> "Figure":
    """Draw the learned reward of each step of the shown episode."""
    from preferl.evaluation.summary import reward_figure

    comparison = " beside the true one" if evaluated.has_true_reward else ""
    return reward_figure(
        reward,
        evaluated.shown,
        f"The learned reward of each step of an episode{comparison}.",
        f"One whole episode of the taught agent, {evaluated.shown.steps:,} steps; the band is the "
        "range of the members.",
        has_true_reward=evaluated.has_true_reward,
    )


def _lead(feedback: Feedback, *, has_true_reward: bool) -> str:
    """Return whose answers a run learned from, to which question, and how many were declined."""
    source = ""
    question = "which of two clips is better"
    if isinstance(feedback, InstantFeedback):
        source = f" by {teacher_in_words(feedback.teacher)}"
    elif isinstance(feedback, StoredFeedback):
        source = " of people"
        question = f'"{feedback.project.question}"'
    declined = _declined(feedback)
    aside = f" ({declined} more were declined)" if declined else ""
    lead = (
        f"The agent's rewards came from a model of answers{source} to the question {question}"
        f"{aside}."
    )
    if has_true_reward:
        return f"{lead} It never saw the true reward, the environment's own."
    return f"{lead} The environment gave no reward, so that returns are left out."
