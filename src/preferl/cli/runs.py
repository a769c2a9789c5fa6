"""`preferl runs`: find runs, look at one, and compare several. No run is changed."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from preferl.cli.console import cell, columns_that_fit, complain, echo, print_table
from preferl.cli.parsing import POSITIONAL
from preferl.configs import changed
from preferl.errors import ConfigError
from preferl.printing import one_line
from preferl.registry import imported
from preferl.runs import RunRecord, find_runs, read_run
from preferl.runs.folder import flat_settings
from preferl.runs.records import CONTENTS, NOT_SETTINGS

if TYPE_CHECKING:
    from preferl.runs.summary import Estimate, Finding

CONFIGS: Final = {
    "OnlineConfig": "preferl.online.configs",
    "OfflineRun": "preferl.offline.experiment.config",
    "FitConfig": "preferl.cli.reward",
    "DatasetConfig": "preferl.online.configs",
    "DatasetSeeds": "preferl.online.dataset",
}
"""The module that defines each dataclass of settings; the defaults are read from there."""

LIST_COLUMNS: Final = {
    "run": 0, "kind": 4, "state": 0, "environment or data": 2, "began": 6, "took": 7,
    "steps": 5, "answers": 5, "score": 1, "95 % interval": 3, "accuracy": 1,
}  # fmt: skip
"""Columns of the list. Narrow terminals leave out columns, those with high numbers first."""


@dataclass(frozen=True)
class RunsListConfig:
    """List the runs in a folder and below it: their state, their length, and their scores.

    Attributes:
        folder: where to look.
        json: print JSON, for scripts.
    """

    folder: Annotated[Path, POSITIONAL] = Path("runs")
    json: bool = False


@dataclass(frozen=True)
class RunsShowConfig:
    """Show a run: its results, the settings that differ from the defaults, versions and files.

    Attributes:
        run: folder of the run.
        json: print JSON, for scripts.
    """

    run: Annotated[Path, POSITIONAL]
    json: bool = False


@dataclass(frozen=True)
class RunsCompareConfig:
    """Compare runs: a table here, and an HTML page with curves, intervals and settings.

    Attributes:
        runs: folders of two runs or more, or a folder that holds several, such as a sweep's.
        out: file of the HTML page; an older file there is replaced.
        json: print JSON, for scripts; the HTML page is written as well.
    """

    runs: Annotated[tuple[Path, ...], POSITIONAL]
    out: Path = Path("runs/comparison.html")
    json: bool = False


def runs_list(config: RunsListConfig) -> None:
    """Print the runs, oldest first; list folders that are damaged or hold no run on stderr."""
    records, skipped = find_runs(config.folder)
    if config.json:
        _print_json([record.to_json() for record in records])
    elif not records:
        echo(f"There are no runs in {config.folder}. `preferl demo` makes one.")
    else:
        names = [one_line(str(run.path.relative_to(config.folder))) for run in records]
        rows = [_row(name, run) for name, run in zip(names, records, strict=True)]
        heads = columns_that_fit(rows, LIST_COLUMNS)
        print_table(f"Runs in {config.folder}", [[row[h] for h in heads] for row in rows], heads)
        if len(heads) < len(LIST_COLUMNS):
            echo("A wider terminal shows more columns, and --json shows all.")
    for words in skipped:
        complain(f"preferl: skipped {words}")


def runs_show(config: RunsShowConfig) -> None:
    """Print the state, results and settings of a run, and where its files lie."""
    record = read_run(config.run)
    differs = changed_settings(record)
    if config.json:
        _print_json(record.to_json() | {"changed": differs})
        return
    print_table(f"{one_line(str(config.run))}", _facts(record))
    findings = record.summary.findings
    if findings:
        rows = [(finding.name, _in_words(finding)) for finding in findings]
        print_table("What to look at", rows)
    changed = {name: value for name, value in differs.items() if name not in NOT_SETTINGS}
    print_table("Settings that differ from the defaults", _cells(changed))
    versions = flat_settings(record.versions)
    version_of = {name.split(".")[-1]: version for name, version in versions.items()}
    print_table("Versions", _cells(version_of))
    places = [(words, str(record.path / name)) for name, words in CONTENTS.items()]
    print_table("Where things lie", [row for row in places if Path(row[1]).exists()])


def runs_compare(config: RunsCompareConfig) -> None:
    """Print scores and settings of runs beside each other, and write the page."""
    from preferl.evaluation import run_comparison
    from preferl.evaluation.report import write_report

    records = [record for path in config.runs for record in _runs_at(path)]
    runs = run_comparison.short_names(records)
    _require_page(config.out)
    settings = run_comparison.differing_settings(runs)
    write_report(config.out, run_comparison.comparison_report(runs))
    if config.json:
        differs = {name: dict(zip(runs, row, strict=True)) for name, row in settings.items()}
        numbers = {name: record.to_json() for name, record in runs.items()}
        extras = {"cautions": run_comparison.cautions(runs), "page": str(config.out)}
        _print_json({"runs": numbers, "differing": differs, **extras})
        return
    rows = [_row(name, run) for name, run in runs.items()]
    heads = ("run", "state", "steps", "answers", "score", "95 % interval", "accuracy")
    print_table(f"{len(runs)} runs", [[row[head] for head in heads] for row in rows], heads)
    if settings:
        cells = [(name, *row) for name, row in settings.items()]
        print_table("Settings that differ", cells, ("setting", *runs))
    for words in run_comparison.cautions(runs):
        echo(words)
    echo(f"Page: {config.out}")


def _runs_at(path: Path) -> list[RunRecord]:
    """Read the run in a folder, or all runs below a folder without one; report damaged runs."""
    if (path / "config.json").exists() or not path.is_dir():
        return [read_run(path)]
    records, skipped = find_runs(path)
    for words in skipped:
        complain(f"preferl: skipped {words}")
    return records or [read_run(path)]


def _require_page(out: Path) -> None:
    """Raise `ConfigError` if the page would change a run, or replace a file that is not a page."""
    run_files = ("config.json", "versions.json")
    is_in_run = any(
        all((folder / name).exists() for name in run_files) for folder in out.resolve().parents
    )
    if not (out.suffix == ".html" and not out.is_dir() and not is_in_run):
        raise ConfigError(
            f"--out: expected a file NAME.html outside the folders of runs, got {out}. Choose "
            "another file."
        )


def changed_settings(record: RunRecord) -> dict[str, Any]:
    """Return the settings of a run that differ from the defaults, by dotted name."""
    if record.config_class not in CONFIGS:
        return record.settings
    kind = imported(CONFIGS[record.config_class], source="preferl")
    differing = changed(getattr(kind, record.config_class), record.config)
    return {name.removeprefix("config."): value for name, value in differing.items()}


def _row(name: str, run: RunRecord) -> dict[str, str]:
    """Return the cells of a run in a table, by their heads."""
    summary = run.summary
    return {
        "run": name,
        "kind": summary.kind,
        "state": run.state,
        "environment or data": summary.subject,
        "began": datetime.fromtimestamp(run.began).astimezone().strftime("%Y-%m-%d %H:%M"),
        "took": _duration(summary.seconds),
        "steps": cell(summary.steps, ","),
        "answers": cell(summary.answers, ","),
        "score": _number(summary.score),
        "95 % interval": _interval(summary.score),
        "accuracy": _accuracy(summary.accuracy),
    }


def _facts(run: RunRecord) -> list[tuple[str, str]]:
    """Return the numbers of a run that are known, by name."""
    summary = run.summary
    score = _number(summary.score)
    if summary.score is not None:
        interval = ""
        if summary.score.interval is not None:
            interval = f", 95 % interval {_interval(summary.score)}"
        score += f" ({summary.score.count} {summary.score.of}{interval})"
    started = datetime.fromtimestamp(run.began).astimezone()
    others = summary.beside.items()
    facts = {
        "kind": summary.kind,
        "state": run.state + (f": {run.note}" if run.note else ""),
        "environment or data": summary.subject,
        "began": started.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "took": _duration(summary.seconds),
        summary.steps_of: cell(summary.steps, ","),
        "answers": cell(summary.answers, ","),
        summary.unit: score,
        **{f"{summary.unit}, {name}": _number(estimate) for name, estimate in others},
        "success": _success(summary.score),
        **{f"success, {name}": _success(estimate) for name, estimate in others},
        "accuracy of the reward": _accuracy(summary.accuracy) + _of_answers(summary.accuracy),
        **{name.replace("_", " "): f"{value:.3f}" for name, value in summary.reward.items()},
    }
    return [(name, text) for name, text in facts.items() if text != "–"]


def _in_words(finding: "Finding") -> str:
    """Return the text of a finding, and a line for each thing to try."""
    return "\n".join(map(one_line, [finding.text, *(f"- {words}" for words in finding.tries)]))


def _cells(values: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    rows = [(one_line(name), one_line(_plain(value))) for name, value in values.items()]
    return rows or [("none", "")]


def _plain(value: Any) -> str:
    """Return a setting in the form in which an option takes it."""
    if isinstance(value, list | tuple):
        return " ".join(map(_plain, value)) or "none"
    return "none" if value is None else str(value)


def _of_answers(accuracy: "Estimate | None") -> str:
    if accuracy is None or accuracy.interval is None:
        return ""
    low, high = accuracy.interval
    return f" of {accuracy.count:,} {accuracy.of}, 95 % interval {low:.0%} to {high:.0%}"


def _number(estimate: "Estimate | None") -> str:
    return cell(None if estimate is None else estimate.mean, ",.1f")


def _success(estimate: "Estimate | None") -> str:
    """Return the share of episodes that succeeded."""
    return cell(None if estimate is None else estimate.success, ".0%")


def _interval(estimate: "Estimate | None") -> str:
    if estimate is None or estimate.interval is None:
        return "–"
    low, high = estimate.interval
    return f"{low:,.1f} to {high:,.1f}"


def _accuracy(accuracy: "Estimate | None") -> str:
    return cell(None if accuracy is None else accuracy.mean, ".0%")


def _duration(seconds: float | None) -> str:
    """Return a time in its two largest units.

    >>> _duration(0.4), _duration(75), _duration(7_260)
    ('0 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"


def _print_json(value: object) -> None:
    text = json.dumps(value, indent=2, allow_nan=False)
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")
