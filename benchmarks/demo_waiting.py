"""How long somebody waits for clips who answers `preferl demo --people`, by HTTP.

    python benchmarks/demo_waiting.py [--seconds 2.5] [--comparisons 100] [--out /tmp/demo]

The person takes so many seconds for each answer and prefers the pendulum that stands more upright.
Waiting counts from the first reward until all pairs are answered; `results/demo_waiting.json` has
the longest and the sum.
"""

import argparse
import http.cookiejar
import json
import platform
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from preferl.runs import versions
from preferl.store import Store

RESULTS = Path(__file__).parent / "results"
ASKS_EVERY = 0.1  # seconds between two looks for new pairs


class Visitor:
    """A browser without a window: cookies, the token of its page, and JSON."""

    def __init__(self, link: str) -> None:
        jar = http.cookiejar.CookieJar()
        self._open = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar)).open
        self._base = link.partition("/join/")[0]
        page = self._open(link, timeout=30).read().decode()
        self._token = re.search(r'name="csrf-token" content="([^"]+)"', page)[1]

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send JSON as the page's scripts do; the reply."""
        headers = {"X-CSRF-Token": self._token, "Content-Type": "application/json"}
        headers["Origin"] = self._base
        request = urllib.request.Request(self._base + path, json.dumps(body).encode(), headers)
        return json.loads(self._open(request, timeout=30).read())


def answered(labels: Path, seconds: float, demo: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Answer until there is nothing more to do; how long each wait for a pair was."""
    while not (labels / "labels.db").is_file():
        time.sleep(0.1)
    with Store.open(labels) as store:
        while not (projects := store.projects.all()) or not store.reports.last_event("served"):
            time.sleep(0.1)
        project = projects[-1]
        base = store.reports.last_event("served")["url"]
        visitor = Visitor(f"{base}/join/{store.people.owner(project.id).secret}")
        waits = []
        since = time.monotonic()
        count = 0
        began = time.monotonic()
        while demo.poll() is None:
            held = visitor.post("/api/claim", {"count": 1})
            if not held["queries"]:
                if held["state"] == "done":
                    break
                time.sleep(ASKS_EVERY)
                continue
            if store.reports.rewards(project.id):
                waits.append(time.monotonic() - since)
            time.sleep(seconds)
            token = held["queries"][0]["token"]
            kind = better(store, project.id, held["queries"][0])
            body = {"token": token, "key": f"waiting-{count:010d}", "kind": kind, "count": 1}
            visitor.post("/api/answer", body | {"response_ms": 1000 * seconds})
            since = time.monotonic()
            count = count + 1
        return {
            "answers": count,
            "seconds": round(time.monotonic() - began, 1),
            "rewards": len(store.reports.rewards(project.id)),
            "waits_after_the_first_reward": len(waits),
            "longest_wait": round(max(waits, default=0.0), 2),
            "waited_in_all": round(sum(waits), 2),
            "waits_above_a_second": sum(wait > 1 for wait in waits),
        }


def better(store: Store, project_id: int, question: dict[str, str]) -> str:
    """The side whose pendulum stands more upright."""
    names = [re.search(r"/media/(\w+)\.mp4", question[side])[1] for side in ("left", "right")]
    segments = store.clips.segments(project_id, names)
    height = [float(np.asarray(segments[row].observations)[:, 0].mean()) for row in range(2)]
    return "left" if height[0] > height[1] else "right"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.5)
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("runs/demo-waiting"))
    options = parser.parse_args()
    command = [sys.executable, "-m", "preferl", "demo", "--people", "--no-browser"]
    command += ["--comparisons", str(options.comparisons), "--out", str(options.out)]
    labels = options.out.with_name(f"{options.out.name}-labels")
    with subprocess.Popen(command) as demo:
        threading.Thread(target=demo.wait, daemon=True).start()
        found = answered(labels, options.seconds, demo)
    result = json.loads((options.out / "result.json").read_text())
    found |= {"seconds_per_answer": options.seconds, "status": demo.returncode}
    found |= {"mean_return": result["taught"], "learning_seconds": result["seconds"]}
    found |= {"machine": platform.processor() or platform.machine(), "versions": versions()}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "demo_waiting.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps({k: v for k, v in found.items() if k != "versions"}, indent=2))


if __name__ == "__main__":
    main()
