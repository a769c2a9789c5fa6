"""A sweep of twelve runs on a Ray cluster that loses a machine, beside the same in local processes.

    python benchmarks/sweep_on_ray.py

The cluster's three machines are programs on this one. Once some runs are done, a machine is killed
whose run has a checkpoint. Another machine goes on with that run. The policies, rewards, answers
and returns of all twelve runs then have to be those of local processes, bit by bit.
"""

import argparse
import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster
from rich.console import Console
from run import HERE, machine

from preferl.trust import preferl_program

MEMORY = 80 * 2**20  # bytes for objects on each machine: the least that Ray takes
SWEEP = {
    "command": "online run",
    "options": {
        "env": "CartPole-v1", "steps": 3_000, "initial_steps": 1_000, "iterations": 3,
        "comparisons": 45, "environments": 2, "segment_length": 20, "eval_every": 0,
        "evaluation.oracle": False, "evaluation.episodes": 10, "evaluation.queries": 40,
        "evaluation.clip_steps": 0,
        "report_to": ["jsonl"],
    },
    "grid": {"seed": [0, 1, 2, 3, 4, 5], "teacher": ["oracle", {"kind": "mistake", "rate": 0.2}]},
}  # fmt: skip
SAME = ("policy", "reward", "comparisons", "metrics.jsonl")
"""What of a run's folder has to be the same, beside the returns of its result."""


def swept(file: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    """A sweep that has begun."""
    words = preferl_program("sweep", str(file), "--out", str(out), *more)
    return subprocess.Popen(words, stdout=subprocess.DEVNULL)


def content(out: Path) -> dict[str, dict[str, str]]:
    """Of each run, digests of what has to be the same."""
    found = {}
    for unit in sorted(out.glob("*/run")):
        result = json.loads((unit / "result.json").read_text())
        digests = {"returns": json.dumps(result["policies"]["taught"]["returns"])}
        for path in files(unit):
            digests[str(path.relative_to(unit))] = hashlib.sha256(without_times(path)).hexdigest()
        found[unit.parent.name] = digests
    return found


def files(run: Path) -> Iterator[Path]:
    for name in SAME:
        yield from sorted((run / name).rglob("*.*")) if (run / name).is_dir() else [run / name]


def without_times(path: Path) -> bytes:
    """The content of a file; of metrics without those of the clock."""
    if path.suffix != ".jsonl":
        return path.read_bytes()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{k: v for k, v in row.items() if "time" not in k and "second" not in k} for row in rows]
    return json.dumps(kept).encode()


def at_work(out: Path) -> Iterator[tuple[str, int]]:
    """Units that have a checkpoint and are not done, and the programs of their machines."""
    for lock in out.glob("*/unit.lock"):
        held = lock.read_text()
        if held and any(lock.parent.glob("run/checkpoints/0*")):
            worker = parent(json.loads(held)["pid"])
            yield lock.parent.name, parent(worker)


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def kill_machine(cluster: Cluster, out: Path, sweep: subprocess.Popen[bytes], done: int) -> str:
    """Kill a machine whose run has a checkpoint, once so many runs are done; that run."""
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in cluster.worker_nodes}
    while sweep.poll() is None:
        if len([*out.glob("*/done.json")]) >= done:
            for name, raylet in at_work(out):
                if raylet in raylets:
                    cluster.remove_node(raylets[raylet], allow_graceful=False)
                    return name
        time.sleep(0.05)
    raise SystemExit("The sweep ended before a machine could be killed.")


def on_ray(file: Path, out: Path) -> dict[str, Any]:
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (Ray's own name; its default is 15)
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": MEMORY}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
        began = time.perf_counter()
        with swept(file, out, "--cluster", cluster.address) as sweep:
            lost = kill_machine(cluster, out, sweep, done=4)
            at = time.perf_counter() - began
        seconds = round(time.perf_counter() - began, 1)
        log = (out / lost / "log.txt").read_text()
        return {
            "seconds": seconds, "status": sweep.returncode, "lost_run": lost,
            "lost_after_seconds": round(at, 1), "taken_over": "which is taken over" in log,
        }  # fmt: skip
    finally:
        cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE / "results" / "sweep_on_ray.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.json"
        file.write_text(json.dumps(SWEEP))
        began = time.perf_counter()
        with swept(file, Path(folder) / "local") as sweep:
            pass
        local = {"seconds": round(time.perf_counter() - began, 1), "status": sweep.returncode}
        ray = on_ray(file, Path(folder) / "ray")
        one = content(Path(folder) / "local")
        other = content(Path(folder) / "ray")
    differ = sorted(name for name in one | other if one.get(name) != other.get(name))
    what = sorted({k for n in differ for k in one[n] if one[n][k] != other.get(n, {}).get(k)})
    equal = len(one) - len(differ)
    stored = {"machine": machine(), "runs": len(one), "equal": equal, "local": local, "ray": ray}
    options.results.write_text(
        json.dumps(stored | {"differ": differ, "files": what}, indent=2) + "\n"
    )
    Console().print(f"{equal} of {len(one)} runs are equal. {local} {ray} {differ} {what}")


if __name__ == "__main__":
    main()
