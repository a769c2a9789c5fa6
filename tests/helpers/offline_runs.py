"""Small offline runs in the world of points: data, labels, settings."""

import pickle
from dataclasses import replace

import numpy as np

from helpers.point_walks import point_walks
from preferl.offline import IQLConfig, OfflineConfig, run_offline

ENV = "PointWorldOfTests-v0"
SMALL = IQLConfig(hidden=(16,), batch_size=32, learning_rate=1e-3)
LENGTH = 8


def recorded(rng, episodes=40, steps=20):
    """Points pushed about with a direction of their own in each episode."""
    push = rng.uniform(-1, 1, (episodes, 1, 2)) + rng.normal(0, 0.3, (episodes, steps, 2))
    return point_walks(rng, np.clip(push, -1, 1).astype(np.float32))


def write_labels(folder, episodes, rng, count=300):
    """Answers by the true return, in the layout of Uni-RLHF."""
    folder.mkdir()
    episode = rng.integers(len(episodes), size=(2, count))
    rows = episodes.starts[episode] + rng.integers(20 - LENGTH + 1, size=(2, count))
    sums = np.lib.stride_tricks.sliding_window_view(episodes.rewards, LENGTH).sum(-1)[rows]
    files = {
        "human_label_x": np.where(sums[0] > sums[1], 0, 1),
        "indices_1_x": rows[0],
        "indices_2_x": rows[1],
    }
    for name, array in files.items():
        (folder / f"{name}_len_{LENGTH}.pkl").write_bytes(pickle.dumps(array))
    return folder


def config_of(data, **changes):
    config = OfflineConfig(
        demonstrations=str(data / "episodes"),
        labels=data / "labels",
        env=ENV,
        iql=SMALL,
        steps=30,
        episodes=3,
        eval_episodes=2,
        budget=20,
        members=2,
    )
    return replace(config, **changes)


def run(config, out, **options):
    usual = {"seeds": (0, 1), "processes": 1, "checkpoint_every": 10, "report_to": ("jsonl",)}
    options = usual | options
    return run_offline(config, out, **options)
