"""What befalls three programs that teach an agent together, and what comes of it.

    python benchmarks/faults.py [--faults NAME ...] [--seeds 0 1 2] [--kills 10]

Each run is the page, the reward service and a training script as processes, with people who answer
over HTTP, and one fault. It is checked by answers that were acknowledged and are not stored, by
rewards that were taken up and were not whole, and by the agent's true return beside that of runs
without a fault. Writes `results/faults.json`. Root and a C compiler are needed.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from faults_kinds import FAULTS, PLACES, as_it_is
from faults_trial import Trial, distinct
from scipy import stats

from preferl.runs import versions

RESULTS = Path(__file__).parent / "results" / "faults.json"
SLOW = ("reward service killed",)
"""Takes seconds to start, so that there are half the kills in twice the runs."""


def one(folder: Path, fault: str, seed: int, steps: int, kills: int) -> dict[str, Any]:
    """One run in this process, and what became of it."""
    began = time.monotonic()
    with Trial(folder, seed, steps, kills) as trial:
        done = FAULTS[fault](trial)
        done |= trial.finish()
    return done | trial.check() | {"wall_seconds": round(time.monotonic() - began, 1)}


def apart(fault: str, seed: int, steps: int, kills: int) -> dict[str, Any]:
    """The same in a process of its own, on a disk and under a clock of its own where needed."""
    with (
        tempfile.TemporaryDirectory(prefix="preferl-faults-") as folder,
        PLACES.get(fault, as_it_is)(Path(folder)) as environment,
    ):
        command = [sys.executable, __file__, "--one", folder, "--faults", fault]
        command += ["--seeds", str(seed), "--steps", str(steps)]
        command += ["--kills", str(kills)]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"} | environment)
        return json.loads((Path(folder) / "checked.json").read_text())


def together(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One fault's runs in one row."""
    returns = [run["return"] for run in runs]
    summed = (
        "kills",
        "cut",
        "never_whole",
        "versions_while_full",
        "acknowledged",
        "stored",
        "lost",
        "doubled",
    )
    summed += ("differing", "versions", "taken_up", "taken_up_not_whole", "drafts_left")
    summed += ("signed_out", "open_questions", "requests_that_failed")
    row = {name: sum(run[name] for run in runs) for name in summed if name in runs[0]}
    row |= {
        "all_answers_learned_from": all(run["all_answers_learned_from"] for run in runs),
        "stopped": [why for run in runs for why in run["stopped"]],
        "returns": [round(value, 2) for value in returns],
        "mean": round(float(np.mean(returns)), 2),
        "deviation": round(float(np.std(returns, ddof=1)), 2) if len(returns) > 1 else None,
        "wall_seconds": [run["wall_seconds"] for run in runs],
        "said": distinct(*(run["said"] for run in runs)),
    }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=45_000)
    parser.add_argument("--kills", type=int, default=10, help="of one program in one run")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        done = one(options.one, options.faults[0], options.seeds[0], options.steps, options.kills)
        (options.one / "checked.json").write_text(json.dumps(done))
        return
    about = {"seeds": options.seeds, "steps": options.steps, "kills_per_run": options.kills}
    rows = _kept(options.out, about)
    for fault in options.faults:
        twice = [100 + seed for seed in options.seeds] if fault in SLOW else []
        kills = options.kills // (2 if fault in SLOW else 1)
        runs = [apart(fault, seed, options.steps, kills) for seed in options.seeds + twice]
        rows[fault] = together(runs)
        write(options.out, about, rows)
        print(fault, json.dumps(rows[fault], indent=2), flush=True)


def write(file: Path, about: dict[str, Any], rows: dict[str, Any]) -> None:
    """Keep rows, each beside the undisturbed runs.

    A row is within noise where its mean is as near to theirs as chance leaves it, by the spread of
    the undisturbed runs alone: a fault that makes results vary must not thereby excuse them.
    """
    plain = rows.get("none", {}).get("returns", [])
    for row in rows.values() if len(plain) > 1 else ():
        spread = np.std(plain, ddof=1) * np.sqrt(1 / len(plain) + 1 / len(row["returns"]))
        noise = float(stats.t.ppf(0.975, len(plain) - 1) * spread)
        row["difference"] = round(row["mean"] - float(np.mean(plain)), 2)
        row["noise"] = round(noise, 2)
        row["within_noise"] = abs(row["difference"]) <= noise
    on = versions()["packages"] | {"python": platform.python_version()}
    file.write_text(json.dumps(about | {"faults": rows, "on": on}, indent=2) + "\n")


def _kept(file: Path, about: dict[str, Any]) -> dict[str, Any]:
    """Rows of an earlier start with the same numbers, which need not be made again."""
    stored = json.loads(file.read_text()) if file.exists() else {}
    same = all(stored.get(name) == value for name, value in about.items())
    return stored.get("faults", {}) if same else {}


if __name__ == "__main__":
    main()
