"""Mean weight of the frames of each skill of `reacher_arm`, by LeRobot's own weighting and loader.

    PYTHONPATH=src .venv-lerobot/bin/python benchmarks/lerobot_weights.py TABLE.parquet ...

Tables are those of `preferl reward export`, or of `recipes/lerobot_reacher.py --tables`.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.utils.sample_weighting import SampleWeightingConfig, make_sample_weighter

from preferl.data.frame_tables import ABOUT

SKILLS = ("random", "early", "middle", "late")


def batches_of(data: Path) -> list[torch.Tensor]:
    """Return the frame numbers of the batches that LeRobot's loader makes of all frames."""
    rows = LeRobotDataset("me/arm", root=data / "reacher_arm")
    loader = torch.utils.data.DataLoader(rows, batch_size=500, shuffle=True)
    return [batch["index"] for batch in loader]


def weights_by_skill(data: Path, table: Path, batches: list[torch.Tensor]) -> dict[str, float]:
    """Return the mean weight of each skill with the `kappa` and chunk that a table advises."""
    about = json.loads(pq.read_schema(table).metadata[ABOUT])
    settings = SampleWeightingConfig(progress_path=str(table), kappa=about["kappa"])
    policy = SimpleNamespace(config=SimpleNamespace(chunk_size=about["chunk"]))
    weighter = make_sample_weighter(settings, policy, torch.device("cpu"))
    with np.load(data / "reacher_arm_truth.npz") as truth:
        skills = np.repeat(truth["skill"], truth["lengths"])
    weights = np.zeros(len(skills))
    for index in batches:
        weights[index.numpy()] = weighter.compute_batch_weights({"index": index})[0].numpy()
    return {name: float(weights[skills == name].mean()) for name in SKILLS}


if __name__ == "__main__":
    folder = Path(os.environ.get("PREFERL_SHARED", "../shared")) / "data" / "lerobot"
    numbers = batches_of(folder)
    for name in sys.argv[1:]:
        mean = weights_by_skill(folder, Path(name), numbers)
        print(Path(name).stem, {skill: round(weight, 3) for skill, weight in mean.items()})
