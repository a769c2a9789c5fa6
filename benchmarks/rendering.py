"""How long a clip of 100 pictures takes from stored joint positions to a file that browsers play.

    PREFERL_SHARED=../shared MUJOCO_GL=egl python benchmarks/rendering.py [--repetitions 10]

Beside it the way that wrappers of environments take, which draw while they step: the same
environment with `render_mode="rgb_array"`, at its own size, and the same encoder. Writes
`results/rendering.json`.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from preferl.data.segment_sampling import sample_segments
from preferl.data.sources import load_demonstrations
from preferl.envs.simulators import make_registered
from preferl.runs import versions
from preferl.store.rendering.frames import frame_source
from preferl.store.rendering.videos import write_video
from preferl.video import encode

DOOR = Path(os.environ.get("PREFERL_SHARED", "../shared")) / "data" / "adroit-door-human"
RESULTS = Path(__file__).parent / "results" / "rendering.json"
FPS = 20
STEPS = 100
TASK = "AdroitHandDoor-v1"


def while_stepping(path: Path) -> float:
    """Seconds to step, draw and encode with gymnasium's own rendering."""
    env = make_registered(TASK, render_mode="rgb_array")
    env.reset(seed=0)
    env.render()
    began = time.perf_counter()
    pictures = []
    for _ in range(STEPS):
        env.step(env.action_space.sample())
        pictures.append(np.asarray(env.render()))
    path.write_bytes(encode(pictures, FPS))
    took = time.perf_counter() - began
    env.close()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=10)
    options = parser.parse_args()
    demonstrations = load_demonstrations(DOOR / "door-v0_demos.pickle")
    rng = np.random.default_rng(0)
    segments = sample_segments(demonstrations, 1 + options.repetitions, STEPS, rng)
    source = frame_source({"kind": "env", "env_id": TASK})
    ours = []
    theirs = []
    sizes = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clip.mp4"
        began = time.perf_counter()
        write_video(source, segments, 0, file, FPS)
        first = time.perf_counter() - began
        for row in range(1, 1 + options.repetitions):
            began = time.perf_counter()
            write_video(source, segments, row, file, FPS)
            ours.append(time.perf_counter() - began)
            sizes.append(file.stat().st_size)
            theirs.append(while_stepping(file))
    result = {
        "first_clip_seconds": round(first, 2),
        "clip_seconds": _spread(ours),
        "video_bytes": round(float(np.median(sizes))),
        "while_stepping_seconds": _spread(theirs),
        "ratio": round(float(np.median(theirs) / np.median(ours)), 2),
        "gl": os.environ.get("MUJOCO_GL"),
        "on": versions()["packages"],
    }
    print(json.dumps(result, indent=2))
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


def _spread(seconds: list[float]) -> dict[str, float]:
    low, middle, high = np.percentile(seconds, [0, 50, 100])
    return {"least": round(low, 2), "median": round(middle, 2), "most": round(high, 2)}


if __name__ == "__main__":
    main()
