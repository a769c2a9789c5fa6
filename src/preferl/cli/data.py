"""`preferl data`: inspect experience and labels, have a teacher answer, record a data set."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from preferl import data, evaluation, online
from preferl.cli.console import ProgressLine, echo, print_table, require_done
from preferl.cli.options import (
    LENGTH,
    QUERIES,
    Crossing,
    ReportTo,
    Trust,
    import_trusted,
    named_teacher,
    require_rewards,
)
from preferl.cli.parsing import FLAT, POSITIONAL, Mark, options_of, require_name
from preferl.configs import from_json
from preferl.data import sources
from preferl.data.sources.lerobot import holds_lerobot
from preferl.errors import ConfigError, require_in, require_seed
from preferl.online.configs import DatasetConfig
from preferl.presets import load_preset, preset_names
from preferl.reading import read_object, reading
from preferl.reporting import PLACES_BY_DEFAULT
from preferl.trust import typed

if TYPE_CHECKING:
    from preferl.shapes import Array, Observations


Row = tuple[str, str]

data_label_start = import_trusted


@dataclass(frozen=True)
class InspectConfig:
    """Show what episodes and labels contain.

    Attributes:
        path: a demonstrations pickle, an HDF5 file of D4RL or robomimic, stacked .npz files,
            columns of `datasets` (Parquet, Arrow, hub:OWNER/NAME), an array folder of preferl, the
            id of a Minari data set, or a LeRobot data set (a folder or hub:OWNER/NAME, and perhaps
            the features to observe, as in robot:observation.state,observation.images.top).
        labels: a folder of Uni-RLHF or Preference Transformer labels for these episodes.
        length: steps per labelled segment, where the label files do not state it.
        crossing: what to do with labelled pairs that run across an episode's end. By default, those
            of Uni-RLHF are kept, and those of the Preference Transformer are an error.
        task: row of the table of tasks, such as hopper-medium-v2, for a D4RL file that needs one.
    """

    path: Annotated[str, POSITIONAL]
    labels: Path | None = None
    length: int | None = None
    crossing: Crossing | None = None
    task: str | None = None


@dataclass(frozen=True)
class LabelConfig:
    """Have a scripted teacher answer queries about recorded episodes, and write its answers.

    For example
      preferl data label runs/data/episodes --queries 1000 --length 25 --out runs/answers
      preferl data label hopper.hdf5 --teacher "{kind: mistake, rate: 0.2}" --lists 4

    Attributes:
        path: the episodes, see `preferl data inspect`.
        out: folder of the answers; older answers there are replaced.
        teacher: who answers, by the recorded rewards: a name such as oracle or mistake, or settings
            as in a file. For example, "{kind: scripted, temperature: 0, equal_within: 5}" calls two
            returns equal if they differ by less than 5.
        queries: number of pairs of segments to ask about.
        length: steps per segment.
        lists: number of ranked lists into which segments are sorted, for example one for each 100
            queries. No random pairs are asked about then. `--implied True` of `preferl reward fit`
            and `preferl offline run` learns from all that such answers imply.
        format: "preferl" keeps the compared steps beside the answers; "pt" writes the files of the
            Preference Transformer, which have numbers of rows in these episodes.
        seed: seed of drawn segments and of the teacher. The same seed draws the same pairs of the
            same episodes.
        task: row of the table of tasks, for a D4RL file that needs one.
        trust: module of yours that registers a teacher.
    """

    path: Annotated[str, POSITIONAL]
    out: Path = Path("runs/answers")
    teacher: str = "oracle"
    queries: int = QUERIES
    length: int = LENGTH
    lists: int | None = None
    format: Literal["preferl", "pt"] = "preferl"
    seed: int = 0
    task: str | None = None
    trust: Trust = ()


def data_label(config: LabelConfig) -> None:
    """Draw queries, have a teacher answer them, write the answers and print counts."""
    from preferl.feedback.instant import sample_comparisons
    from preferl.feedback.ranked_lists import sample_ranked

    require_seed(config.seed)
    require_in("queries", config.queries, 1, float("inf"))
    teacher = named_teacher(config.teacher)
    episodes = sources.load_source(config.path, task=config.task)
    require_rewards(episodes.rewards)
    rng = np.random.default_rng([config.seed, 0x1ABE1])
    if config.lists is None:
        answers = sample_comparisons(episodes, config.queries, config.length, teacher, rng)
    else:
        answers = sample_ranked(
            episodes, config.queries, config.length, teacher, rng, lists=config.lists
        )
    if config.format == "pt":
        sources.save_pt_labels(config.out, sources.label_rows(answers, episodes))
    else:
        data.save_comparisons(config.out, answers)
    print_table(f"Answers in {config.out}", _comparison_rows(answers))
    if config.format == "preferl":
        echo(f"Another --seed than {config.seed} draws other pairs, to evaluate the reward on.")
        implied = "" if config.lists is None else " --implied True"
        folder = shlex.quote(f"{config.out}")
        echo(f"Fit a reward to them: preferl reward fit --comparisons {folder}{implied}")


def data_inspect(config: InspectConfig) -> None:
    """Print what the data contain: counts, shapes, returns, and counts of labels."""
    from preferl.data.arrays import load_arrays

    place = Path(config.path)
    if (place / "about.json").is_file() and load_arrays(place)[1].get("kind") == "comparisons":
        rows = _comparison_rows(data.load_comparisons(place))
        if config.labels is not None:
            raise ConfigError(
                f"{config.path}: expected episodes, got comparisons. Give --labels with the "
                "episodes that they index."
            )
        print_table(f"Comparisons in {config.path}", rows)
        return
    episodes = sources.load_source(config.path, task=config.task)
    print_table(f"Episodes in {config.path}", _episode_rows(episodes))
    if holds_lerobot(config.path):
        folder = sources.open_lerobot(config.path)
        print_table("As a data set of LeRobot", _lerobot_rows(folder))
    if config.labels is not None:
        crossing = config.crossing
        labels = sources.load_labels(
            config.labels, episodes, length=config.length, crossing=crossing
        )
        print_table(f"Labels in {config.labels}", _label_rows(labels.report))


def _episode_rows(episodes: "data.Episodes") -> list[Row]:
    terminated = int(episodes.terminated.sum())
    succeeded = episodes.succeeded
    return [
        ("episodes", f"{len(episodes):,}"),
        ("steps", f"{episodes.steps:,}"),
        ("length, min / median / max", _spread(episodes.lengths)),
        *_observation_rows(episodes.observations),
        ("actions", _shape(episodes.actions)),
        ("return, min / median / max", _spread(episodes.returns)),
        ("terminated", f"{terminated:,}"),
        ("truncated", f"{len(episodes) - terminated:,}"),
        *([] if succeeded is None else [("success", _share(int(succeeded.sum()), len(succeeded)))]),
        ("states", "none" if episodes.states is None else _shape(episodes.states)),
    ]


def _lerobot_rows(folder: "sources.LeRobotFolder") -> list[Row]:
    tasks = Counter(folder.tasks)
    return [
        ("frames per second", f"{folder.fps:g}"),
        *((f"task {task}", f"{count:,} episodes") for task, count in tasks.most_common(10)),
        *((f"camera {name}", f"{list(shape)}") for name, shape in folder.cameras.items()),
        ("content id", folder.content_id),
    ]


def _comparison_rows(comparisons: "data.Comparisons") -> list[Row]:
    preference = comparisons.preference
    segments = comparisons.segments
    counts = {
        "first preferred": preference > 0.5,
        "second preferred": preference < 0.5,
        "ties": preference == 0.5,
    }
    if not comparisons.answered.all():  # collected answers contain no declined ones
        counts["declined"] = ~comparisons.answered
    return [
        ("pairs", f"{len(comparisons):,}"),
        *((name, _share(int(rows.sum()), len(comparisons))) for name, rows in counts.items()),
        ("segments", f"{len(segments):,} of {segments.length} steps"),
        ("steps", f"{segments.steps:,}"),
        *_observation_rows(segments.observations),
        ("actions", _shape(segments.actions)),
    ]


def _label_rows(report: "sources.LabelReport") -> list[Row]:
    return [
        ("pairs", f"{report.pairs:,}"),
        ("first preferred", _share(report.first, report.pairs)),
        ("second preferred", _share(report.second, report.pairs)),
        ("ties", _share(report.ties, report.pairs)),
        ("across an episode's end", _share(report.crossing, report.pairs)),
        ("left out", _share(report.dropped, report.pairs)),
        ("steps per segment", f"{report.length}"),
    ]


def _observation_rows(observations: "Observations") -> list[Row]:
    if isinstance(observations, dict):
        return [(f"observations, {key}", _shape(array)) for key, array in observations.items()]
    return [("observations", _shape(observations))]


def _shape(array: "Array") -> str:
    return f"{array.dtype} {list(array.shape[1:])}"


def _share(count: int, total: int) -> str:
    return f"{count:,}" + (f" ({count / total:.1%})" if total else "")


def _spread(values: "Array") -> str:
    return " / ".join(
        f"{number:,.6g}" for number in (values.min(), np.median(values), values.max())
    )


@dataclass(frozen=True)
class DataRecordConfig:
    """Train or load a policy, and record a data set of mixed quality.

    Attributes:
        run: what to record.
        out: folder of the data set; an older one there is moved away, unless it is resumed.
        minari: id of a Minari data set to write as well, such as mine/cheetah/mixed-v0.
        report_to: where metrics go: jsonl, tensorboard, wandb.
        resume: continue the interrupted recording in `out`.
        preset: settings to start from: halfcheetah, hopper, walker-walk, button-press-topdown,
            sweep-into or handle-pull-side. Other options change them.
        seeds: seeds, between commas. Each has a recording, and all are joined. By default the one
            in `seed`.
        processes: recordings at a time; by default one for each processor core.
        trust: module of yours that registers an algorithm or the environment; may be given several
            times.
    """

    run: Annotated[DatasetConfig, FLAT]
    out: Path = Path("runs/data")
    minari: str | None = None
    report_to: ReportTo = PLACES_BY_DEFAULT
    resume: bool = False
    preset: str | None = None
    seeds: Annotated[tuple[int, ...], Mark("N,N,...", commas=True)] = ()
    processes: int | None = None
    trust: Trust = ()


def data_record_start(arguments: Sequence[str]) -> DataRecordConfig | None:
    """Return the config that `--preset` names; the other options change it."""
    import_trusted(arguments)
    preset = next(reversed(options_of(arguments, "--preset")), None)
    if preset is None:
        return None
    require_name(preset, preset_names("data"), "preset")
    settings = from_json(DatasetConfig, load_preset(preset, "data"))
    return DataRecordConfig(settings, preset=preset)


def data_record(config: DataRecordConfig) -> None:
    """Record a data set. Print the returns of each tier, and where the data set is."""
    from preferl.online.dataset import record_seeds  # loads torch

    typed(*config.run.modules, trust=config.trust)
    line = ProgressLine()
    with line.running():
        if config.seeds:
            result = record_seeds(
                config.run,
                config.out,
                seeds=config.seeds,
                processes=config.processes,
                minari=config.minari,
                report_to=config.report_to,
                resume=config.resume,
                on_progress=line,
            )
        else:
            result = online.record_dataset(
                config.run,
                config.out,
                policy=_offline_policy(config.run),
                minari=config.minari,
                report_to=config.report_to,
                resume=config.resume,
                on_progress=line,
            )
    require_done(result, config.out)
    _print_tiers(result)
    also = f" · Minari: {result['minari']}" if result["minari"] else ""
    echo(f"Episodes: {config.out / 'episodes'}{also} ({result['seconds']:.0f} s).")
    echo(f"Whoever has the id {result['id']} has the same data.")


def _print_tiers(result: dict[str, Any]) -> None:
    rows = [
        (
            f"{tier['name']}, seed {tier['seed']}" if "seed" in tier else tier["name"],
            f"{tier['episodes']:,}",
            f"{tier['steps']:,}",
            f"{tier['return']['mean']:,.1f} ± {tier['return']['std']:,.1f}",
            f"{tier['return']['min']:,.1f}",
            f"{tier['return']['max']:,.1f}",
            "–" if tier["success"] is None else f"{tier['success']:.0%}",
        )
        for tier in result["tiers"]
    ]
    heads = ("tier", "episodes", "steps", "return", "lowest", "highest", "success")
    print_table(f"Recorded in {result['env']}", rows, heads)


def _offline_policy(config: DatasetConfig) -> "evaluation.Policy | None":
    """Read the policy of an offline run; return None for others, which are read when they act."""
    from preferl.offline.decision_transformer.policy import load_offline_policy

    if config.policy is None or not (about := config.policy / "policy.json").is_file():
        return None
    with reading(about, expected="a file that names the policy's learner"):
        if "learner" not in read_object(about):
            return None
    return load_offline_policy(config.policy, seed=config.seed)
