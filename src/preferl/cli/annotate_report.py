"""`preferl annotate report`: progress, agreement, and whose answers to check."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from preferl.cli.console import echo, print_table
from preferl.cli.options import Labels, StoreConfig, opened
from preferl.configs import plain
from preferl.errors import ConfigError, require_seed
from preferl.files import write_json

if TYPE_CHECKING:
    from preferl.store import Store
    from preferl.store.schema import Project


@dataclass(frozen=True)
class LabelReportConfig:
    """Show the progress of labels, how people agree, and whose answers to check.

    For example
      preferl annotate report
      preferl annotate report --out report.html

    Attributes:
        labels: where labels are.
        out: also write an HTML page or a JSON file, by the end of its name.
        seed: of the resamples behind intervals.
    """

    labels: Labels = field(default_factory=StoreConfig)
    out: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_seed(self.seed)


Grid = tuple[str, tuple[tuple[str, ...], ...], tuple[str, ...]]
"""Title, rows and heads of a table; without heads, its rows are names and values."""


def annotate_report(config: LabelReportConfig) -> None:
    """Print tables, and write a file where one is wanted."""
    ending = None if config.out is None else config.out.suffix.lower()
    if ending not in (None, ".html", ".json"):
        raise ConfigError(f"out: expected a name ending in .html or .json, got {ending}.")
    with opened(config.labels) as (store, project):
        numbers = _numbers(store, project, config.seed)
    echo(f"{numbers['project']['title']}: {numbers['project']['question']}")
    grids = (_progress(numbers), _agreement(numbers), people_table(numbers))
    for grid in grids:
        print_table(*grid)
    for line in _remarks(numbers):
        echo(line)
    if config.out is None:
        return
    if ending == ".json":
        write_json(config.out, numbers)
    else:
        _write_page(config.out, numbers, grids)
    echo(f"Written: {config.out}")


def _numbers(store: "Store", project: "Project", seed: int) -> dict[str, Any]:
    """All that the report shows, as plain numbers."""
    from preferl.store.quality.agreement import agreement_report
    from preferl.store.quality.annotators import annotator_report

    votes = store.queries.votes(project.id)
    kinds = {"first": 1.0, "second": 0.0, "equal": 0.5}
    asked = votes[np.isnan(votes.known) & (votes.repeat_of < 0)]
    answers = {name: int((asked.preference == value).sum()) for name, value in kinds.items()}
    shown = ("version", "accuracy", "low", "high", "answers")
    rewards = store.reports.rewards(project.id)
    trust = (rewards[-1].metrics.trust if rewards else None) or {}
    people = annotator_report(votes).rows()
    return plain(
        {
            "project": {name: getattr(project, name) for name in ("slug", "title", "question")},
            "progress": store.progress(project.id),
            "answers": answers | {"cannot tell": int(np.isnan(asked.preference).sum())},
            "checks": len(votes) - len(asked),
            "known_pairs": store.queries.count_known(project.id),
            "agreement": agreement_report(votes, np.random.default_rng(seed)),
            "people": [person | {"trust": trust.get(str(person["name"]))} for person in people],
            "rewards": [{name: getattr(reward, name) for name in shown} for reward in rewards],
        }
    )


def _progress(numbers: dict[str, Any]) -> Grid:
    progress = numbers["progress"]
    answers = numbers["answers"]
    checks = "known pairs and repeats" if numbers["known_pairs"] else "repeats"
    rows = (
        ("answers", f"{progress['answered']:,} of {progress['wanted']:,} wanted"),
        # Which clip is the first has nothing to do with the side it was on.
        ("of these, for the first clip", f"{answers['first']:,}"),
        ("for the second", f"{answers['second']:,}"),
        ("equal", f"{answers['equal']:,}"),
        ("cannot tell", f"{answers['cannot tell']:,}"),
        (f"besides, about {checks}", f"{numbers['checks']:,}"),
        ("pairs that need answers", f"{progress['open']:,}"),
        ("pairs to be drawn", f"{progress['pairs_undrawn']:,}"),
        ("clips that cannot be drawn", f"{progress['clips_failed']:,}"),
        ("people active", f"{progress['people_active']:,}"),
    )
    return "Progress", rows, ()


def _agreement(numbers: dict[str, Any]) -> Grid:
    agreement = numbers["agreement"]
    low = agreement["low"]
    high = agreement["high"]
    rows = (
        ("pairs with two or more answers", f"{agreement['queries']:,}"),
        ("their answers agree", _percent(agreement["raw"])),
        ("by chance they would", _percent(agreement["chance"])),
        ("Krippendorff's alpha", agreement["note"] or f"{agreement['alpha']:.2f}"),
        ("95 % interval", "–" if low is None else f"{low:.2f} to {high:.2f}"),
    )
    return "How people agree", rows, ()


def people_table(numbers: dict[str, Any]) -> Grid:
    """How everybody answers; the last columns are there where they say something of somebody."""
    shares = ("equal", "left", "others", "known", "repeats")
    heads = ("name", "answers", "seconds", *shares, "trust", "check")
    rows = [
        (
            str(person["name"]),
            f"{person['answers']:,}",
            "–" if person["median_ms"] is None else f"{person['median_ms'] / 1000:.1f}",
            _percent(person["tie_rate"]),
            _percent(person["left_rate"]),
            _percent(person["agreement"], person["overlap"]),
            _percent(person["known_accuracy"], person["known"]),
            _percent(person["consistency"], person["repeats"]),
            _with_interval(person.get("trust")),
            ", ".join(person["reasons"]),
        )
        for person in numbers["people"]
    ]
    empty = {"trust": "–", "check": ""}
    kept = [
        column
        for column, head in enumerate(heads)
        if head not in empty or any(row[column] != empty[head] for row in rows)
    ]
    shown, *cells = (tuple(row[column] for column in kept) for row in (heads, *rows))
    return "People", tuple(cells), shown


def _with_interval(trust: dict[str, float] | None) -> str:
    """A number and how far its 95 % interval reaches to either side."""
    return "–" if trust is None else f"{trust['value']:.2f} ± {trust['high'] - trust['value']:.2f}"


def _remarks(numbers: dict[str, Any]) -> tuple[str, ...]:
    flagged = ", ".join(str(person["name"]) for person in numbers["people"] if person["flagged"])
    look = (
        f"Check the answers of {flagged}: all of them still count. A flag is a reason to talk to "
        "somebody, and of 100 careful people one or two are flagged."
    )
    draw = "Run `preferl annotate render --once` to see why clips cannot be drawn."
    return ((look,) if flagged else ()) + ((draw,) if numbers["progress"]["clips_failed"] else ())


def _write_page(path: Path, numbers: dict[str, Any], grids: tuple[Grid, ...]) -> None:
    from preferl.evaluation.report import Fact, Report, ReportTable, Section, write_report

    progress = numbers["progress"]
    agreement = numbers["agreement"]
    raw = _percent(agreement["raw"])
    chance = f"{_percent(agreement['chance'])} by chance"
    facts = (
        Fact("Answers", f"{progress['answered']:,}", f"of {progress['wanted']:,} wanted"),
        Fact("People", f"{len(numbers['people']):,}"),
        Fact("Agreement", raw, "no pair has two answers" if agreement["raw"] is None else chance),
    )
    sections = [
        Section(title, tables=(ReportTable(title, heads or ("", ""), rows),))
        for title, rows, heads in grids
    ]
    if remarks := _remarks(numbers):
        sections.append(Section("What to do", text=remarks))
    title = numbers["project"]["title"]
    lead = numbers["project"]["question"]
    write_report(path, Report(title, lead=lead, facts=facts, sections=tuple(sections)))


def _percent(share: float | None, count: int | None = None) -> str:
    text = "–" if share is None else f"{share:.0%}"
    return text if share is None or count is None else f"{text} of {count:,}"
