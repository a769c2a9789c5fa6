"""Times this commit beside an older one of preferl, taking turns, and stores their ratios.

    python benchmarks/commits.py e1cff03                 everything, about twenty minutes
    python benchmarks/commits.py e1cff03 fit relabel     some of it
    python benchmarks/commits.py e1cff03 fit --clock processor    where other programs run, too

The older commit is checked out into a folder of its own and runs its own benchmarks with the same
interpreter. A ratio compares medians and is above 1 where this commit is faster. `within` says
whether this commit's median is in the older one's range, or above 0.95 of its median.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from run import HERE, ROOT, Side, machine

LEAST = 0.95
"""Share of the older commit's median that counts as no slower."""

CLOCKS = {"wall": "seconds", "processor": "processor_seconds"}
"""Clocks, and the names of their seconds in what workers answer."""


@dataclass(frozen=True)
class Worker:
    """A job of one of the workers.

    Attributes:
        script: file of the worker.
        job: its name there.
    """

    script: str
    job: str


@dataclass(frozen=True)
class Script:
    """A benchmark that writes its own results.

    Attributes:
        command: file and options, for one repetition.
        rate: what it measured, per second, from what it wrote.
        threads: it may use.
    """

    command: tuple[str, ...]
    rate: Callable[[Any], float]
    threads: int = 1


def _relabel(model: str) -> Script:
    command = ("relabel.py", model, "--sample", "0", "--repetitions", "3")
    return Script(command, lambda found: found["models"][model]["steps_per_second"], 2)


def _transformer(precision: str) -> Script:
    command = ("transformer.py", precision, "--repetitions", "3")
    return Script(command, lambda found: found["steps_per_second"][precision], 2)


def _wrapped(reward: str) -> Script:
    command = ("feedback_overhead.py", reward, "--steps", "16384", "--repetitions", "1")

    def rate(found: Any) -> float:
        rows = found["result"]  # by reward, and per rollout or step where it measures both
        return 16384 / rows.get(f"{reward}, per rollout", rows.get(reward))["seconds"]

    return Script(command, rate)


TASKS: dict[str, Worker | Script] = {
    "fit": Worker("ours.py", "fit"),
    "fit_ensemble": Worker("ours.py", "fit_ensemble"),
    "select": Worker("ours.py", "select"),
    "draw": Worker("ours.py", "draw"),
    "job": Worker("ours.py", "job"),
    "iql": Worker("ours_offline.py", "1_float32_two_threads"),
    "iql_bfloat16": Worker("ours_offline.py", "1_bfloat16_two_threads"),
    "iql_five_agents": Worker("ours_offline.py", "5_float32_two_threads"),
    "dt_collate": Worker("ours_decision_transformer.py", "collate"),
    "dt_float32": Worker("ours_decision_transformer.py", "loop_float32"),
    "dt_bfloat16": Worker("ours_decision_transformer.py", "loop_bfloat16"),
    "relabel_lstm": _relabel("lstm"),
    "relabel_transformer": _relabel("transformer"),
    "transformer_float32": _transformer("float32"),
    "transformer_bfloat16": _transformer("bfloat16"),
    "wrapper_mlp": _wrapped("mlp"),
    "wrapper_transformer": _wrapped("pt"),
}


def check_out(commit: str, folder: Path) -> Path:
    """The older commit's files, in `folder`."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def surroundings(root: Path, threads: int) -> dict[str, str]:
    """The variables with which a program of that tree imports that tree's preferl."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    return os.environ | limits | {"PYTHONPATH": str(root / "src")}


def rates_of_worker(
    worker: Worker, roots: dict[str, Path], repetitions: int, clock: str
) -> dict[str, Any]:
    """Units per second of each commit by a clock, in turns."""
    rates: dict[str, list[float]] = {name: [] for name in roots}
    for _ in range(repetitions):
        for name, root in roots.items():
            # A process of its own: where its memory happens to lie changes its speed by a tenth.
            side = Side(Path(sys.executable), worker.script, root)
            try:
                side.ask(do="prepare", job=worker.job)
                done = side.ask(do="run")
            finally:
                side.stop()
            rates[name].append(done["units"] / done[CLOCKS[clock]])
    return rates


def rates_of_script(script: Script, roots: dict[str, Path], repetitions: int) -> dict[str, Any]:
    """What each commit's own script measured, in turns."""
    rates: dict[str, list[float]] = {name: [] for name in roots}
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        for _ in range(repetitions):
            for name, root in roots.items():
                file, *options = script.command
                subprocess.run(
                    [sys.executable, root / "benchmarks" / file, *options, "--results", results],
                    env=surroundings(root, script.threads),
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
                rates[name].append(script.rate(json.loads(results.read_text(encoding="utf-8"))))
    return rates


def summary(new: list[float], old: list[float]) -> dict[str, Any]:
    """The ratio of medians, both ranges as shares of the old median, and whether it is as fast."""
    middle = median(old)
    ratio = median(new) / middle
    return {
        "ratio": round(ratio, 3),
        "new": [round(min(new) / middle, 3), round(max(new) / middle, 3)],
        "old": [round(min(old) / middle, 3), round(max(old) / middle, 3)],
        "within": bool(ratio >= LEAST or min(old) <= median(new)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", help="the older commit")
    parser.add_argument("tasks", nargs="*", metavar="task", help=f"of {', '.join(TASKS)}; or all")
    parser.add_argument("--repetitions", type=int, default=5)
    which = "whose seconds count; benchmarks that write their own results go by the wall's"
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help=which)
    parser.add_argument("--strict", action="store_true", help="fail where this commit is slower")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "commits.json")
    asked = parser.parse_args()
    unknown = set(asked.tasks) - set(TASKS)
    if unknown:
        parser.error(f"no tasks {sorted(unknown)}; there are {list(TASKS)}")
    if asked.clock == "processor":
        os.environ["OMP_WAIT_POLICY"] = "passive"  # else threads that wait would count as working
    console = Console(width=max(100, Console().width))
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        roots = {"new": ROOT, "old": check_out(asked.commit, Path(folder))}
        for name in asked.tasks or TASKS:
            task = TASKS[name]
            if isinstance(task, Worker):
                rates = rates_of_worker(task, roots, asked.repetitions, asked.clock)
            else:
                rates = rates_of_script(task, roots, asked.repetitions)
            rows[name] = summary(rates["new"], rates["old"])
            console.log(name, rows[name])
    table = Table("task", "new / old", "new, of old median", "old", "as fast", title=asked.commit)
    for name, row in rows.items():
        ranges = ("{} ... {}".format(*row[key]) for key in ("new", "old"))
        table.add_row(name, f"{row['ratio']:.2f}", *ranges, "yes" if row["within"] else "no")
    console.print(table)
    found = {"commit": asked.commit, "repetitions": asked.repetitions, "clock": asked.clock}
    found["machine"] = machine()
    text = json.dumps(found | {"tasks": rows}, indent=2) + "\n"
    asked.results.write_text(text, encoding="utf-8")
    slower = [name for name, row in rows.items() if not row["within"]]
    if asked.strict and slower:
        sys.exit(f"slower than {asked.commit}: {', '.join(slower)}")


if __name__ == "__main__":
    main()
