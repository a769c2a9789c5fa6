"""`preferl reward`: fit rewards to people's labels, and evaluate them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from preferl import data, models, training
from preferl.cli.console import ProgressLine, echo, interrupt, print_table
from preferl.cli.options import Crossing, StoreConfig, Trust, import_trusted, opened
from preferl.configs import to_json
from preferl.data import sources
from preferl.errors import ConfigError
from preferl.files import write_json
from preferl.runs import open_run, require_openable, versions
from preferl.training.configs import usable_device
from preferl.training.reward_presets import RewardPreset, RewardSettings

starting_point = import_trusted


@dataclass(frozen=True)
class FitConfig:
    """Fit a reward model to people's labels: those in a store, or a folder about episodes.

    For example
      preferl reward fit --store runs/labels
      preferl reward fit --demonstrations door-v0_demos.pickle --labels door-human-v1_human_labels
    """

    # a pickle of demonstrations, an HDF5 file of D4RL or robomimic, stacked `.npz` files, or a
    # folder of episodes written by preferl. With a store they are what the reward is scaled over;
    # without them that are the clips that were compared.
    demonstrations: Path | None = None
    labels: Path | None = None  # a folder of Uni-RLHF or Preference Transformer labels for them.
    # folder of the run; an older run there moves aside, unless it is resumed.
    out: Path = Path("runs/reward")
    # the model and how it is fitted.
    reward: Annotated[RewardSettings, tyro.conf.arg(name="")] = field(
        default_factory=RewardSettings
    )
    task: str | None = None  # row of the table of tasks, for a D4RL file that needs one.
    length: int | None = None  # steps per labelled segment, where the file names do not say.
    # what to do with pairs with a segment that runs across an episode's end: "keep" (usual for
    # Uni-RLHF; their answers are noisier), "drop", or "error" (usual for the Preference
    # Transformer, since there it shows that the episodes are others).
    crossing: Crossing | None = None
    seed: int = 0  # of weights, bootstraps and order.
    device: str = "cpu"  # "cpu", "cuda" or "auto".
    # or the folder or database URL of labels that `preferl annotate` collected.
    store: str | None = None
    files: Path | None = None  # folder of clips beside a PostgreSQL database.
    project: str | None = None  # its project, where there are several.
    # how several people's answers to one query become one.
    combine: Literal["mean", "majority", "dawid_skene"] = "mean"
    resume: bool = False  # continue the interrupted run in `out`.
    # between two checkpoints, at least; what a killed program loses at most.
    checkpoint_seconds: float = 60.0
    trust: Trust = ()  # module of yours that registers a reward model for `reward.model`.


@dataclass(frozen=True)
class EvaluateConfig:
    """Evaluate a fitted reward on labels it has not seen."""

    run: Annotated[Path, tyro.conf.Positional]  # folder of the run that fitted it.
    # a pickle of demonstrations, an HDF5 file of D4RL or robomimic, stacked `.npz` files, or a
    # folder of episodes written by preferl.
    demonstrations: Path
    labels: Path  # a folder of labels for them.
    json: Path | None = None  # file for the numbers.
    task: str | None = None  # row of the table of tasks, for a D4RL file that needs one.
    length: int | None = None  # steps per labelled segment, where the file names do not say.
    # what to do with pairs with a segment that runs across an episode's end.
    crossing: Crossing | None = None
    trust: Trust = ()  # module of yours that registers the reward's model.


def reward_fit(config: FitConfig) -> None:
    """Fit, save the reward and a report, and print its accuracy on held-out answers."""
    require_openable(config.out, resume=config.resume)
    episodes, comparisons, labels = _labelled(config)
    spaces = models.infer_spaces(episodes.observations, episodes.actions)
    models.build_reward_model(_preset(config, comparisons).model, *spaces, seed=0)
    usable_device(config.device)
    seconds, may_differ = config.checkpoint_seconds, ("resume", "checkpoint_seconds", "trust")
    checkpoints = training.FitCheckpoints(config.out / "checkpoints", seconds=seconds)
    options: dict[str, Any] = {"resume": config.resume, "may_differ": may_differ}
    with open_run(config.out, config=config, seed=config.seed, **options) as folder:
        _echo_labels(labels)
        reward, report = _fit_with_progress(config, episodes, comparisons, checkpoints)
        training.save_reward(folder.path("reward"), reward)
        _write_report(folder.path("report.html"), config, episodes, reward, report, labels)
        folder.result({"labels": labels.to_json(), "fit": report.to_json()})
        checkpoints.remove()
    if config.store is not None:
        _publish(config, report, folder.path("reward"))
    if report.held_out_accuracy is not None:
        echo(
            f"Accuracy on decided answers that were left out of training: {_left_out(report)}; "
            f"on those trained on: {report.train_accuracy[-1]:.0%}."
        )
    echo(
        f"Fitted in {report.seconds:.1f} s. Reward: {folder.path('reward')} · "
        f"report: {folder.path('report.html')}"
    )


def _labelled(config: FitConfig) -> "tuple[data.Episodes, data.Comparisons, sources.LabelReport]":
    """The answers that a config names, what the reward is scaled over, and counts."""
    from preferl.store import StoredFeedback

    if (config.store is None) == (config.labels is None):
        expected = "--store, or --labels and --demonstrations"
        got = "both" if config.store is not None else "neither"
        raise ConfigError.mismatch("labels", expected=expected, got=got)
    if config.store is None:
        return _read(config)
    with opened(StoreConfig(config.store, config.files, config.project)) as (store, project):
        comparisons = StoredFeedback(store, project.id, combine=config.combine).comparisons()
    if config.demonstrations is None:
        episodes = comparisons.segments.episodes()
    else:
        episodes = sources.load_source(config.demonstrations, task=config.task)
    counts = sources.LabelReport.of(comparisons.preference, comparisons.segments.length)
    return episodes, comparisons, counts


def _read(
    config: FitConfig | EvaluateConfig,
) -> "tuple[data.Episodes, data.Comparisons, sources.LabelReport]":
    """Episodes, the comparisons that a label folder makes of them, and counts."""
    if config.demonstrations is None or config.labels is None:
        fix = "Give --demonstrations with the episodes that the labels count in."
        raise ConfigError.mismatch("episodes", expected="some", got="none", fix=fix)
    episodes = sources.load_source(config.demonstrations, task=config.task)
    length, crossing = config.length, config.crossing
    found = sources.load_labels(config.labels, episodes, length=length, crossing=crossing)
    return episodes, found.comparisons, found.report


def _publish(config: FitConfig, report: "training.FitReport", reward: Path) -> None:
    """Show people the accuracy of the reward that learned from their answers."""
    place = StoreConfig(config.store or "", config.files, config.project)
    with opened(place) as (store, project):
        before = store.reports.rewards(project.id)
        store.reports.publish_reward(
            project.id,
            1 + (before[-1].version if before else 0),
            answers=report.pairs,
            accuracy=report.held_out_accuracy,
            interval=report.held_out_interval,
            detail={"reward": str(reward)},
        )


def _fit_with_progress(
    config: FitConfig,
    episodes: "data.Episodes",
    comparisons: "data.Comparisons",
    checkpoints: "training.FitCheckpoints",
) -> "tuple[training.RewardFunction, training.FitReport]":
    """Fit beside a bar; Ctrl-C prints how to continue."""
    doing = f"fitting {len(comparisons)} answers"
    epochs, line = _preset(config, comparisons).trainer.epochs, ProgressLine(doing)
    try:
        with line.running():
            return fit_reward(
                config,
                episodes,
                comparisons,
                on_epoch=lambda epoch, _: line(doing, epoch, epochs),
                checkpoints=checkpoints,
            )
    except KeyboardInterrupt:
        interrupt(
            f"Stopped while fitting. The same command with --resume continues in {config.out} "
            "from its last checkpoint, or from the beginning where there is none yet."
        )


def _preset(config: FitConfig, comparisons: "data.Comparisons") -> RewardPreset:
    """The model and trainer of a config for these answers."""
    length, answers = comparisons.segments.length, int(comparisons.answered.sum())
    return config.reward.preset(length=length, answers=answers)


def fit_reward(
    config: FitConfig, episodes: "data.Episodes", comparisons: "data.Comparisons", **options: Any
) -> "tuple[training.RewardFunction, training.FitReport]":
    """Fit the reward of a config, scaled over all episodes; options are of `RewardPreset.fit`."""
    spaces = models.infer_spaces(episodes.observations, episodes.actions)
    preset, device = _preset(config, comparisons), config.device
    model, report = preset.fit(comparisons, *spaces, seed=config.seed, device=device, **options)
    return training.RewardFunction(model, likelihood=report.likelihood).scaled(episodes), report


def _write_report(
    path: Path,
    config: FitConfig,
    episodes: "data.Episodes",
    reward: "training.RewardFunction",
    fit: "training.FitReport",
    labels: "sources.LabelReport",
) -> None:
    """How the fit went, and the rewards of the episode with the highest true return."""
    from preferl.evaluation.report import Fact, Report, Section, write_report
    from preferl.evaluation.summary import accuracy_figure, reward_figure

    best = int(episodes.returns.argmax())
    if config.demonstrations is None:
        one, source = "clip", f"{len(episodes)} clips"
    else:
        one, source = "episode", f"{len(episodes)} episodes of {config.demonstrations.name}"
    figures = (
        accuracy_figure(
            {"trained on": fit.train_accuracy, "left out": fit.validation_accuracy},
            f"Accuracy by epoch; at the end {fit.train_accuracy[-1]:.0%} of the answers trained "
            f"on and {_left_out(fit)} left out.",
            "Share of decided answers on the side that the reward expects. Left out of training "
            "are held-out answers, or else the third that each member's bootstrap misses.",
        ),
        reward_figure(
            reward,
            episodes[best : best + 1],
            f"The learned reward of each step of {'an' if one == 'episode' else 'a'} {one} beside "
            "the true one.",
            f"{one.capitalize()} {best}, the one with the highest true return; the band is the "
            "range of the members.",
        ),
    )
    accuracy, _, note = _left_out(fit).partition(" ")
    facts = (
        Fact("Left-out accuracy", accuracy, note),
        Fact("Answers", f"{fit.pairs:,}", f"{labels.ties} equal, {labels.dropped} dropped"),
        Fact("Members", f"{fit.members}", f"{fit.seconds:.1f} s of fitting"),
    )
    named = config.project or config.store if config.labels is None else config.labels.name
    page = Report(
        f"A reward from {named}",
        lead=f"Fitted to {fit.pairs:,} answers about {source}. Left-out accuracy is the share of "
        "decided answers, not learned from, that it predicts.",
        facts=facts,
        sections=(Section("The fit", figures=figures),),
        details={"Settings": to_json(config), "Versions": versions()},
    )
    write_report(path, page)


def reward_evaluate(config: EvaluateConfig) -> None:
    """Evaluate, print a table, write the numbers where they were asked for."""
    from preferl.evaluation import evaluate_reward

    reward = training.load_reward(config.run / "reward")
    episodes, comparisons, labels = _read(config)
    report = evaluate_reward(reward, comparisons, episodes=episodes).to_json()
    _echo_labels(labels)
    _print_report(report)
    if config.json is not None:
        write_json(config.json, report | {"labels": labels.to_json()})
        echo(f"Numbers: {config.json}")


def _echo_labels(labels: "sources.LabelReport") -> None:
    text = (
        f"{labels.pairs:,} labelled pairs of {labels.length} steps: {labels.first} first, "
        f"{labels.second} second, {labels.ties} equal."
    )
    if labels.crossing:
        fate = "dropped" if labels.dropped else "kept"
        text += f" {labels.crossing} of them run across an episode's end ({fate})."
    echo(text)


def _print_report(report: dict[str, Any]) -> None:
    likelihood, (low, high) = report["likelihood"], report["interval"]
    numbers = (
        ("accuracy on decided answers", report["accuracy"], ".1%"),
        ("95 % interval", f"{low:.1%} to {high:.1%}", ""),
        ("decided answers", report["decided"], ","),
        ("equal answers", report["ties"], ","),
        ("log loss (chance 0.693)", report["log_loss"], ".3f"),
        ("calibration error", report["calibration"]["error"], ".3f"),
        ("noise floor of its probabilities", likelihood["noise"], ".1%"),
        ("scale of its logits", likelihood["scale"], ".3f"),
        ("Spearman with the true reward", report["spearman"], ".3f"),
    )
    rows = [(name, "–" if value is None else format(value, form)) for name, value, form in numbers]
    print_table("Reward on these labels", rows)


def _left_out(fit: "training.FitReport") -> str:
    """The accuracy on answers left out, how many they are, and how sure that is."""
    if fit.held_out_accuracy is None or fit.held_out_interval is None:
        return "none"
    low, high = fit.held_out_interval
    return f"{fit.held_out_accuracy:.0%} of {fit.judged:,} (95 % interval {low:.0%} to {high:.0%})"
