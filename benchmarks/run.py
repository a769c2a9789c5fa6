"""Times preferl beside its peers, taking turns in one run, and stores ratios rather than seconds.

    python benchmarks/run.py                       everything, about ten minutes
    python benchmarks/run.py fit select            some of it
    python benchmarks/run.py --repetitions 9

Each side is a process of its own, in its own environment, with one thread. They repeat the same
work in turns, A B A B, so that whatever else the machine does falls on both. What is compiled or
warmed up is so before the clock starts.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROOT = HERE.parent
PEER_VENV = ROOT / ".venv-imitation"
# pip takes a CPU build of torch if this version is asked for; sacred still needs pkg_resources.
PEER_REQUIREMENTS = (["torch==2.13.0", "setuptools<81"], ["imitation==1.0.1"])


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        title: what is done.
        ours: job of `ours.py`.
        peer: job of `peer_imitation.py`.
        unit: what a rate counts; "s" shows seconds.
        required: ratio to reach; None for rows without one.
    """

    title: str
    ours: str
    peer: str
    unit: str = "pairs/s"
    required: float | None = None


# The jobs of a group take turns with each other; its rows say which of them to compare.
GROUPS = {
    "fit": (
        Row("fit one network", "fit", "fit", required=9),
        Row("  compiled", "fit_compiled", "fit"),
        Row("  peer without input statistics", "fit", "fit_plain"),
    ),
    "ensemble": (
        Row("fit five members", "fit_ensemble", "fit_ensemble", required=14),
        Row("  compiled", "fit_ensemble_compiled", "fit_ensemble"),
        Row("  peer without input statistics", "fit_ensemble", "fit_ensemble_plain"),
    ),
    "select": (Row("score 2,000 candidates", "select", "select", required=60),),
    "draw": (
        Row("draw 10,000 pairs", "draw", "draw", required=60),
        Row("  laid out as arrays", "draw_laid_out", "draw"),
    ),
    "job": (Row("the tutorial's whole job", "job", "job", "s", required=1.5),),
}
SCRIPTS = {"ours": "ours.py", "peer": "peer_imitation.py"}
STORAGE = {
    "storage_recorded": "10,000 pairs",
    "storage": "  without its infos",
}


class Side:
    """A worker process, asked one thing at a time and started when first asked."""

    def __init__(self, python: Path, script: str, root: Path = ROOT) -> None:
        self.command = [str(python), str(root / HERE.name / script)]
        self.paths = {} if root == ROOT else {"PYTHONPATH": str(root / "src")}
        self.process: subprocess.Popen[str] | None = None

    def ask(self, **request: str) -> dict[str, Any]:
        """Its answer; the process is started if there is none.

        Raises:
            RuntimeError: it failed or died.
        """
        if self.process is None:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | self.paths | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            )
        print(json.dumps(request), file=self.process.stdin, flush=True)
        line = next(iter(self.process.stdout or ()), "")
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the process died"}
        if "error" in answer:
            raise RuntimeError(f"{self.command[-1]}, {request}: {answer['error']}")
        return answer

    def stop(self) -> None:
        """End the process."""
        if self.process is not None and self.process.stdin:
            self.process.stdin.close()
            self.process.wait()
        self.process = None


def peer_python(
    venv: Path = PEER_VENV, requirements: Iterable[list[str]] = PEER_REQUIREMENTS
) -> Path:
    """The interpreter of a peer's environment, which is made if it is absent."""
    python = venv / "bin" / "python"
    done = venv / ".installed"
    if not done.exists():
        print(f"Installing into {venv.name} (some minutes, once) ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        asked: list[str] = []
        for more in requirements:  # torch alone first, so that nothing unpins it
            asked += more
            install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*install, "--prefer-binary", *asked], check=True)
        done.touch()
    return python


def compare(
    rows: Iterable[Row],
    pythons: dict[str, Path],
    repetitions: int,
    scripts: dict[str, str] = SCRIPTS,
) -> list[dict[str, Any]]:
    """All jobs of some rows in turns: medians, and the ratios of runs of one round."""
    jobs = {("ours", row.ours) for row in rows} | {("peer", row.peer) for row in rows}
    sides = {key: Side(pythons[key[0]], scripts[key[0]]) for key in sorted(jobs)}
    warm = {key: side.ask(do="prepare", job=key[1])["seconds"] for key, side in sides.items()}
    rounds = [{key: side.ask(do="run") for key, side in sides.items()} for _ in range(repetitions)]
    for side in sides.values():
        side.stop()

    def ratio(row: Row, clock: str) -> dict[str, float]:
        ours, peer = (
            [done[key][clock] / done[key]["units"] for done in rounds]
            for key in (("ours", row.ours), ("peer", row.peer))
        )
        return spread(theirs / mine for mine, theirs in zip(ours, peer, strict=True))

    def summary(key: tuple[str, str]) -> dict[str, Any]:
        runs = [done[key] for done in rounds]
        return {
            "rate": median(run["units"] / run["seconds"] for run in runs),
            "warm_up_seconds": round(warm[key], 2),
            **{name: found for name, found in runs[-1].items() if not name.endswith("seconds")},
        }

    return [
        {
            "title": row.title,
            "unit": row.unit,
            "required": row.required,
            "ratio": ratio(row, "seconds"),
            "processor_ratio": ratio(row, "processor_seconds"),
            "ours": summary(("ours", row.ours)),
            "peer": summary(("peer", row.peer)),
        }
        for row in rows
    ]


def spread(values: Iterable[float]) -> dict[str, float]:
    """Smallest, median and largest."""
    found = sorted(values)
    return {
        "min": round(found[0], 2),
        "median": round(median(found), 2),
        "max": round(found[-1], 2),
    }


def storage(job: str, pythons: dict[str, Path], repetitions: int) -> dict[str, Any]:
    """Bytes on disk and in memory, each time in fresh processes."""
    runs = []
    for _ in range(repetitions):
        ours, peer = (Side(pythons[side], SCRIPTS[side]) for side in ("ours", "peer"))
        runs.append((ours.ask(do="measure", job=job), peer.ask(do="measure", job=job)))
        ours.stop()
        peer.stop()
    return {
        "title": STORAGE[job],
        "required": 2 if job == "storage_recorded" else None,
        **{
            f"{kind}_ratio": spread(
                b[f"{kind}_bytes"] / max(1, a[f"{kind}_bytes"]) for a, b in runs
            )
            for kind in ("file", "traced", "resident")
        },
        "ours": runs[-1][0],
        "peer": runs[-1][1],
    }


def machine() -> dict[str, Any]:
    """What these numbers were measured on."""
    cpu = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "threads_used": 1,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def table(rows: Iterable[dict[str, Any]], peer: str = "imitation") -> Table:
    """The comparison, a line per row and measure."""
    out = Table(title=f"preferl beside {peer}")
    for heading in (
        "work",
        "preferl",
        peer,
        "ratio",
        "min ... max",
        "by CPU time",
        "wanted",
    ):
        out.add_column(heading, justify="left" if heading == "work" else "right")
    for row in rows:
        wanted = f"{row['required']:g}x" if row["required"] else ""
        if "ratio" in row:
            mine = row["ours"]["rate"]
            theirs = row["peer"]["rate"]
            shown = (
                (f"{1 / mine:.1f} s", f"{1 / theirs:.1f} s")
                if row["unit"] == "s"
                else (f"{mine:,.0f} {row['unit']}", f"{theirs:,.0f} {row['unit']}")
            )
            ratio = row["ratio"]
            cpu = f"{row['processor_ratio']['median']:.1f}x"
            out.add_row(row["title"], *shown, *_ratio(ratio), cpu, wanted)
            continue
        for kind, name in (("file", "file"), ("traced", "memory"), ("resident", "resident")):
            sizes = (f"{row[s][f'{kind}_bytes'] / 1e6:.1f} MB" for s in ("ours", "peer"))
            out.add_row(
                f"{row['title']}, {name}", *sizes, *_ratio(row[f"{kind}_ratio"]), "", wanted
            )
    return out


def _ratio(ratio: dict[str, float]) -> tuple[str, str]:
    return f"{ratio['median']:.1f}x", f"{ratio['min']:.1f} ... {ratio['max']:.1f}"


def measure(names: list[str], repetitions: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The rows of these groups, and what they were measured with."""
    pythons = {"ours": Path(sys.executable), "peer": peer_python()}
    versions = {}
    for side, python in pythons.items():
        asked = Side(python, SCRIPTS[side])
        versions[side] = asked.ask(do="about")
        asked.stop()
    rows: list[dict[str, Any]] = []
    for name in names:
        say(f"{name} ...")
        if name in STORAGE:
            rows.append(storage(name, pythons, 2))
        else:
            rows += compare(GROUPS[name], pythons, repetitions)
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "repetitions": repetitions,
        "machine": machine(),
        "versions": versions,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [*GROUPS, *STORAGE]
    parser.add_argument("rows", nargs="*", metavar="row", help=f"of {', '.join(known)}; or all")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "imitation.json")
    arguments = parser.parse_args()
    unknown = set(arguments.rows) - set(known)
    if unknown:
        parser.error(f"no rows {sorted(unknown)}; there are {known}")
    names = arguments.rows or known
    console = Console(width=max(110, Console().width))
    result = measure(names, arguments.repetitions, console.log)
    console.print(table(result["rows"]))
    if names == known or arguments.results != parser.get_default("results"):
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(result, indent=2) + "\n")
        console.print(f"Written to {arguments.results}")


if __name__ == "__main__":
    main()
