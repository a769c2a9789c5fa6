"""What recipes share that fill tables row by row: CSV files, units of work, intervals, pictures."""

import argparse
import csv
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from preferl.files import writing
from preferl.runs import versions
from preferl.runs.executor import Unit
from preferl.runs.ray_cluster import LOCAL, executor_of
from preferl.statistics import bootstrap_interval, interquartile_mean

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    """The rows of a CSV file; none without a file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def keep(path: Path, rows: Iterable[Mapping[str, object]], key: tuple[str, ...]) -> None:
    """Add rows to a CSV file, whole or not at all, in place of those of the same key."""
    known = {tuple(str(row[name]) for name in key): row for row in [*read(path), *rows]}
    write(path, [known[one] for one in sorted(known, key=_ranked)])


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write a CSV file with these rows, whole or not at all; nothing without rows."""
    if not rows:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def installed(*packages: str) -> str:
    """Names and versions of packages that decide the numbers of a table."""
    found = versions()["packages"]
    return " ".join(f"{name} {found.get(name)}" for name in packages)


def processor() -> str:
    """The name of this machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _ranked(values: tuple[str, ...]) -> list[str]:
    """What brings texts into order by the alphabet, and numbers by their size."""
    return [value.zfill(9) if value.isdigit() else value for value in values]


def add_executor_options(parser: argparse.ArgumentParser) -> None:
    """Add the options by which a recipe chooses where its units run."""
    address = "local, or the address of a Ray cluster: ray://HOST:10001, HOST:6379 or auto"
    parser.add_argument("--cluster", default=LOCAL, help=address)
    count = "at a time on this machine; one for each core by default"
    parser.add_argument("--processes", type=int, help=count)


def run_table(
    units: Sequence[Unit], collect: Callable[[list[Unit]], None], options: argparse.Namespace
) -> int:
    """Do all units that are not done, and collect the rows of each; 1 if something failed."""

    def done(unit: Unit, _: object) -> None:
        collect([unit])
        print(f"done: {unit.name}", flush=True)

    collect([*units])
    try:
        failed = executor_of(options.cluster, options.processes)(units, done)
    except KeyboardInterrupt:
        print("Interrupted: the same command goes on.", file=sys.stderr)
        return 130
    finally:
        collect([*units])
    for name, why in failed.items():
        print(f"FAILED: {name}\n{why}", file=sys.stderr)
    return int(bool(failed))


def iqm_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % bootstrap interval of the interquartile mean; both ends are a single value."""
    drawn = np.random.default_rng(0)
    return bootstrap_interval(values, drawn, statistic=interquartile_mean)


def write_svg(path: Path, svg: str) -> None:
    """Write a chart as a file of its own, on white paper."""
    head, _, rest = svg.partition(">")
    paper = '<rect width="100%" height="100%" fill="#ffffff"/>'
    path.write_text(f"{head}>{paper}{rest}\n", "utf-8")
    print(path)
