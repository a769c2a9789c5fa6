"""`preferl sweep`: run a command with many settings, on this machine or on a Ray cluster."""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from preferl.cli.console import ProgressLine, complain, echo, interrupt, note, print_table
from preferl.cli.data import DataRecordConfig
from preferl.cli.main import command_parsed, main
from preferl.cli.offline import OfflineRunConfig
from preferl.cli.online import OnlineRunConfig, read_settings
from preferl.cli.options import Trust
from preferl.cli.parsing import POSITIONAL
from preferl.cli.reward import FitConfig
from preferl.configs import plain, without_password
from preferl.errors import PreferlError, StorageError
from preferl.files import write_json
from preferl.runs import RunFolder, RunRecord, read_run, versions
from preferl.runs.executor import Unit
from preferl.runs.lock import FolderLock
from preferl.runs.ray_cluster import LOCAL, executor_of
from preferl.runs.sweep import Sweep, over_seeds, words_of, write_results
from preferl.statistics import mean_interval
from preferl.trust import admitted, trust_options, typed

RUN: Final = "run"
"""Folder of the run, inside the folder of its unit."""

MOST_COMPARED: Final = 50  # runs on one page


@dataclass(frozen=True)
class SweepConfig:
    """Run a command with many settings, side by side; after a stop, the same command continues.

    The file names a command that makes a run, its options, and what varies
      command: online run
      options: {preset: pendulum}
      grid: {seed: [0, 1, 2], comparisons: [50, 200]}

    Attributes:
        file: a YAML or JSON file.
        out: folder of all runs; by default a folder in runs with the name of the file.
        cluster: this machine, or the address of a Ray cluster: ray://HOST:10001, HOST:6379 or auto.
        processes: runs at a time on this machine; by default one for each processor core.
        dry_run: print the commands, and do not run them.
        trust: module of yours that the file may name, or that registers something; may be given
            several times.
    """

    file: Annotated[Path, POSITIONAL]
    out: Path | None = None
    cluster: str = LOCAL
    processes: int | None = None
    dry_run: bool = False
    trust: Trust = ()


def sweep(config: SweepConfig) -> None:
    """Check all runs of a sweep, make the unfinished ones, and show all results side by side."""
    plan = Sweep.from_json(read_settings(config.file), f"{config.file}")
    commands = _commands(plan, config)
    if config.dry_run:
        for words in commands.values():
            echo(without_password(shlex.join(["preferl", *plan.command.split(), *words])))
        return
    execute = executor_of(config.cluster, config.processes)
    out = config.out or Path("runs") / config.file.stem
    if (out / "config.json").exists():
        raise StorageError(
            f"{out}: expected a folder for many runs, got the folder of one. Name another."
        )
    units = [
        Unit(name, f"{__name__}:run_command", {"command": plan.command, "words": words}, out / name)
        for name, words in commands.items()
    ]
    with FolderLock(out, "sweep.lock", "sweep"):
        description: dict[str, Any] = {
            "file": f"{config.file}",
            "command": plan.command,
            "options": plan.options,
            "runs": plan.runs,
            "versions": versions(),
        }
        write_json(out / "sweep.json", plain(description))  # without passwords
        records = {unit.name: _record(unit) for unit in units}
        keep = partial(write_results, out / "results.csv", plan, records)
        failed = _do(units, execute, records, keep, config)
        records |= {unit.name: _record(unit) for unit in units if unit.name in failed}
        keep()
    _print_results(out, plan, records, failed)


def _commands(plan: Sweep, config: SweepConfig) -> dict[str, list[str]]:
    """Return the words of each run's command, by the run's name, after parsing all of them."""
    typed(trust=config.trust)
    trusted = trust_options(config.trust)
    commands = {name: [*words_of(options), *trusted] for name, options in plan.by_name().items()}
    for name, words in commands.items():
        try:
            parsed = command_parsed(plan.command, words)
            for module_name in _modules(parsed):
                admitted(module_name, source=f"{config.file}", trust=config.trust)
        except PreferlError as error:
            raise type(error)(f"run {name} of {config.file}: {error}") from error
    return commands


def _modules(
    parsed: OnlineRunConfig | OfflineRunConfig | DataRecordConfig | FitConfig,
) -> tuple[str, ...]:
    """Return the names in a config for which its command imports a module."""
    return () if isinstance(parsed, FitConfig) else parsed.run.modules


def run_command(settings: Mapping[str, Any], folder: Path) -> None:
    """Run a unit: its command begins or resumes the run in the folder."""
    run = folder / RUN
    is_begun = (run / "config.json").is_file()
    if is_begun and RunFolder(run).finished:
        return
    resume = ["--resume"] if is_begun else []
    try:
        main([*settings["command"].split(), *settings["words"], "--out", f"{run}", *resume])
    except SystemExit as end:
        if end.code:
            raise


def _do(
    units: Sequence[Unit],
    execute: Any,
    records: dict[str, RunRecord | None],
    keep: Callable[[], None],
    config: SweepConfig,
) -> dict[str, str]:
    """Run the units of a sweep with a live line, keep their records, and return the failed ones."""
    location = "here" if config.cluster == LOCAL else f"on {config.cluster}"
    note(f"{len(units)} runs of {config.file} {location}. After Ctrl-C the same command goes on.")
    line = ProgressLine("running")
    started_at = time.perf_counter()
    finished_count = 0

    def show(unit: Unit, _: object) -> None:
        nonlocal finished_count
        finished_count += 1
        line("running", finished_count, len(units), unit.name)
        records[unit.name] = _record(unit)
        score = _score(records[unit.name])
        seconds = time.perf_counter() - started_at
        line.note(f"{finished_count:>4} of {len(units)} · {seconds:5.0f} s · {unit.name} · {score}")
        keep()

    try:
        with line.running():
            line("running", 0, len(units))
            failed: dict[str, str] = execute(units, show)
    except KeyboardInterrupt:
        records |= {unit.name: _record(unit) for unit in units}
        keep()
        interrupt(
            f"Stopped with {finished_count} of {len(units)} runs done. The same command continues."
        )
    return failed


def _record(unit: Unit) -> RunRecord | None:
    has_begun = (unit.folder / RUN / "config.json").is_file()
    return read_run(unit.folder / RUN) if has_begun else None


def _print_results(
    out: Path, plan: Sweep, records: Mapping[str, RunRecord | None], failed: Mapping[str, str]
) -> None:
    """Print tables of a sweep, write the page that compares runs, and exit with 1 if one failed."""
    from preferl.evaluation.report import write_report
    from preferl.evaluation.run_comparison import comparison_report

    rows = [
        (name, "failed" if name in failed else "done", _score(record))
        for name, record in records.items()
    ]
    print_table(f"{len(records)} runs", rows, ("run", "state", "score"))
    if groups := over_seeds(plan, records):
        cells = [(name, str(len(scores)), _mean(scores)) for name, scores in groups.items()]
        print_table("Means over seeds, with 95 % intervals", cells, ("runs", "seeds", "score"))
    finished = {name: run_record for name, run_record in records.items() if run_record is not None}
    if 1 < len(finished) <= MOST_COMPARED:
        write_report(out / "comparison.html", comparison_report(finished))
        echo(f"Page: {out / 'comparison.html'}")
    echo(f"Results: {out / 'results.csv'}")
    for name, reason in failed.items():
        complain(f"preferl sweep: {name} failed, see {out / name / 'log.txt'}:\n{reason}")
    if failed:
        raise SystemExit(1)


def _mean(scores: Sequence[float]) -> str:
    values = np.array(scores)
    return _with_interval(float(values.mean()), mean_interval(values))


def _score(record: RunRecord | None) -> str:
    if record is None or record.summary.score is None:
        return "–"
    score = record.summary.score
    return f"{record.summary.unit} {_with_interval(score.mean, score.interval)}"


def _with_interval(mean: float, interval: tuple[float, float] | None) -> str:
    between = "" if interval is None else f" ({interval[0]:,.1f} to {interval[1]:,.1f})"
    return f"{mean:,.1f}{between}"
