"""Runs that are killed with -9 again and again, and come to what undisturbed runs come to.

    python benchmarks/kills.py [--runs ppo sac iql dt] [--kills 20] [--seed 0]

Each run is a command that a person would type. One goes through undisturbed; the other is killed at
random moments, also while it starts, writes and evaluates, and goes on with `--resume`. Where it
comes to its end before it was killed so often, another begins. All files of rewards, policies,
answers and evaluations have to be equal to the last bit, and `result.json` but for the seconds.
Writes `results/kills.json`; ends with status 1 where anything differs.
"""

import argparse
import hashlib
import json
import os
import pickle
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from preferl.data import Episodes, save_episodes
from preferl.evaluation import RandomPolicy
from preferl.online.algorithms import make_environments
from preferl.online.run import record
from preferl.reporting import read_jsonl
from preferl.runs import RunFolder, versions

RESULTS = Path(__file__).parent / "results" / "kills.json"
ENV = "Pendulum-v1"
LENGTH = 20
LABELS = 200
TIMES = ("seconds", "time")
"""Of `result.json`: all that may differ."""
KEPT = ("*.safetensors", "*.npy", "policy.json", "evaluations/*.json")
"""What a run leaves behind for others to read, whose bytes are compared."""

ONLINE = ("online", "run", "--env", ENV, "--environments", "2", "--evaluation.episodes", "5")
ONLINE += ("--evaluation.queries", "50", "--evaluation.no-oracle", "--evaluation.clip-steps", "20")
ONLINE += ("--trainer.epochs", "3", "--segment-length", "20", "--initial-steps", "200")
PPO = ("--steps", "24000", "--iterations", "40", "--comparisons", "120", "--algorithm", "ppo")
PPO += ("--algorithm.n-steps", "100", "--algorithm.batch-size", "100")
SAC = ("--steps", "4000", "--iterations", "40", "--comparisons", "120", "--algorithm", "sac")
SAC += ("--algorithm.buffer-size", "2000", "--algorithm.learning-starts", "200")

OFFLINE = ("offline", "run", "--env", ENV, "--episodes", "2", "--seeds", "0,1", "--members", "2")
OFFLINE += ("--budget", "30", "--processes", "1", "--report-to", "jsonl")
IQL = ("--policy", "iql", "--steps", "1500", "--checkpoint-every", "50")
IQL += ("--iql.hidden", "32", "--iql.batch-size", "32")
DT = ("--policy", "dt", "--no-controls", "--steps", "600", "--checkpoint-every", "25")
DT += ("--dt.width", "32", "--dt.heads", "1")
DT += ("--dt.layers", "1", "--dt.context", "5", "--dt.batch-size", "16")

RUNS = {
    "ppo": (*ONLINE, *PPO),
    "sac": (*ONLINE, *SAC),
    "iql": (*OFFLINE, *IQL),
    "dt": (*OFFLINE, *DT),
}


def shortened(words: tuple[str, ...], share: float) -> tuple[str, ...]:
    """A run of so small a share of the steps and iterations."""
    short = list(words)
    for name in ("--steps", "--iterations"):
        if name in short:
            at = short.index(name) + 1
            short[at] = str(int(int(short[at]) * share))
    return tuple(short)


def write_data(folder: Path) -> tuple[str, ...]:
    """Recorded episodes and answers by their true return; the options that name them."""
    with_space = make_environments(ENV, 1, seed=0)
    policy = RandomPolicy(with_space.action_space, 0)
    with_space.close()
    episodes = record(policy, ENV, 4_000, seed=0)
    save_episodes(folder / "episodes", episodes)
    write_labels(folder / "labels", episodes)
    return ("--demonstrations", str(folder / "episodes"), "--labels", str(folder / "labels"))


def write_labels(folder: Path, episodes: Episodes) -> None:
    """Which of two windows has the higher return, in the layout of Uni-RLHF."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    episode = rng.integers(len(episodes), size=(2, LABELS))
    rows = episodes.starts[episode] + rng.integers(
        episodes.lengths[episode] - LENGTH + 1, size=(2, LABELS)
    )
    windows = np.lib.stride_tricks.sliding_window_view(episodes.rewards, LENGTH)
    sums = windows.sum(-1)[rows]
    arrays = {"human_label": np.where(sums[0] > sums[1], 0, 1)}
    arrays |= {"indices_1": rows[0], "indices_2": rows[1]}
    for name, array in arrays.items():
        (folder / f"{name}_x_len_{LENGTH}.pkl").write_bytes(pickle.dumps(array))


class Command:
    """A run as a program, which goes on where there is something to go on with."""

    def __init__(self, words: tuple[str, ...], out: Path) -> None:
        self._words = words
        self.out = out
        self._log = out.with_name(f"{out.name}.log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def finished(self) -> bool:
        """Whether it has come to its result."""
        return RunFolder(self.out).finished

    def start(self) -> None:
        """Begin, or go on."""
        first, second, *words = self._words
        resume = ["--resume"] if (self.out / "config.json").exists() else []
        command = [sys.executable, "-P", "-m", "preferl", first, second, "--out", str(self.out)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *resume, *words], stdout=log, stderr=log, start_new_session=True
            )

    def ends(self, within: float | None = None) -> bool:
        """Whether it ends by itself in so many seconds; the program stops where it fails."""
        try:
            status = self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        if status or not self.finished:
            sys.exit(f"{self.out} ended with status {status}:\n{self._log.read_text()[-3000:]}")
        return True

    def kill(self) -> str:
        """Kill it and all that it started with -9; what it was doing, in its own words."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return _reached(self.out, self._log.read_text(errors="replace"))


def _reached(out: Path, log: str) -> str:
    """Where a run was: the last stage that it named, and the step of its last metrics."""
    stages = [line for line in log.splitlines() if line.endswith("...") or " steps · " in line]
    doing = stages[-1].partition(" · ")[0].strip() if stages else "starting"
    metrics = out / "metrics.jsonl"
    steps = read_jsonl(metrics).get("step", []) if metrics.exists() else []
    return f"{doing} (metrics up to step {steps[-1]:.0f})" if len(steps) else doing


def outcome(out: Path) -> dict[str, str]:
    """What has to be equal, by name: digests of files, and the result without its times."""
    files = sorted({file for pattern in KEPT for file in out.rglob(pattern) if file.is_file()})
    found = {str(f.relative_to(out)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    values = _timeless(json.loads((out / "result.json").read_text()))
    return found | {f"result.json {name}": json.dumps(value) for name, value in values.items()}


def _timeless(values: Any) -> Any:
    """The same without seconds, however deep."""
    if isinstance(values, dict):
        return {name: _timeless(value) for name, value in values.items() if name not in TIMES}
    return values


def started(words: tuple[str, ...], out: Path) -> tuple[Command, float]:
    """A command and the seconds until its folder is there."""
    command = Command(words, out)
    began = time.monotonic()
    command.start()
    while not (out / "config.json").exists():
        if command.ends(0.05):
            break
    return command, time.monotonic() - began


def trial(words: tuple[str, ...], folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """One run undisturbed and one killed so many times, and what differs."""
    began = time.monotonic()
    plain, before = started(words, folder / "undisturbed")
    plain.ends()
    seconds = time.monotonic() - began
    expected = outcome(plain.out)
    rng = np.random.default_rng(seed)
    stages: list[str] = []
    differing: set[str] = set()
    rounds = 0
    while len(stages) < kills:
        command = Command(words, folder / f"killed-{rounds}")
        rounds += 1
        while len(stages) < kills and not command.finished:
            command.start()
            # Half of what it would take to come to the end with the last kill, since each costs
            # what came after the last checkpoint.
            pause = rng.uniform(0, 2) * (before + (seconds - before) / kills)
            if command.ends(pause):
                break
            stages.append(command.kill())
        if not command.finished:
            command.start()
            command.ends()
        got = outcome(command.out)
        differing |= {n for n in expected | got if expected.get(n) != got.get(n)}
    return {
        "kills": len(stages),
        "runs_killed": rounds,
        "compared": len(expected),
        "differing": sorted(differing),
        "killed_while": stages,
        "undisturbed_seconds": round(seconds, 1),
        "wall_seconds": round(time.monotonic() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--share", type=float, default=1.0, help="of the steps, for short tries")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    rows = json.loads(options.out.read_text())["runs"] if options.out.exists() else {}
    for name in options.runs:
        with tempfile.TemporaryDirectory(prefix="preferl-kills-") as folder:
            data = write_data(Path(folder)) if RUNS[name][0] == "offline" else ()
            words = shortened((*RUNS[name][:2], *data, *RUNS[name][2:]), options.share)
            rows[name] = trial(words, Path(folder), options.kills, options.seed)
        print(name, json.dumps(rows[name], indent=2), flush=True)
        on = versions()["packages"] | {"python": platform.python_version()}
        options.out.write_text(json.dumps({"runs": rows, "on": on}, indent=2) + "\n")
    if any(rows[name]["differing"] for name in options.runs):
        sys.exit(1)


if __name__ == "__main__":
    main()
