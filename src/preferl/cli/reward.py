"""`preferl reward`: fit rewards to people's labels, and judge them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from preferl.cli.optional import Trust, import_trusted
from preferl.training.reward_presets import RewardPreset, RewardSettings

if TYPE_CHECKING:
    from preferl.data import Comparisons, Episodes
    from preferl.data.sources import LabelReport
    from preferl.training import FitCheckpoints, FitReport, RewardFunction


@dataclass(frozen=True)
class FitConfig:
    """Fit a reward model to people's labels: those in a store, or a folder about episodes.

    For example
      preferl reward fit --store runs/labels
      preferl reward fit --demonstrations door-v0_demos.pickle --labels door-human-v1_human_labels

    Attributes:
        demonstrations: a pickle of demonstrations, an HDF5 file of D4RL or robomimic, stacked
            `.npz` files, or a folder of episodes written by preferl. With a store they are what
            the reward is scaled over; without them that are the clips that were compared.
        labels: a folder of Uni-RLHF or Preference Transformer labels for them.
        out: folder of the run; an older run there moves aside, unless it is resumed.
        resume: go on with the run in `out` that was interrupted.
        checkpoint_seconds: between two checkpoints, at least; what a killed program loses at most.
        store: or the folder or database URL of labels that `preferl annotate` collected.
        files: folder of clips beside a PostgreSQL database.
        project: its project, where there are several.
        combine: how several people's answers to one query become one.
        reward: the model and how it is fitted.
        task: row of the table of tasks, for a D4RL file that needs one.
        length: steps per labelled segment, where the file names do not say.
        crossing: what becomes of pairs with a segment that runs across an episode's end: "keep"
            (usual for Uni-RLHF; their answers are noisier), "drop", or "error" (usual for the
            Preference Transformer, since there it shows that the episodes are others).
        seed: of weights, bootstraps and order.
        device: "cpu", "cuda" or "auto".
        trust: module of yours that registers a reward model for `reward.model`.
    """

    demonstrations: Path | None = None
    labels: Path | None = None
    out: Path = Path("runs/reward")
    reward: Annotated[RewardSettings, tyro.conf.arg(name="")] = field(
        default_factory=RewardSettings
    )
    task: str | None = None
    length: int | None = None
    crossing: Literal["drop", "keep", "error"] | None = None
    seed: int = 0
    device: str = "cpu"
    store: str | None = None
    files: Path | None = None
    project: str | None = None
    combine: Literal["mean", "majority", "dawid_skene"] = "mean"
    resume: bool = False
    checkpoint_seconds: float = 60.0
    trust: Trust = ()


@dataclass(frozen=True)
class EvaluateConfig:
    """Judge a fitted reward on labels it has not seen.

    Attributes:
        run: folder of the run that fitted it.
        demonstrations: a pickle of demonstrations, an HDF5 file of D4RL or robomimic, stacked
            `.npz` files, or a folder of episodes written by preferl.
        labels: a folder of labels for them.
        json: file for the numbers.
        task: row of the table of tasks, for a D4RL file that needs one.
        length: steps per labelled segment, where the file names do not say.
        crossing: what becomes of pairs with a segment that runs across an episode's end.
        trust: module of yours that registers the reward's model.
    """

    run: Annotated[Path, tyro.conf.Positional]
    demonstrations: Path
    labels: Path
    json: Path | None = None
    task: str | None = None
    length: int | None = None
    crossing: Literal["drop", "keep", "error"] | None = None
    trust: Trust = ()


def starting_point(arguments: Sequence[str]) -> Any:
    """What options change, once the modules are imported that name models of one's own."""
    import_trusted(arguments)
    return tyro.MISSING_NONPROP


def run_fit(config: FitConfig) -> None:
    """Fit, save the reward and a report, and print how good it is on answers it left out."""
    from rich.console import Console

    from preferl.cli.reward_labels import labelled, publish
    from preferl.models import build_reward_model, infer_spaces
    from preferl.runs import open_run, require_openable
    from preferl.training import FitCheckpoints, save_reward
    from preferl.training.device import usable_device

    console = Console()
    require_openable(config.out, resume=config.resume)
    episodes, comparisons, labels = labelled(config)
    preset = preset_for(config, comparisons)
    build_reward_model(preset.model, *infer_spaces(episodes.observations, episodes.actions), seed=0)
    usable_device(config.device)
    checkpoints = FitCheckpoints(config.out / "checkpoints", seconds=config.checkpoint_seconds)
    with open_run(
        config.out,
        config=config,
        seed=config.seed,
        resume=config.resume,
        may_differ=("resume", "checkpoint_seconds", "trust"),
    ) as folder:
        _say_labels(console, labels)
        reward, report = _fit_in_sight(console, config, episodes, comparisons, checkpoints)
        save_reward(folder.path("reward"), reward)
        _write_page(folder.path("report.html"), config, episodes, reward, report, labels)
        folder.result({"labels": labels.to_json(), "fit": report.to_json()})
        checkpoints.remove()
    if config.store is not None:
        publish(config, report, folder.path("reward"))
    if report.left_out_accuracy is not None:
        console.print(
            f"Accuracy on decided answers that were left out of training: {_left_out(report)}; "
            f"on those trained on: {report.train_accuracy[-1]:.0%}.",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"Fitted in {report.seconds:.1f} s. Reward: {folder.path('reward')} · "
        f"report: {folder.path('report.html')}",
        soft_wrap=True,
    )


def _fit_in_sight(
    console: Any,
    config: FitConfig,
    episodes: "Episodes",
    comparisons: "Comparisons",
    checkpoints: "FitCheckpoints",
) -> "tuple[RewardFunction, FitReport]":
    """Fit beside a bar; Ctrl-C says how to go on."""
    from rich.progress import Progress

    from preferl.cli.runs import INTERRUPTED

    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        total = preset_for(config, comparisons).trainer.epochs
        task = progress.add_task(f"fitting {len(comparisons)} answers", total=total)
        try:
            return fit_reward(
                config,
                episodes,
                comparisons,
                on_epoch=lambda epoch, _: progress.update(task, completed=epoch),
                checkpoints=checkpoints,
            )
        except KeyboardInterrupt:
            console.print(
                f"Stopped while fitting. The same command with --resume goes on in {config.out} "
                "from its last checkpoint, or from the beginning where there is none yet.",
                highlight=False,
                soft_wrap=True,
            )
            raise SystemExit(INTERRUPTED) from None


def preset_for(config: FitConfig, comparisons: "Comparisons") -> RewardPreset:
    """The model and trainer that a config comes to for these answers."""
    length, answers = comparisons.segments.length, int(comparisons.answered.sum())
    return config.reward.preset(length=length, answers=answers)


def fit_reward(
    config: FitConfig, episodes: "Episodes", comparisons: "Comparisons", **options: Any
) -> "tuple[RewardFunction, FitReport]":
    """The reward that a config describes, scaled over all episodes, and how the fit went.

    Options are those of `RewardPreset.fit`.
    """
    from preferl.models import infer_spaces
    from preferl.training import RewardFunction

    model, report = preset_for(config, comparisons).fit(
        comparisons,
        *infer_spaces(episodes.observations, episodes.actions),
        seed=config.seed,
        device=config.device,
        **options,
    )
    return RewardFunction(model, likelihood=report.likelihood).scaled(episodes), report


def _write_page(
    path: Path,
    config: FitConfig,
    episodes: "Episodes",
    reward: "RewardFunction",
    fit: "FitReport",
    labels: "LabelReport",
) -> None:
    """How the fit went, and what the reward says of the episode with the highest true return."""
    from preferl.configs import to_json
    from preferl.evaluation.report import Fact, Report, Section, write_report
    from preferl.evaluation.summary import accuracy_figure, reward_figure
    from preferl.runs import versions

    clips, source = config.demonstrations is None, getattr(config.demonstrations, "name", "")
    best = int(episodes.returns.argmax())
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
            f"The learned reward of each step of {'a clip' if clips else 'an episode'} beside the "
            "true one.",
            f"{'Clip' if clips else 'Episode'} {best}, the one with the highest true return; the "
            "band is the range of the members.",
        ),
    )
    named = config.project or config.store if config.labels is None else config.labels.name
    told = f"{len(episodes)} clips" if clips else f"{len(episodes)} episodes of {source}"
    facts = (
        Fact("Left-out accuracy", *_left_out_fact(fit)),
        Fact("Answers", f"{fit.pairs:,}", f"{labels.ties} equal, {labels.dropped} dropped"),
        Fact("Members", f"{fit.members}", f"{fit.seconds:.1f} s of fitting"),
    )
    page = Report(
        f"A reward from {named}",
        lead=f"Fitted to {fit.pairs:,} answers about {told}. Left-out accuracy is the share of "
        "decided answers, not learned from, that it predicts.",
        facts=facts,
        sections=(Section("The fit", figures=figures),),
        details={"Settings": to_json(config), "Versions": versions()},
    )
    write_report(path, page)


def run_evaluate(config: EvaluateConfig) -> None:
    """Judge, print a table, write the numbers where they were asked for."""
    from rich.console import Console

    from preferl.cli.reward_labels import read
    from preferl.evaluation import evaluate_reward
    from preferl.files import write_json
    from preferl.training import load_reward

    console = Console()
    reward = load_reward(config.run / "reward")
    episodes, comparisons, labels = read(config.demonstrations, config.labels, config)
    report = evaluate_reward(reward, comparisons, episodes=episodes)
    _say_labels(console, labels)
    _print_report(console, report.to_json())
    if config.json is not None:
        write_json(config.json, report.to_json() | {"labels": labels.to_json()})
        console.print(f"Numbers: {config.json}")


def _say_labels(console: Any, labels: "LabelReport") -> None:
    text = (
        f"{labels.pairs:,} labelled pairs of {labels.length} steps: {labels.first} first, "
        f"{labels.second} second, {labels.ties} equal."
    )
    if labels.crossing:
        fate = "dropped" if labels.dropped else "kept"
        text += f" {labels.crossing} of them run across an episode's end ({fate})."
    console.print(text, highlight=False)


def _print_report(console: Any, report: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title="Reward on these labels", show_header=False)
    low, high = report["interval"]
    rows = {
        "accuracy on decided answers": _percent(report["accuracy"]),
        "95 % interval": f"{low:.1%} to {high:.1%}",
        "decided answers": f"{report['decided']:,}",
        "equal answers": f"{report['ties']:,}",
        "log loss (chance 0.693)": _decimal(report["log_loss"]),
        "calibration error": _decimal(report["calibration"]["error"]),
        "noise floor of its probabilities": _percent(report["likelihood"]["noise"]),
        "scale of its logits": _decimal(report["likelihood"]["scale"]),
        "Spearman with the true reward": _decimal(report["spearman"]),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)


def _left_out(fit: "FitReport") -> str:
    """The accuracy on answers left out, how many they are, and how sure that is."""
    if fit.left_out_accuracy is None or fit.left_out_interval is None:
        return "none"
    low, high = fit.left_out_interval
    return f"{fit.left_out_accuracy:.0%} of {fit.judged:,} (95 % interval {low:.0%} to {high:.0%})"


def _left_out_fact(fit: "FitReport") -> tuple[str, str]:
    if fit.left_out_accuracy is None or fit.left_out_interval is None:
        return "–", "no answers were left out"
    low, high = fit.left_out_interval
    return (
        f"{fit.left_out_accuracy:.0%}",
        f"of {fit.judged:,} left out: between {low:.0%} and {high:.0%}",
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
