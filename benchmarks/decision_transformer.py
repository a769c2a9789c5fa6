"""Times a Decision Transformer beside the way of Hugging Face's tutorial, and stores ratios.

    python benchmarks/decision_transformer.py            ten minutes with two threads
    python benchmarks/decision_transformer.py --no-curve

Both sides have the tutorial's sizes: 1,000 episodes of 1,000 steps with states of 17 numbers and
actions of 6, minibatches of 64 windows of 20 steps, a transformer of three layers of width 128.
The collator is timed alone, and the whole training loop with it. That both learn the same is shown
by their losses over 60 updates from three seeds each.
"""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.console import Console
from run import HERE, Row, Side, compare, machine, table

SCRIPTS = {"ours": "ours_decision_transformer.py", "peer": "peer_decision_transformer.py"}
PYTHONS = {side: Path(sys.executable) for side in SCRIPTS}
COLLATE = (Row("one minibatch", "collate", "collate", "batches/s", required=200),)
LOOP = (
    Row("training loop, float32", "loop_float32", "loop", "updates/s", required=1.8),
    Row("training loop, bfloat16", "loop_bfloat16", "loop", "updates/s", required=1.8),
)
CURVES = {"peer": ("peer", "curve")} | {p: ("ours", f"curve_{p}") for p in ("float32", "bfloat16")}


def curves() -> dict[str, Any]:
    """Losses of both sides by seed, and how far the last of them are apart."""
    found = {}
    for name, (which, job) in CURVES.items():
        side = Side(PYTHONS[which], SCRIPTS[which])
        found[name] = side.ask(do="measure", job=job)
        side.stop()
    last = {name: [losses[-1] for losses in by_seed.values()] for name, by_seed in found.items()}
    return {
        "losses": found,
        "last": {
            name: {"mean": round(mean(values), 4), "std": round(stdev(values), 4)}
            for name, values in last.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--no-curve", action="store_true", help="leave the stored losses as they are"
    )
    parser.add_argument(
        "--results", type=Path, default=HERE / "results" / "decision_transformer.json"
    )
    asked = parser.parse_args()
    versions = {}
    for side, python in PYTHONS.items():
        one = Side(python, SCRIPTS[side])
        versions[side] = one.ask(do="about")
        one.stop()
    found = compare(COLLATE, PYTHONS, asked.repetitions, SCRIPTS)
    found += compare(LOOP, PYTHONS, asked.repetitions, SCRIPTS)
    console = Console(width=max(110, Console().width))
    console.print(table(found, "the tutorial"))
    before = json.loads(asked.results.read_text()) if asked.results.is_file() else {}
    losses = before.get("curves") if asked.no_curve else curves()
    console.print("Losses after the last update:", losses and losses["last"])
    result = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "repetitions": asked.repetitions,
        "machine": machine() | {"threads_used": 2},
        "versions": versions,
        "rows": found,
        "curves": losses,
    }
    asked.results.write_text(json.dumps(result, indent=2) + "\n")
    console.print(f"Written to {asked.results}")


if __name__ == "__main__":
    main()
