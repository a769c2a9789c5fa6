"""`preferl annotate report`: how far labels are, how people agree, and whom to look at."""

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import tyro

from preferl.cli.labels import StoreConfig, opened
from preferl.errors import ConfigError

if TYPE_CHECKING:
    from preferl.store.schema import Project
    from preferl.store.store import Store


@dataclass(frozen=True)
class LabelReportConfig:
    """See how far labels are, how people agree, and whose answers somebody should look at.

    For example
      preferl annotate report
      preferl annotate report --out report.html

    Attributes:
        labels: where they are.
        out: also write an HTML page or a JSON file, by the end of its name.
        seed: of the resamples behind intervals.
    """

    labels: Annotated[StoreConfig, tyro.conf.arg(name="")] = field(default_factory=StoreConfig)
    out: Path | None = None
    seed: int = 0


ANSWERS: Final = MappingProxyType(
    {
        "first": "of these, for the first clip",
        "second": "for the second",
        "equal": "equal",
        "cannot tell": "cannot tell",
    }
)
"""Kinds of answers in words; which clip is the first has nothing to do with the side it was on."""


MOST: Final = 8
"""Letters of a name that stay on one line of a narrow terminal."""


class Grid(NamedTuple):
    """A table of formatted text."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def run_label_report(config: LabelReportConfig) -> None:
    """Print tables, and write a file where one is wanted.

    Raises:
        ConfigError: a file of another kind.
        StorageError: there is no store, or the file cannot be written.
    """
    from rich.console import Console
    from rich.text import Text

    ending = None if config.out is None else config.out.suffix.lower()
    if ending not in (None, ".html", ".json"):
        raise ConfigError.mismatch("out", expected="a name ending in .html or .json", got=ending)
    with opened(config.labels) as (store, project):
        numbers = label_numbers(store, project, config.seed)
    console = Console()
    about = numbers["project"]
    console.print(Text(f"{about['title']}: {about['question']}"), soft_wrap=True)
    grids = (_progress(numbers), _agreement(numbers), _people(numbers))
    for grid in grids:
        console.print(_rich(grid))
    for line in _remarks(numbers):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if config.out is None:
        return
    if ending == ".json":
        from preferl.files import write_json

        write_json(config.out, numbers)
    else:
        _write_page(config.out, numbers, grids)
    console.print(f"Written: {config.out}", highlight=False, soft_wrap=True)


def label_numbers(store: "Store", project: "Project", seed: int) -> dict[str, Any]:
    """All that the report says, as plain numbers."""
    import numpy as np

    from preferl.configs import plain
    from preferl.store.annotators import annotator_report
    from preferl.store.votes import agreement_report

    votes = store.questions.votes(project.id)
    kinds = {"first": 1.0, "second": 0.0, "equal": 0.5}
    asked = votes[np.isnan(votes.known) & (votes.repeat_of < 0)]
    answers = {name: int((asked.preference == value).sum()) for name, value in kinds.items()}
    answers["cannot tell"] = int(np.isnan(asked.preference).sum())
    return plain(
        {
            "project": {"slug": project.slug, "title": project.title, "question": project.question},
            "progress": store.progress(project.id),
            "answers": answers,
            "checks": len(votes) - len(asked),
            "agreement": agreement_report(votes, np.random.default_rng(seed)),
            "people": annotator_report(votes).rows(),
            "rewards": [
                {name: getattr(reward, name) for name in ("version", "accuracy", "low", "high")}
                | {"answers": reward.answers}
                for reward in store.live.rewards(project.id)
            ],
        }
    )


def _progress(numbers: dict[str, Any]) -> Grid:
    told, answers = numbers["progress"], numbers["answers"]
    rows = [
        ("answers", f"{told['answered']:,} of {told['wanted']:,} wanted"),
        *((ANSWERS[name], f"{count:,}") for name, count in answers.items()),
        ("besides, about known pairs and repeats", f"{numbers['checks']:,}"),
        ("pairs that need answers", f"{told['open']:,}"),
        ("pairs to be drawn", f"{told['pairs_undrawn']:,}"),
        ("clips that cannot be drawn", f"{told['clips_failed']:,}"),
        ("people at work", f"{told['people_active']:,}"),
    ]
    return Grid("How far it is", ("", ""), tuple(rows))


def _agreement(numbers: dict[str, Any]) -> Grid:
    told = numbers["agreement"]
    interval = "–" if told["low"] is None else f"{told['low']:.2f} to {told['high']:.2f}"
    rows = (
        ("pairs with two or more answers", f"{told['queries']:,}"),
        ("their answers agree", _percent(told["raw"])),
        ("by chance they would", _percent(told["chance"])),
        ("Krippendorff's alpha", told["note"] or f"{told['alpha']:.2f}"),
        ("95 % interval", interval),
    )
    return Grid("How people agree", ("", ""), rows)


def _people(numbers: dict[str, Any]) -> Grid:
    heads = ("name", "answers", "seconds", "equal", "left", "others", "known", "repeats")
    rows = [
        (
            str(person["name"]),
            f"{person['answers']:,}",
            "–" if person["median_ms"] is None else f"{person['median_ms'] / 1000:.1f}",
            _percent(person["tie_rate"]),
            _percent(person["left_rate"]),
            _of(person["agreement"], person["overlap"]),
            _of(person["known_accuracy"], person["known"]),
            _of(person["consistency"], person["repeats"]),
            ", ".join(person["reasons"]),
        )
        for person in numbers["people"]
    ]
    if any(row[-1] for row in rows):
        return Grid("People", (*heads, "look at"), tuple(rows))
    return Grid("People", heads, tuple(row[:-1] for row in rows))


def _remarks(numbers: dict[str, Any]) -> list[str]:
    flagged = [str(person["name"]) for person in numbers["people"] if person["flagged"]]
    lines = []
    if flagged:
        lines.append(
            f"Look at the answers of {', '.join(flagged)}: nothing was left out. A flag is a "
            "reason to talk to somebody, and of 100 careful people one or two are flagged."
        )
    if numbers["progress"]["clips_failed"]:
        lines.append("Run `preferl annotate render --once` to see why clips cannot be drawn.")
    return lines


def _rich(grid: Grid) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    named = any(grid.heads)
    table = Table(
        title=Text(grid.title),
        title_justify="left",
        show_header=named,
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    widest = max((len(row[0]) for row in grid.rows), default=0)
    for number, head in enumerate(grid.heads):
        numbers = named and number > 0 and head != "look at"
        table.add_column(
            head,
            justify="right" if numbers else "left",
            overflow="fold",
            min_width=len(head) if number else min(widest, MOST),
        )
    for row in grid.rows:
        table.add_row(*(Text(value) for value in row))
    return table


def _write_page(path: Path, numbers: dict[str, Any], grids: tuple[Grid, ...]) -> None:
    from preferl.evaluation.report import Fact, Report, ReportTable, Section, write_report

    told, agreement = numbers["progress"], numbers["agreement"]
    raw, chance = _percent(agreement["raw"]), f"{_percent(agreement['chance'])} by chance"
    facts = (
        Fact("Answers", f"{told['answered']:,}", f"of {told['wanted']:,} wanted"),
        Fact("People", f"{len(numbers['people']):,}"),
        Fact("Agreement", raw, "no pair has two answers" if agreement["raw"] is None else chance),
    )
    tables = [ReportTable(grid.title, grid.heads, grid.rows) for grid in grids]
    sections = tuple(Section(table.caption, tables=(table,)) for table in tables)
    remarks = tuple(_remarks(numbers))
    page = Report(
        numbers["project"]["title"],
        lead=numbers["project"]["question"],
        facts=facts,
        sections=(*sections, Section("What to do", text=remarks)) if remarks else sections,
    )
    write_report(path, page)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _of(share: float | None, count: int) -> str:
    return "–" if share is None else f"{share:.0%} of {count:,}"
