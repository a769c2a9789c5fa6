"""`preferl reward`: fit rewards to answers, once or as they arrive, and evaluate them."""

import logging
import re
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np

from preferl import data, models, training
from preferl.cli.console import ProgressLine, cell, echo, interrupt, print_table
from preferl.cli.options import (
    AnswersConfig,
    Labels,
    ReportTo,
    StoreConfig,
    Trust,
    import_trusted,
    open_encoder,
    open_robot,
    opened,
    read_episodes,
    true_reward_of,
)
from preferl.cli.parsing import FLAT, OF_YOUR_OWN, POSITIONAL, Mark, options_of, require_name
from preferl.configs import to_json
from preferl.data import sources
from preferl.errors import ConfigError, require_one_of
from preferl.files import write_json
from preferl.online.service.service_config import ServiceConfig
from preferl.printing import get_logger
from preferl.reading import read_object
from preferl.reporting import PLACES_BY_DEFAULT, MetricSink, open_sinks, require_places
from preferl.runs import RunFolder, open_run, require_openable, versions
from preferl.runs.summary import MetricCurve, RunSummary
from preferl.shapes import BoolArray
from preferl.training.configs import RewardTrainerConfig, usable_device
from preferl.training.distributed import ALONE, World
from preferl.training.reward_presets import RewardPreset, RewardSettings, model_names, reward_preset

if TYPE_CHECKING:
    from preferl.evaluation import RewardReport
    from preferl.evaluation.episode_report import Frames


starting_point = import_trusted


@dataclass(frozen=True)
class FitConfig(AnswersConfig):
    """Fit a reward model to answers from a label folder, a store, a run or a scripted teacher.

    For example
      preferl reward fit --store runs/labels
      preferl reward fit --demonstrations door-v0_demos.pickle --labels door-human-v1_human_labels
      preferl reward fit --demonstrations door-v0_demos.pickle --teacher oracle --queries 500
      preferl reward fit --comparisons runs/online

    Attributes:
        out: folder of the run; an older run there is moved away, unless it is resumed.
        reward: the model and how it is fitted.
        model: any other setting of that model; None changes nothing. A context that you set stays
            as it is.
        trainer: any other setting of its training; None changes nothing.
        held_out: share of the answers that training does not use. They choose the best state.
        ratings: what happens to ratings and outcomes in the store or the folder of comparisons:
            "use" fits the reward to them, too; "ignore" leaves them out.
        device: "cpu", "cuda" or "auto".
        resume: continue the interrupted run in `out`.
        publish: show the people of `store` this reward as its next version: its accuracy, and what
            it predicts. Without this, they do not see that a reward was fitted.
        checkpoint_seconds: least time between two checkpoints; a killed program loses at most so
            much.
        report_to: where metrics go: jsonl, tensorboard, wandb.
        trust: module of yours that registers a reward model or a teacher.
        typed: which options were set although they depend on the answers or the machine: context,
            precision.
    """

    out: Path = Path("runs/reward")
    reward: Annotated[RewardSettings, FLAT] = field(default_factory=RewardSettings)
    model: Any = None
    trainer: RewardTrainerConfig | None = None
    held_out: float | None = None
    ratings: Literal["use", "ignore"] = "use"
    device: str = "cpu"
    resume: bool = False
    publish: bool = False
    checkpoint_seconds: float = 60.0
    report_to: ReportTo = PLACES_BY_DEFAULT
    trust: Trust = ()
    typed: Annotated[tuple[str, ...], Mark(hidden=True)] = ()


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(AnswersConfig):
    """Evaluate a fitted reward and its controls on answers that it was not fitted to.

    Pairs that the reward was fitted to are left out, unless there are no others.

    For example
      preferl reward evaluate runs/door --demonstrations door-v0_demos.pickle --labels other_labels

    Attributes:
        run: folder of the run that fitted the reward.
        progress: a Parquet table of progress or rewards per frame that another program wrote for
            the LeRobot data set in --demonstrations; may be given several times. Each table is
            evaluated on the same answers, which have to be about clips of this data set.
        true_reward: the true reward for the EPIC distance, as module:function of observations,
            actions and perhaps the next observations, with a row for each step.
        json: file for the numbers.
        report: file for a report, an HTML page.
        trust: module of yours that registers the reward's model or a teacher.
    """

    run: Annotated[Path, POSITIONAL]
    progress: Annotated[tuple[Path, ...], Mark("FILE", repeated=True)] = ()
    true_reward: str | None = None
    json: Path | None = None
    report: Path | None = None
    trust: Trust = ()


def reward_fit_start(arguments: Sequence[str]) -> FitConfig:
    """Return the config of the model that `--model` names; the other options change it."""
    import_trusted(arguments)
    name = [RewardSettings.model, *options_of(arguments, "--model")][-1]
    require_name(name, model_names(), "model", fix=OF_YOUR_OWN)
    options = ("--model.context", "--trainer.precision")
    typed = tuple(option.partition(".")[2] for option in options if options_of(arguments, option))
    return FitConfig(reward=RewardSettings(name), typed=typed, **_parts(reward_preset(name)))


def reward_fit(config: FitConfig) -> None:
    """Fit a reward, save it with a report, and print its accuracy on held-out answers.

    If there are several processes, all fit and compute rewards again, and the first one does the
    rest.
    """
    config = _without_defaults(config)
    world = training.World.join()
    if config.publish and (config.store is None or config.teacher is not None):
        raise ConfigError(
            "publish: expected a reward of people's answers in --store, got "
            f"{'answers of a teacher' if config.teacher is not None else 'no store'}. Leave "
            "--publish out."
        )
    if world.is_first:
        require_openable(config.out, resume=config.resume)
    require_places(config.report_to)
    encoder = open_encoder(config.encoder, device=usable_device(config.device))
    rated = config.ratings == "use" and config.teacher is None
    episodes, comparisons, labels, ratings = config.read(encoder=encoder, rated=rated)
    _require_fitting_model(config, episodes, comparisons)
    seconds = config.checkpoint_seconds
    checkpoints = training.FitCheckpoints(config.out / "checkpoints", seconds=seconds)
    fit = partial(
        fit_reward,
        config,
        episodes,
        comparisons,
        ratings=ratings,
        encoder="" if encoder is None else encoder.content_id,
        checkpoints=checkpoints,
        world=world,
    )
    if not world.is_first:
        fit()
        return
    if ratings is not None:
        outcomes = int(ratings.is_outcome.sum())
        echo(f"{len(ratings) - outcomes:,} ratings and {outcomes:,} outcomes of single clips.")
    report, folder = _fitted_run(config, episodes, comparisons, labels, fit, checkpoints)
    if config.publish:
        _publish(config, report, folder.path("reward"))
    _echo_fit(report, world, folder)


def _fitted_run(
    config: FitConfig,
    episodes: "data.Episodes",
    comparisons: "data.Comparisons",
    labels: "sources.LabelReport",
    fit: "Callable[..., tuple[training.RewardFunction, training.FitReport]]",
    checkpoints: "training.FitCheckpoints",
) -> "tuple[training.FitReport, RunFolder]":
    """Fit a reward, and write the folder of the run; only the first process writes."""
    summary = _summary(config)
    with open_run(
        config.out,
        config=config,
        seed=config.seed,
        resume=config.resume,
        may_differ=("out", "resume", "publish", "checkpoint_seconds", "report_to", "trust"),
        resolved=_parts(_preset(config, comparisons)),
        summary=summary,
    ) as folder:
        _echo_labels(labels)
        with closing(open_sinks(config.report_to, folder.folder)) as sink:
            reward, report = _fit_with_progress(config, comparisons, fit, sink)
            sink.log(report.metrics(), report.best_epoch)
        training.save_reward(folder.path("reward"), reward)
        _write_report(folder.path("report.html"), config, episodes, reward, report, labels)
        summary = replace(
            summary,
            seconds=report.seconds,
            steps=report.epochs,
            answers=report.pairs,
            accuracy=report.estimate,
        )
        folder.result({"labels": labels.to_json(), "fit": report.to_json()}, summary)
        checkpoints.remove()
    return report, folder


def _require_fitting_model(
    config: FitConfig, episodes: "data.Episodes", comparisons: "data.Comparisons"
) -> None:
    """Before a run, raise an error if clips have other spaces, or the model cannot be built."""
    spaces = models.infer_spaces(episodes.observations, episodes.actions)
    segments = comparisons.segments
    models.check_spaces(*spaces, segments.observations, segments.actions, what="clips")
    models.build_reward_model(_preset(config, comparisons).model, *spaces, seed=0)


def _echo_fit(report: "training.FitReport", world: World, folder: RunFolder) -> None:
    if report.held_out_accuracy is not None:
        echo(
            f"Accuracy on decided answers: {report.held_out_in_words}; "
            f"{report.trained_accuracy:.0%} of those trained on."
        )
    if report.ratings is not None:
        echo(report.ratings.in_words)
    if report.chosen is not None:
        losses = ", ".join(f"{name} {loss:.3f}" for name, loss in report.alternatives.items())
        echo(f"Chosen: {report.chosen}, by the loss on unseen answers: {losses}.")
    data_note = ""
    if world.size > 1:
        data_note = f" by {world.size} processes, which spent {world.seconds:.1f} s in exchanges"
    echo(
        f"Fitted in {report.seconds:.1f} s{data_note}. Reward: {folder.path('reward')} · "
        f"report: {folder.path('report.html')}"
    )


def _summary(config: FitConfig) -> RunSummary:
    """Return the summary of a fit."""
    folder = config.labels or config.comparisons or config.demonstrations
    accuracies = {
        "answers learned from": ("reward/train_accuracy",),
        "left-out answers": ("reward/validation_accuracy", "reward/out_of_bag_accuracy"),
    }
    return RunSummary(
        kind="reward",
        subject=config.project or config.store or (folder.name if folder else ""),
        curves=tuple(
            MetricCurve(f"Accuracy on {words} by epoch", "accuracy", metrics, "epochs")
            for words, metrics in accuracies.items()
        ),
        steps_of="epochs",
    )


def _publish(config: FitConfig, report: "training.FitReport", reward: Path) -> None:
    """Show people how well the reward predicts the answers from which it learned."""
    from preferl.evaluation.reward_report import predicted_preferences
    from preferl.store import StoredFeedback
    from preferl.training.annotator_trust import trust_by_name

    with opened(config) as (store, project):
        earlier_rewards = store.reports.rewards(project.id)
        answered = StoredFeedback(store, project.id, combine=config.combine).answers()
        reward_function = training.load_reward(reward, trust=config.trust)
        shares = predicted_preferences(reward_function, answered.comparisons)
        store.reports.announce_reward(
            project.id,
            1 + (earlier_rewards[-1].version if earlier_rewards else 0),
            answers=report.pairs,
            accuracy=report.held_out_accuracy,
            interval=report.held_out_interval,
            detail={"reward": str(reward), "trust": trust_by_name(report.trust, answered.names)},
            predicted=dict(zip(answered.queries.tolist(), shares.tolist(), strict=True)),
        )


def _fit_with_progress(
    config: FitConfig,
    comparisons: "data.Comparisons",
    fit: "Callable[..., tuple[training.RewardFunction, training.FitReport]]",
    sink: MetricSink,
) -> "tuple[training.RewardFunction, training.FitReport]":
    """Fit a reward beside a bar; Ctrl-C prints how to continue."""
    stage = f"fitting {len(comparisons)} answers"
    preset = _preset(config, comparisons)
    line = ProgressLine(stage)
    epochs = preset.trainer.epochs
    unseen = "validation" if preset.held_out else "out_of_bag"

    def on_epoch(epoch: int, metrics: dict[str, float]) -> None:
        metrics_by_name = {
            name.replace("validation", unseen): value for name, value in metrics.items()
        }
        sink.log({f"reward/{name}": value for name, value in metrics_by_name.items()}, epoch)
        line(stage, epoch, epochs)

    try:
        with line.running():
            return fit(on_epoch=on_epoch)
    except KeyboardInterrupt:
        interrupt(
            f"Stopped while fitting. The same command with --resume continues in {config.out} from "
            "its last checkpoint, or from the beginning if there is none yet."
        )


def _preset(config: FitConfig, comparisons: "data.Comparisons") -> RewardPreset:
    """Return the model and trainer of a config for these answers."""
    length = comparisons.segments.length
    answers = int(comparisons.answered.sum())
    usual = _parts(reward_preset(config.reward.model))
    changes = {name: getattr(config, name) for name in usual if getattr(config, name) is not None}
    base = RewardPreset(**usual | changes)
    return config.reward.preset(length=length, answers=answers, base=base, keep=config.typed)


def _parts(preset: RewardPreset) -> dict[str, Any]:
    """Return the parts of a preset that have options."""
    return {name: getattr(preset, name) for name in ("model", "trainer", "held_out")}


def _without_defaults(config: FitConfig) -> FitConfig:
    """Return the config with None for settings of the preset, which a resume may not name."""
    usual = _parts(reward_preset(config.reward.model))
    unset: Any = {name: None for name, default in usual.items() if getattr(config, name) == default}
    return replace(config, **unset)


def fit_reward(
    config: FitConfig,
    episodes: "data.Episodes",
    comparisons: "data.Comparisons",
    *,
    ratings: "data.Ratings | None" = None,
    encoder: str = "",
    on_epoch: Callable[[int, dict[str, float]], None] | None = None,
    checkpoints: "training.FitCheckpoints | None" = None,
    world: World = ALONE,
) -> "tuple[training.RewardFunction, training.FitReport]":
    """Fit the reward of a config, scaled over all episodes.

    `encoder` is `RewardModel.frozen_encoder`. The other arguments are those of `RewardPreset.fit`.
    """
    model, report = _preset(config, comparisons).fit(
        comparisons,
        *models.infer_spaces(episodes.observations, episodes.actions),
        ratings=ratings,
        seed=config.seed,
        device=config.device,
        on_epoch=on_epoch,
        checkpoints=checkpoints,
        world=world,
    )
    model.frozen_encoder = encoder
    return training.agent_reward(model, report.likelihood, episodes, world=world), report


def _write_report(
    path: Path,
    config: FitConfig,
    episodes: "data.Episodes",
    reward: "training.RewardFunction",
    fit: "training.FitReport",
    labels: "sources.LabelReport",
) -> None:
    """Write the report of a fit, with the rewards of the episode with the highest true return."""
    from preferl.evaluation.report import write_report
    from preferl.evaluation.summary import fit_page

    unit = "clip"
    source = f"{len(episodes)} clips"
    if config.demonstrations is not None:
        unit = "episode"
        source = f"{len(episodes)} episodes of {config.demonstrations.name}"
    details = {"Settings": to_json(config), "Versions": versions()}
    title = f"A reward from {config.in_words}"
    write_report(
        path,
        fit_page(title, reward, fit, episodes, labels, unit=unit, source=source, details=details),
    )


def reward_evaluate(config: EvaluateConfig) -> None:
    """Evaluate a reward and its controls, print tables, and write the numbers if asked."""
    from preferl.evaluation import evaluate_reward
    from preferl.evaluation.reward_report import seen_pairs
    from preferl.feedback.step_rewards import control_rewards

    true_reward = None if config.true_reward is None else true_reward_of(config.true_reward)
    reward = training.load_reward(config.run / "reward", trust=config.trust)
    encoder = open_encoder(config.encoder, reward=reward)
    episodes, comparisons, labels, _ = config.read(0xE7A, encoder=encoder)
    was_fitted = seen_pairs(reward, comparisons)
    headline, words = _about_seen(config, len(reward.fitted_pairs), was_fitted)
    if not was_fitted.all():
        comparisons = comparisons[~was_fitted]
    reports = {
        name: evaluate_reward(compared, comparisons, episodes=episodes, true_reward=true_reward)
        for name, compared in {"learned": reward, **control_rewards(reward, config.seed)}.items()
    }
    reports |= _reports_of_files(config, comparisons)
    if words:
        notes = [note for note in reports["learned"].notes if "was fitted to" not in note]
        reports["learned"] = replace(reports["learned"], notes=(*notes, words))
    _echo_labels(labels)
    _print_reports(headline, reports)
    numbers = {name: report.to_json() for name, report in reports.items()}
    if config.json is not None:
        learned = numbers.pop("learned")
        left_out = [] if was_fitted.all() else was_fitted.nonzero()[0].tolist()
        extras = {"controls": numbers, "labels": labels.to_json(), "left_out": left_out}
        write_json(config.json, learned | extras)
        echo(f"Numbers: {config.json}")
    if config.report is not None:
        from preferl.evaluation.report import write_report
        from preferl.evaluation.summary import evaluation_page

        details = {"Settings": to_json(config), "Versions": versions()}
        title = f"{config.run.name} on {config.in_words}"
        page = evaluation_page(title, reports, headline=headline, details=details)
        write_report(config.report, page)
        echo(f"Report: {config.report}")


def _reports_of_files(
    config: EvaluateConfig, comparisons: "data.Comparisons"
) -> "dict[str, RewardReport]":
    """Evaluate frames' rewards in files on answers about their data set, by file name."""
    from preferl.data.frame_tables import frames_of, read_frame_rewards
    from preferl.evaluation import evaluate_reward
    from preferl.feedback.step_rewards import oracle

    if not config.progress:
        return {}
    folder = open_robot(config.demonstrations)
    frames = frames_of(comparisons.segments, folder, folder.episodes().actions)
    reports = {}
    for path in config.progress:
        rewards = read_frame_rewards(path, folder)[frames]
        segments = replace(comparisons.segments, rewards=rewards)
        reports[path.name] = evaluate_reward(oracle(), replace(comparisons, segments=segments))
    return reports


def _about_seen(config: EvaluateConfig, fitted: int, seen: BoolArray) -> tuple[str, str]:
    """Return a headline about the evaluated answers, and a sentence about those used in the fit.

    The sentence is "" if there is nothing to say.
    """
    pairs = len(seen)
    count = int(seen.sum())
    if pairs and count == pairs:
        return (
            f"Reward on {pairs:,} answers that it was fitted to",
            f"The reward was fitted to answers from here, to all {pairs:,} pairs: its accuracy on "
            "others may be lower.",
        )
    if count:
        return (
            f"Reward on {pairs - count:,} answers that it was not fitted to",
            f"Left out: {count:,} of {pairs:,} pairs, which the reward was fitted to.",
        )
    if fitted and _same_episodes(config):
        words = "These pairs are new, but the reward was fitted to answers about these episodes."
        return "Reward on these labels", words
    return "Reward on these labels", ""


def _same_episodes(config: EvaluateConfig) -> bool:
    """Whether these pairs and those of the fit were drawn from the same episodes."""
    if (config.labels, config.comparisons, config.store) != (None, None, None):
        return False
    file = config.run / "config.json"
    settings = read_object(file)["config"] if file.is_file() else {}
    settings = settings.get("config", settings)
    fitted_source = settings.get("demonstrations")
    evaluated_source = config.demonstrations
    if evaluated_source is None or not isinstance(fitted_source, str):
        return False
    return Path(fitted_source).resolve() == Path(evaluated_source).resolve()


def _echo_labels(labels: "sources.LabelReport") -> None:
    """Print counts of answers in a line."""
    text = (
        f"{labels.pairs:,} labelled pairs of {labels.length} steps: {labels.first} first, "
        f"{labels.second} second, {labels.ties} equal."
    )
    if labels.crossing:
        fate = "dropped" if labels.dropped else "kept"
        text += f" {labels.crossing} of them run across an episode's end ({fate})."
    echo(text)


def _print_reports(headline: str, reports: "dict[str, RewardReport]") -> None:
    report = reports["learned"]
    low, high = report.interval
    numbers = (
        ("accuracy on decided answers", report.accuracy, ".1%"),
        ("95 % interval", f"{low:.1%} to {high:.1%}", ""),
        ("decided answers", report.decided, ","),
        ("equal answers", report.ties, ","),
        ("log loss (chance 0.693)", report.log_loss, ".3f"),
        ("calibration error", report.calibration.error, ".3f"),
        ("noise floor of its probabilities", report.likelihood.noise, ".1%"),
        ("scale of its logits", report.likelihood.scale, ".3f"),
        ("Spearman with the true reward", report.spearman, ".3f"),
        ("EPIC distance from the true reward", report.epic, ".3f"),
    )
    print_table(headline, [(name, cell(v, form)) for name, v, form in numbers])
    columns: dict[str, Callable[[RewardReport], str]] = {
        "accuracy": lambda reward_report: cell(reward_report.accuracy, ".1%"),
        "95 % interval": lambda reward_report: "{:.1%} to {:.1%}".format(*reward_report.interval),
        "log loss": lambda reward_report: cell(reward_report.log_loss, ".3f"),
        "Spearman": lambda reward_report: cell(reward_report.spearman, ".3f"),
        "EPIC": lambda reward_report: cell(reward_report.epic, ".3f"),
    }
    rows = [
        (name, *(cell(reward_report) for cell in columns.values()))
        for name, reward_report in reports.items()
    ]
    print_table("Beside controls", rows, ("reward", *columns), bold=0)
    for note in report.notes:
        echo(note)


@dataclass(frozen=True, kw_only=True)
class EpisodesConfig(AnswersConfig):
    """List episodes that deserve a look: the worst, and those that people judge differently.

    Answers are optional. With them, the list counts answers that contradict the reward.

    For example
      preferl reward episodes runs/reward --demonstrations robot_set --report look.html
      preferl reward episodes runs/reward --demonstrations robot_set --store runs/labels

    Attributes:
        run: folder of the run that fitted the reward.
        part: number of steps of the part with the lowest predicted return, one in each episode.
        most: how many episodes to print.
        camera: camera of a LeRobot data set that clips of the report show; by default the first.
        report: file for a report, an HTML page with clips of a LeRobot data set.
        trust: module of yours that registers the reward's model or a teacher.
    """

    run: Annotated[Path, POSITIONAL]
    part: int = 25
    most: int = 20
    camera: str | None = None
    report: Path | None = None
    trust: Trust = ()


def reward_episodes(config: EpisodesConfig) -> None:
    """Print episodes by their predicted returns, and write a report if the config names a file."""
    from preferl.evaluation.episode_report import (
        COLUMNS,
        episode_page,
        episode_rows,
        score_episodes,
    )

    if config.demonstrations is None:
        raise ConfigError("episodes: expected a source of them, got none. Give --demonstrations.")
    reward = training.load_reward(config.run / "reward", trust=config.trust)
    encoder = open_encoder(config.encoder, reward=reward)
    answers = (config.labels, config.store, config.comparisons, config.teacher)
    if answers == (None, None, None, None):
        episodes = read_episodes(config.demonstrations, encoder, task=config.task)
        comparisons = None
    else:
        episodes, comparisons, *_ = config.read(encoder=encoder)
    tasks, fps, frames = _recorded_with(config.demonstrations, config.camera, len(episodes))
    scores = score_episodes(reward, episodes, part=config.part, comparisons=comparisons)
    for headline, numbers in (
        ("Episodes, the worst first", scores.worst_first),
        ("Episodes that people see otherwise", scores.disputed),
    ):
        if len(numbers):
            rows = episode_rows(scores, numbers[: config.most], tasks, fps)
            print_table(headline, rows, COLUMNS)
    if config.report is not None:
        from preferl.evaluation.report import write_report

        page = episode_page(
            f"Episodes of {config.demonstrations.name}",
            scores,
            tasks=tasks,
            fps=fps,
            frames=frames,
            details={"Settings": to_json(config), "Versions": versions()},
        )
        write_report(config.report, page)
        echo(f"Report: {config.report}")


def _recorded_with(
    demonstrations: Path, camera: str | None, count: int
) -> "tuple[tuple[str, ...], float, Frames | None]":
    """Return tasks of `count` episodes, frames per second, and a decoder of pictures, if any."""
    from preferl.data.sources.lerobot import holds_lerobot

    if not holds_lerobot(demonstrations):
        return ("–",) * count, 1.0, None
    folder = sources.open_lerobot(demonstrations)
    camera = camera or next(iter(folder.cameras), None)
    if camera is None:
        return folder.tasks, folder.fps, None
    folder.pictures(camera)  # fails before anything is printed if it cannot be read
    return folder.tasks, folder.fps, partial(folder.frames, camera)


@dataclass(frozen=True, kw_only=True)
class RewardExportConfig:
    """Write a reward of each frame of a LeRobot data set in forms that trainers of policies read.

    By default, tables are in a folder beside the data set, with its name and `.preferl`. Each table
    has the content id of the data set, since a table of other episodes would weigh the wrong
    frames.

    For example
      preferl reward export runs/reward --lerobot robot_set --chunk 50
      preferl reward export runs/reward --lerobot robot_set --kinds returns,advantages --into-meta

    Attributes:
        run: folder of the run that fitted the reward.
        lerobot: the data set: its folder or hub:OWNER/NAME, and after a colon the features that the
            reward observes, if they are not all numbers.
        encoder: the frozen vision model that the reward was fitted with; only needed if its
            features of these frames are not on disk.
        kinds: "progress" for LeRobot's sample weighting, "returns" and "advantages" as RLinf reads
            them, or "rewards", a plain table.
        chunk: frames of the policy's action chunk.
        best: share of frames whose chunks count as good.
        tag: name in the files of returns and advantages.
        out: folder of the tables.
        into_meta: write returns and advantages into the data set's folder `meta`, in which RLinf
            looks for them.
        device: "cpu", "cuda" or "auto".
        trust: module of yours that registers the reward's model.
    """

    run: Annotated[Path, POSITIONAL]
    lerobot: str
    encoder: str | None = None
    kinds: Annotated[tuple[str, ...], Mark("NAME,NAME,...", commas=True)] = ("progress",)
    chunk: int = 50
    best: float = 0.3
    tag: str = "preferl"
    out: Path | None = None
    into_meta: bool = False
    device: str = "cpu"
    trust: Trust = ()


def reward_export(config: RewardExportConfig) -> None:
    """Compute the reward of each frame, and write the tables."""
    from preferl.data.frame_tables import FrameRewards, FrameTable

    for kind in config.kinds:
        require_one_of("kinds", kind, FrameTable)
    if not re.fullmatch(r"[\w-]+", config.tag):
        raise ConfigError(f"tag: expected letters, digits, _ and -, got {config.tag!r}.")
    folder = open_robot(config.lerobot)
    if config.out is None and config.lerobot.startswith("hub:"):
        raise ConfigError("out: expected a folder, as a data set of the hub has none beside it.")
    device = usable_device(config.device)
    reward = training.load_reward(config.run / "reward", device=device, trust=config.trust)
    encoder = open_encoder(config.encoder, reward=reward, device=device)
    episodes = read_episodes(config.lerobot, encoder)
    frames = FrameRewards(
        folder,
        np.asarray(training.relabel(episodes, reward).rewards),
        version=training.reward_version(config.run / "reward"),
        chunk=config.chunk,
        best=config.best,
    )
    out = config.out or folder.path.with_name(f"{folder.path.resolve().name}.preferl")
    for kind in cast("tuple[FrameTable, ...]", config.kinds):
        joined = kind in ("returns", "advantages")
        target = folder.path / "meta" if joined and config.into_meta else out
        path = target / (f"{kind}_{config.tag}.parquet" if joined else f"{kind}.parquet")
        frames.write(path, kind)
        echo(f"{kind}: {path}")
        if kind == "progress":
            echo(
                f"LeRobot: --sample_weighting.type=rabc --sample_weighting.progress_path={path} "
                f"--sample_weighting.kappa={frames.kappa:.3g}, for chunks of {config.chunk} frames."
            )


@dataclass(frozen=True)
class RewardServeConfig:
    """Fit a reward to people's answers as they arrive, and publish each version, until Ctrl-C.

    You may kill and restart the command at any time; it continues from the same place.

    For example
      preferl reward serve --out runs/rewards
      preferl reward serve --store runs/labels --project door --out runs/rewards --model pt

    Attributes:
        service: what to fit, when to fit, and where to publish.
        labels: where labels are.
        report_to: where metrics of each version go, inside `out`: jsonl, tensorboard, wandb; by
            default nowhere.
        trust: module of yours that registers a reward model for `service.reward.model`.
    """

    service: Annotated[ServiceConfig, Mark(flat="all")]
    labels: Labels = field(default_factory=StoreConfig)
    report_to: ReportTo = ()
    trust: Trust = ()


def reward_serve(config: RewardServeConfig) -> None:
    """Fit and publish rewards until Ctrl-C or SIGTERM."""
    from preferl.online.service.reward_service import serve_reward

    logger = get_logger(__name__)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    stop = threading.Event()
    # A handler runs between two steps of this thread, which may hold the event's lock.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
    with opened(config.labels) as (store, project):
        logger.info("Waits for answers to %s; rewards go to %s.", project.slug, config.service.out)
        version = serve_reward(
            config.service, store, project.id, stop=stop, report_to=config.report_to
        )
    logger.info("Stopped. The latest reward is version %d.", version)
