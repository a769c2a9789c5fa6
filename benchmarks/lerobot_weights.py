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


def weights_by_skill(data: Path, table: Path) -> dict[str, float]:
    """Return the mean weight of each skill with the `kappa` and chunk that a table advises."""
    about = json.loads(pq.read_schema(table).metadata[ABOUT])
    settings = SampleWeightingConfig(progress_path=str(table), kappa=about["kappa"])
    policy = SimpleNamespace(config=SimpleNamespace(chunk_size=about["chunk"]))
    weighter = make_sample_weighter(settings, policy, torch.device("cpu"))
    rows = LeRobotDataset("me/arm", root=data / "reacher_arm")
    weights = np.zeros(len(rows))
    for batch in torch.utils.data.DataLoader(rows, batch_size=500, shuffle=True):
        weights[batch["index"].numpy()] = weighter.compute_batch_weights(batch)[0].numpy()
    with np.load(data / "reacher_arm_truth.npz") as truth:
        skills = np.repeat(truth["skill"], truth["lengths"])
    return {name: float(weights[skills == name].mean()) for name in SKILLS}


if __name__ == "__main__":
    shared = Path(os.environ.get("PREFERL_SHARED", "../shared"))
    for name in sys.argv[1:]:
        weights = weights_by_skill(shared / "data" / "lerobot", Path(name))
        print(Path(name).stem, {skill: round(weight, 3) for skill, weight in weights.items()})
