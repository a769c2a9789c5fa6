"""Compare runs on one page: scores, curves, rewards, and the settings that differ."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from preferl.errors import ConfigError
from preferl.evaluation.plots import (
    Curve,
    accuracy_bars,
    condition_scores,
    episode_returns,
    learning_curves,
)
from preferl.evaluation.report import (
    MISSING,
    Figure,
    Report,
    ReportTable,
    Section,
    decimal,
    number,
    percent,
    percent_range,
)
from preferl.runs.records import NOT_SETTINGS, RunRecord
from preferl.runs.summary import Estimate, RunSummary

RunsByName = Mapping[str, RunRecord]

SUBJECT: Final = "environment or data"

REWARD: Final = {
    "log_loss": "log loss",
    "calibration": "calibration error",
    "spearman": "Spearman",
    "epic": "EPIC",
}


LONGEST_NAME: Final = 24
"""Letters of a name that fit beside a drawing of half the page's width."""


def short_names(records: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """Name runs by the shortest ends of their paths that differ.

    Raises:
        ConfigError: there are fewer than two runs, or one of them twice.
    """
    paths = [record.path.resolve() for record in records]
    if not (len(paths) > 1 and len(set(paths)) == len(paths)):
        raise ConfigError(
            f"runs to compare: expected two or more folders, got {_listed(map(str, paths))}."
        )
    for count in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(Path(*path.parts[-count:])) for path in paths]
        if len(set(names)) == len(names):
            break
    return dict(zip(names, records, strict=True))


def differing(values: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return the settings whose values differ between runs, with each run's value as text.

    A setting that some runs lack is listed only if its values differ among the others: the runs
    that lack it have, for example, another algorithm, whose name is listed already.

    >>> differing({"a": {"steps": 10, "seed": 0}, "b": {"steps": 20, "seed": 0, "target": 3}})
    {'steps': ('10', '20')}
    """
    names = dict.fromkeys(chain.from_iterable(values.values()))
    several = (
        n
        for n in names
        if len({_text(settings[n]) for settings in values.values() if n in settings}) > 1
    )
    return {
        name: tuple(_text(settings.get(name)) for settings in values.values()) for name in several
    }


def differing_settings(runs: RunsByName) -> dict[str, tuple[str, ...]]:
    """Return the settings that differ between runs, except the paths of their folders."""
    rows = differing({name: run.settings for name, run in runs.items()})
    return {name: row for name, row in rows.items() if name not in NOT_SETTINGS}


def cautions(runs: RunsByName) -> list[str]:
    """List reasons why scores of runs may differ by more than their settings."""
    cautions = []
    scored = {name: run.summary for name, run in runs.items() if run.summary.score is not None}
    subjects = list(dict.fromkeys(f"{run.subject} ({run.unit})" for run in scored.values()))
    if len(subjects) > 1:
        cautions.append(
            f"Scores compare only within one environment and unit: {_listed(subjects)}."
        )
    for state in ("running", "interrupted", "failed"):
        names = [name for name, run in runs.items() if run.state == state]
        if names:
            words = "so far" if state == "running" else "until then"
            cautions.append(f"{state.capitalize()}: {_listed(names)}. These numbers are {words}.")
    single = [name for name, run in scored.items() if run.score and run.score.of == "episodes"]
    if single:
        cautions.append(
            f"One agent each: {_listed(single)}. The interval of its score is over episodes; how "
            "much another seed would change it is not known."
        )
    return cautions


def comparison_report(runs: RunsByName) -> Report:
    """Return the page about runs by name, ready for `preferl.evaluation.report.write_report`.

    If a name is too long for a legend, tables and drawings call the runs by numbers.
    """
    lead = f"{_listed(runs)}."
    numbered = {f"run {n}": run for n, run in enumerate(runs.values(), 1)}
    names = tuple(zip(numbered, runs, strict=True))
    names_section = Section("Runs", tables=(ReportTable("Names of the runs", ("", ""), names),))
    is_short = max(map(len, runs)) <= LONGEST_NAME
    runs = runs if is_short else numbered
    settings = differing_settings(runs)
    versions = differing({name: _packages(run.versions) for name, run in runs.items()})
    sections = (
        *(() if is_short else (names_section,)),
        _scores(runs),
        _curves(runs),
        _rewards(runs),
        _policies(runs),
        Section(
            "Settings that differ",
            () if settings else ("All settings are the same.",),
            tables=(_table("Settings", runs, settings),),
        ),
        Section("Versions that differ", tables=(_table("Versions", runs, versions),)),
    )
    return Report(
        f"{len(runs)} runs side by side",
        lead=lead if is_short else "",
        sections=sections,
        details={f"All settings of {name}": run.settings for name, run in runs.items()},
    )


def interval_text(estimate: Estimate | None, form: Callable[[float], str] = number) -> str:
    """Return the ends of an interval in words, or `MISSING`."""
    if estimate is None or estimate.interval is None:
        return MISSING
    low, high = estimate.interval
    return percent_range((low, high)) if form is percent else f"{form(low)} to {form(high)}"


def count_text(value: float | None) -> str:
    """Return a count as text, or `MISSING`."""
    return MISSING if value is None else f"{value:,.0f}"


def _scores(runs: RunsByName) -> Section:
    cells: dict[str, Callable[[RunRecord], str]] = {
        "score": lambda run: number(run.summary.score.mean) if run.summary.score else MISSING,
        "95 % interval": lambda run: interval_text(run.summary.score),
        "of": lambda run: _count(run.summary.score),
        "answers": lambda run: count_text(run.summary.answers),
        "steps": lambda run: count_text(run.summary.steps),
        "state": lambda run: run.state,
        SUBJECT: lambda run: run.summary.subject,
    }
    table = ReportTable.of("By the true reward", "run", runs, cells)
    return Section("Scores", tuple(cautions(runs)), (table,), figures=tuple(_dots(runs)))


def _policies(runs: RunsByName) -> Section:
    """Return a section with the scores of the policies that each run evaluated as comparisons."""
    rows = tuple(
        (name, policy, number(score.mean), interval_text(score))
        for name, run in runs.items()
        for policy, score in run.summary.beside.items()
    )
    title = "Policies beside them"
    heads = ("run", "policy", "score", "95 % interval")
    return Section(title, tables=(ReportTable(title, heads, rows),))


def _dots(runs: RunsByName) -> Iterable[Figure]:
    """Yield a drawing for each environment and unit: the episodes, or the seeds, of each score."""
    groups: dict[tuple[str, str, str], dict[str, Any]] = defaultdict(dict)
    for name, run in runs.items():
        score = run.summary.score
        if score is not None and score.values:
            group = (run.summary.subject, run.summary.unit, score.of)
            groups[group][name] = np.array(score.values)
    for (subject, unit, sample), values in groups.items():
        best = max(values, key=lambda name: float(values[name].mean()))
        means = ", ".join(f"{name} {number(float(row.mean()))}" for name, row in values.items())
        if sample == "episodes":
            drawing = episode_returns(values, emphasis=best)
            dots = "an episode; the upright mark is the mean, the bar its 95 % interval"
        else:
            drawing = condition_scores(values, emphasis=best, x_label=unit)
            dots = "a seed; the upright mark is the mean, the bar the range"
        caption = f"{unit.capitalize()} in {subject}. Each dot is {dots}. The highest mean is blue."
        yield Figure(drawing, f"{unit.capitalize()} in {subject}. Means: {means}.", caption)


def _curves(runs: RunsByName) -> Section:
    """Draw each metric that two or more runs have, with a line for each run."""
    groups: dict[tuple[str, str, str], list[Curve]] = defaultdict(list)
    for name, run in runs.items():
        for curve in run.curves:
            line = Curve(name, curve.steps, curve.values, curve.interval)
            groups[curve.title, curve.unit, curve.x_unit].append(line)
    figures = []
    for (title, unit, x_unit), lines in groups.items():
        if len(lines) < 2:  # the run's own report shows it
            continue
        last_values = {line.label: np.atleast_2d(line.values)[:, -1].mean() for line in lines}
        last_text = ", ".join(f"{name} {number(float(end))}" for name, end in last_values.items())
        chart = learning_curves(lines, x_label=x_unit, y_label=unit)
        caption = f"{title}."
        if any(len(np.atleast_2d(line.values)) > 1 for line in lines):
            caption += " Thin lines are seeds, the others their means."
        if any(line.interval is not None for line in lines):
            caption += " Bands are 95 % intervals: over seeds, or of one agent over its episodes."
        figures.append(Figure(chart, f"{title}, over {x_unit}. Last: {last_text}.", caption))
    return Section("Curves", figures=tuple(figures))


def _rewards(runs: RunsByName) -> Section:
    summaries = {name: run.summary for name, run in runs.items()}
    evaluated = {name: run for name, run in summaries.items() if run.accuracy or run.reward}
    if not evaluated:
        return Section("Rewards")
    cells: dict[str, Callable[[RunSummary], str]] = {
        "accuracy": lambda run: percent(run.accuracy.mean if run.accuracy else None, 1),
        "95 % interval": lambda run: interval_text(run.accuracy, percent),
        "answers": lambda run: count_text(run.accuracy.count or None if run.accuracy else None),
    }
    for metric, head in REWARD.items():
        if any(metric in run.reward for run in evaluated.values()):
            cells[head] = lambda run, metric=metric: decimal(run.reward.get(metric))  # type: ignore[misc]
    shares = {
        name: (run.accuracy.mean, run.accuracy.interval)
        for name, run in evaluated.items()
        if run.accuracy is not None and run.accuracy.interval is not None
    }
    accuracies = ", ".join(f"{name} {percent(share)}" for name, (share, _) in shares.items())
    caption = "Answers on the side the reward expects, with 95 % intervals; chance is dashed."
    alt = f"Accuracy: {accuracies}."
    figures = [Figure(accuracy_bars(shares, alone=True), alt, caption, half=True)] if shares else []
    text = (
        "Each accuracy is on the run's own answers, which its reward was not fitted to; runs that "
        "were asked different queries differ by these, too."
    )
    table = ReportTable.of("Rewards of the runs", "run", evaluated, cells)
    return Section("Rewards", (text,), (table,), figures=tuple(figures))


def _table(caption: str, runs: RunsByName, rows: Mapping[str, tuple[str, ...]]) -> ReportTable:
    cells = tuple((name, *row) for name, row in rows.items())
    return ReportTable(f"{caption}, by run", (caption.lower()[:-1], *runs), cells)


def _count(score: Estimate | None) -> str:
    return MISSING if score is None else f"{score.count} {score.of}"


def _packages(versions: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the versions of a run to values by name."""
    flat = {name: value for name, value in versions.items() if not isinstance(value, Mapping)}
    packages = versions.get("packages") or {}
    git = versions.get("git") or {}
    return flat | dict(packages) | {"git": str(git.get("revision", MISSING))[:10]}


def _text(value: Any) -> str:
    """Return a setting as the text of a cell; `MISSING` if it is None or missing."""
    if value is None:
        return MISSING
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
