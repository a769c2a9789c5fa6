"""`preferl data`: look at experience and labels before learning from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from preferl.data import Comparisons, Episodes
    from preferl.data.sources import LabelReport
    from preferl.shapes import Array, Observations

Row = tuple[str, str]


@dataclass(frozen=True)
class InspectConfig:
    """What to look at."""

    path: Annotated[str, tyro.conf.Positional]
    """A demonstrations pickle, an HDF5 file of D4RL or robomimic, stacked .npz files, columns of
    `datasets` (Parquet, Arrow, hub:OWNER/NAME), an array folder of preferl, or the id of a Minari
    data set."""
    labels: Path | None = None
    """A folder of Uni-RLHF or Preference Transformer labels for these episodes."""
    length: int | None = None
    """Steps per labelled segment, where the label files do not say."""
    crossing: Literal["error", "drop", "keep"] | None = None
    """What becomes of labelled pairs that run across an episode's end. By default those of Uni-RLHF
    are kept, and those of the Preference Transformer are an error."""
    task: str | None = None
    """Row of the table of tasks, such as hopper-medium-v2, for a D4RL file that needs one."""


def run_inspect(config: InspectConfig) -> None:
    """Print what the data are: counts, shapes, returns, and what the labels say.

    Raises:
        DataError: not data that preferl reads, or labels of another data set.
    """
    from preferl.data import Episodes
    from preferl.data.sources import load_labels
    from preferl.errors import ConfigError

    found = _load(config)
    if not isinstance(found, Episodes):
        if config.labels is not None:
            fix = "Give --labels with the episodes that they index."
            raise ConfigError.mismatch(config.path, expected="episodes", got="comparisons", fix=fix)
        _print_table(f"Comparisons in {config.path}", _comparison_rows(found))
        return
    _print_table(f"Episodes in {config.path}", _episode_rows(found))
    if config.labels is not None:
        labelled = load_labels(config.labels, found, length=config.length, crossing=config.crossing)
        _print_table(f"Labels in {config.labels}", _label_rows(labelled.report))


def _load(config: InspectConfig) -> "Episodes | Comparisons":
    """Comparisons from a folder of such, episodes from whatever else."""
    from preferl.data import load_comparisons
    from preferl.data.arrays import load_arrays
    from preferl.data.sources import load_source

    place = Path(config.path)
    if (place / "about.json").is_file() and load_arrays(place)[1].get("kind") == "comparisons":
        return load_comparisons(place)
    return load_source(config.path, task=config.task)


def _episode_rows(episodes: "Episodes") -> list[Row]:
    terminated = int(episodes.terminated.sum())
    return [
        ("episodes", f"{len(episodes):,}"),
        ("steps", f"{episodes.steps:,}"),
        ("length, min / median / max", _spread(episodes.lengths)),
        *_observation_rows(episodes.observations),
        ("actions", _shape(episodes.actions)),
        ("return, min / median / max", _spread(episodes.returns)),
        ("terminated", f"{terminated:,}"),
        ("truncated", f"{len(episodes) - terminated:,}"),
        ("states", "none" if episodes.states is None else _shape(episodes.states)),
    ]


def _comparison_rows(comparisons: "Comparisons") -> list[Row]:
    preference, segments = comparisons.preference, comparisons.segments
    return [
        ("pairs", f"{len(comparisons):,}"),
        ("first preferred", _share(int((preference > 0.5).sum()), len(comparisons))),
        ("second preferred", _share(int((preference < 0.5).sum()), len(comparisons))),
        ("ties", _share(int((preference == 0.5).sum()), len(comparisons))),
        ("declined", _share(int((~comparisons.answered).sum()), len(comparisons))),
        ("segments", f"{len(segments):,} of {segments.length} steps"),
        ("steps", f"{segments.steps:,}"),
        *_observation_rows(segments.observations),
        ("actions", _shape(segments.actions)),
    ]


def _label_rows(report: "LabelReport") -> list[Row]:
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
    from numpy import median

    if not len(values):
        return "none"
    return " / ".join(f"{number:,.6g}" for number in (values.min(), median(values), values.max()))


def _print_table(title: str, rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", show_header=False)
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    Console().print(table)
