"""Times implicit Q-learning beside d3rlpy's, taking turns, and stores ratios.

python benchmarks/offline.py                   with one thread and with two, some minutes
python benchmarks/offline.py one_thread
"""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from run import HERE, ROOT, Row, Side, compare, machine, peer_python, table

PEER_VENV = ROOT / ".venv-d3rlpy"
PEER_REQUIREMENTS = (["torch==2.13.0"], ["d3rlpy==2.8.1"])
SCRIPTS = {"ours": "ours_offline.py", "peer": "peer_d3rlpy.py"}
THREADS = ("one_thread", "two_threads")


def rows(threads: str) -> tuple[Row, ...]:
    """One agent beside the peer's one, and several at once beside the same."""
    words = threads.replace("_", " ")
    return (
        Row(f"IQL, {words}", f"1_float32_{threads}", threads, "updates/s"),
        Row("  five agents at once", f"5_float32_{threads}", threads, "updates/s"),
        Row("  thirty agents at once", f"30_float32_{threads}", threads, "updates/s"),
        Row("  bfloat16", f"1_bfloat16_{threads}", threads, "updates/s", required=3),
        Row("  five, bfloat16", f"5_bfloat16_{threads}", threads, "updates/s"),
    )


def cost_of_many(found: list[dict[str, Any]]) -> dict[str, float]:
    """How many times one agent's time several take, by medians."""
    one, five, thirty, one_low, five_low = (row["ours"]["rate"] for row in found)
    return {
        "five": round(one / five, 2),
        "thirty": round(one / thirty, 2),
        "five, bfloat16": round(one_low / five_low, 2),
        "five, bfloat16, of one in float32": round(one / five_low, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("threads", nargs="*", metavar="threads", help=f"of {', '.join(THREADS)}")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "d3rlpy.json")
    arguments = parser.parse_args()
    pythons = {
        "ours": Path(sys.executable),
        "peer": peer_python(PEER_VENV, PEER_REQUIREMENTS),
    }
    versions = {}
    found = []
    costs = {}
    for side, python in pythons.items():
        asked = Side(python, SCRIPTS[side])
        versions[side] = asked.ask(do="about")
        asked.stop()
    for threads in arguments.threads or THREADS:
        some = compare(rows(threads), pythons, arguments.repetitions, SCRIPTS)
        found += some
        costs[threads] = cost_of_many(some)
    console = Console(width=max(110, Console().width))
    console.print(table(found, "d3rlpy"))
    console.print("Several agents at once cost as much as this many of one:", costs)
    result = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "repetitions": arguments.repetitions,
        "machine": machine() | {"threads_used": arguments.threads or THREADS},
        "versions": versions,
        "rows": found,
        "cost_of_many": costs,
    }
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.write_text(json.dumps(result, indent=2) + "\n")
    console.print(f"Written to {arguments.results}")


if __name__ == "__main__":
    main()
