"""What features of a frozen encoder cost per frame, beside decoding the frame and keeping features.

The encoder has the shape of DINOv2's smallest (ViT-S/14) and random weights, which cost the same.
Frames of 256 x 256 are scaled to 224 x 224, or to 98 x 98. One thread.

    OMP_NUM_THREADS=1 python benchmarks/frozen_encoder.py [--frames 64]
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from lerobot_maker import CAMERA, make

from preferl.data.sources import open_lerobot
from preferl.models import frame_features

sys.path.append(f"{Path(__file__).parents[1] / 'recipes'}")
from lerobot_reacher import random_encoder

RESULTS = Path(__file__).parent / "results" / "frozen_encoder.json"


def per_frame(work: Callable[[], object], frames: int) -> dict[str, float]:
    began = time.perf_counter(), time.process_time()
    work()
    spent = time.perf_counter() - began[0], time.process_time() - began[1]
    names = ("milliseconds", "processor_milliseconds")
    return {name: round(1000 * s / frames, 2) for name, s in zip(names, spent, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    frames = options.frames
    results = {}
    with TemporaryDirectory() as folder:
        place = Path(folder)
        os.environ["PREFERL_CACHE"] = f"{place / 'cache'}"
        make(place / "set", [frames // 2] * 2, side=256)
        recording = open_lerobot(place / "set")
        pictures = recording.pictures(CAMERA)
        results["decode"] = per_frame(lambda: pictures[:], frames)
        shown = pictures[:]
        for side in (224, 98):
            encoder = random_encoder(place / f"encoder{side}", side)
            encoder(shown[:2])  # loads it
            results[f"encode {side}"] = per_frame(lambda e=encoder: e(shown), frames)
        frame_features(recording, CAMERA, encoder)
        kept = per_frame(lambda: np.asarray(frame_features(recording, CAMERA, encoder)), frames)
        results["read kept features"] = kept
    for name, numbers in results.items():
        print(name, numbers)
    RESULTS.write_text(json.dumps({"frames": frames} | results, indent=2) + "\n")


if __name__ == "__main__":
    main()
