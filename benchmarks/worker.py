"""One side of a benchmark: a process that answers JSON lines on stdin with JSON lines on stdout.

    {"do": "about"}                        versions
    {"do": "prepare", "job": "fit"}        build and warm up, nothing of which is timed
    {"do": "run"}                          one repetition
    {"do": "measure", "job": "storage"}    numbers that are no times

It needs numpy alone, since both interpreters import it.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Job = Callable[[], Callable[[], dict[str, Any]]]
"""Prepares and returns one repetition, which returns what else to report about it."""

Measurement = Callable[[], dict[str, float]]


def serve(
    about: Callable[[], dict[str, str]],
    jobs: dict[str, Job],
    measurements: dict[str, Measurement],
) -> None:
    """Answer until stdin is closed; whatever libraries print goes nowhere."""
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    if not os.environ.get("BENCH_VERBOSE"):
        os.dup2(nowhere, 2)
    repetition: Callable[[], dict[str, Any]] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            match request["do"]:
                case "about":
                    answer: dict[str, Any] = dict(about())
                case "measure":
                    answer = dict(measurements[request["job"]]())
                case "prepare":
                    repetition = None
                    gc.collect()
                    began = time.perf_counter()
                    repetition = jobs[request["job"]]()
                    answer = {"seconds": time.perf_counter() - began}
                case "run" if repetition is not None:
                    answer = timed(repetition)
                case _:
                    answer = {"error": f"cannot do {request}"}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def timed(repetition: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Wall and processor seconds of one repetition, and what it reports of itself."""
    gc.collect()
    wall = time.perf_counter()
    processor = time.process_time()
    found = repetition()
    return {
        "seconds": time.perf_counter() - wall,
        "processor_seconds": time.process_time() - processor,
        **found,
    }


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(build: Callable[[], object], release: Callable[[], None]) -> tuple[object, int, int]:
    """Build something and let go of its makings: `(it, traced bytes, resident bytes)` it keeps.

    Traced bytes are those that Python and numpy asked for; resident ones include what their
    allocators cannot give back.
    """
    import tracemalloc

    gc.collect()
    before = resident_bytes()
    tracemalloc.start()
    kept = build()
    release()
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    gc.collect()
    return kept, traced, resident_bytes() - before
