"""`preferl data`: inspect experience and labels before learning from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from preferl import data
from preferl.cli.console import print_table
from preferl.cli.options import Crossing
from preferl.data import sources
from preferl.errors import ConfigError

if TYPE_CHECKING:
    from preferl.shapes import Array, Observations

Row = tuple[str, str]


@dataclass(frozen=True)
class InspectConfig:
    """Show what episodes and labels hold."""

    # A demonstrations pickle, an HDF5 file of D4RL or robomimic, stacked .npz files, columns of
    # `datasets` (Parquet, Arrow, hub:OWNER/NAME), an array folder of preferl, or the id of a Minari
    # data set.
    path: Annotated[str, tyro.conf.Positional]
    # A folder of Uni-RLHF or Preference Transformer labels for these episodes.
    labels: Path | None = None
    length: int | None = None  # Steps per labelled segment, where the label files do not state it.
    # What to do with labelled pairs that run across an episode's end. By default those of Uni-RLHF
    # are kept, and those of the Preference Transformer are an error.
    crossing: Crossing | None = None
    # Row of the table of tasks, such as hopper-medium-v2, for a D4RL file that needs one.
    task: str | None = None


def data_inspect(config: InspectConfig) -> None:
    """Print what the data are: counts, shapes, returns, and counts of labels."""
    from preferl.data.arrays import load_arrays

    place = Path(config.path)
    if (place / "about.json").is_file() and load_arrays(place)[1].get("kind") == "comparisons":
        rows = _comparison_rows(data.load_comparisons(place))
        if config.labels is not None:
            fix = "Give --labels with the episodes that they index."
            raise ConfigError.mismatch(config.path, expected="episodes", got="comparisons", fix=fix)
        print_table(f"Comparisons in {config.path}", rows)
        return
    episodes = sources.load_source(config.path, task=config.task)
    print_table(f"Episodes in {config.path}", _episode_rows(episodes))
    if config.labels is not None:
        crossing = config.crossing
        labels = sources.load_labels(
            config.labels, episodes, length=config.length, crossing=crossing
        )
        print_table(f"Labels in {config.labels}", _label_rows(labels.report))


def _episode_rows(episodes: "data.Episodes") -> list[Row]:
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


def _comparison_rows(comparisons: "data.Comparisons") -> list[Row]:
    preference, segments = comparisons.preference, comparisons.segments
    counts = {
        "first preferred": preference > 0.5,
        "second preferred": preference < 0.5,
        "ties": preference == 0.5,
        "declined": ~comparisons.answered,
    }
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
    from numpy import median

    if not len(values):
        return "none"
    return " / ".join(f"{number:,.6g}" for number in (values.min(), median(values), values.max()))
