"""How much sooner clips of one store are drawn by two renderers than by one.

    python benchmarks/renderers.py [--clips 240]

Each renderer is `preferl annotate render --once` on a processor core of its own; in turns one and
two of them draw the same clips of a pendulum. `seconds` are of the whole programs, `start` is what
a program takes that has nothing to draw. Writes `results/renderers.json`. Linux only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from run import machine

from preferl.data.segments import Segments
from preferl.store import Store

RESULTS = Path(__file__).parent / "results" / "renderers.json"
STEPS = 25
REPETITIONS = 3


def asked(folder: Path, count: int) -> None:
    """A store in which neighbours among so many clips are compared."""
    angle = np.linspace(0, 3, count * STEPS)
    seen = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    start = STEPS * np.arange(count)
    real = np.full(count, STEPS)
    segments = Segments(seen, np.zeros((len(seen), 1)), 0 * angle, start, real, STEPS)
    with Store.open(folder) as store:
        frames = {"kind": "env", "env_id": "Pendulum-v1"}
        project = store.projects.create("swing", frames=frames, fps=20)
        store.clips.put(project.id, segments)
        pairs = np.arange(count).reshape(-1, 2)
        store.queries.ask(project.id, segments, pairs)


def drawn(folder: Path, renderers: int) -> tuple[float, list[int]]:
    """Seconds until all is drawn, and how many clips each renderer drew."""
    command = [sys.executable, "-m", "preferl", "annotate", "render", "--once"]
    command += ["--store", str(folder)]
    began = time.perf_counter()
    programs = [
        subprocess.Popen(["taskset", "-c", str(core), *command], stdout=subprocess.PIPE, text=True)
        for core in range(renderers)
    ]
    words = [program.communicate()[0] for program in programs]
    took = time.perf_counter() - began
    return took, [int(one.split()[0]) if one[:1].isdigit() else 0 for one in words]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=int, default=240, help="an even number")
    options = parser.parse_args()
    seconds: dict[int, list[float]] = {1: [], 2: []}
    starts = []
    shares = []
    for _ in range(REPETITIONS):
        for renderers, found in seconds.items():
            with tempfile.TemporaryDirectory() as name:
                asked(Path(name), options.clips)
                took, each = drawn(Path(name), renderers)
                if sum(each) != options.clips:
                    sys.exit(f"{sum(each)} clips were drawn of {options.clips}: {each}")
                found.append(took)
                if renderers == 1:
                    starts.append(drawn(Path(name), 1)[0])
                else:
                    shares.append(each)
            print(f"{renderers} of {os.cpu_count()} cores: {took:.1f} s, {each} clips", flush=True)
    one, two, start = (float(np.median(of)) for of in (*seconds.values(), starts))
    result = {
        "clips": options.clips,
        "seconds": {str(count): [round(each, 2) for each in of] for count, of in seconds.items()},
        "start_seconds": round(start, 2),
        "clips_of_each": shares,
        "ratio": round(one / two, 2),
        "ratio_without_start": round((one - start) / (two - start), 2),
        "on": machine(),
    }
    print(json.dumps(result, indent=2))
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
