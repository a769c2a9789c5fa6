"""How the accuracy of a reward grows with the number of people's answers that it learns from.

The labels are those of `door_human_reward.py`: 1,600 comparisons of clips of opening a door
(Uni-RLHF, Yuan et al. 2024). Of each shuffle, a fifth of the pairs is held out, and rewards learn
from the first 25, 50, ... of the rest: the same held-out answers evaluate all of them.

    PREFERL_SHARED=../shared python recipes/door_answers.py [--smoke]
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from result_tables import write

from preferl.cli.reward import FitConfig, fit_reward
from preferl.data import split
from preferl.data.sources import load_demonstrations, load_labels
from preferl.evaluation import evaluate_reward
from preferl.statistics import wilson_interval
from preferl.training import RewardSettings

SHARED = Path(os.environ.get("PREFERL_SHARED", "../shared"))
DOOR = SHARED / "data" / "adroit-door-human"
RESULTS = Path(__file__).parent / "results" / "door_answers.csv"
COUNTS = (25, 50, 100, 200, 400, 800, 1_200)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="two short fits")
    smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    episodes = load_demonstrations(DOOR / "door-v0_demos.pickle")
    labels = DOOR / "door-human-v1_human_labels"
    pairs = load_labels(labels, episodes, crossing="keep").comparisons
    config = FitConfig(DOOR, labels, RESULTS, reward=RewardSettings(epochs=1 if smoke else None))
    counts, shuffles = (COUNTS[:2], 1) if smoke else (COUNTS, 5)
    found: dict[int, list[tuple[float, int]]] = {count: [] for count in counts}
    for shuffle in range(shuffles):
        train, test = split(pairs, np.random.default_rng(shuffle))
        train = train[np.random.default_rng(shuffle).permutation(len(train))]
        for count in counts:
            reward = fit_reward(config, episodes, train[:count])[0]
            report = evaluate_reward(reward, test)
            found[count].append((report.accuracy, report.decided))
            print(shuffle, count, round(report.accuracy, 3), flush=True)
    rows = []
    for count, parts in found.items():
        accuracy, decided = np.array(parts).T
        low, high = wilson_interval((accuracy * decided).sum(), decided.sum())
        row: dict[str, object] = {"answers": count, "fits": len(parts)}
        row |= {"decided": int(decided.sum()), "accuracy": accuracy @ decided / decided.sum()}
        row |= {"low": low, "high": high, "least": accuracy.min(), "most": accuracy.max()}
        rows.append({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
    if not smoke:
        write(RESULTS, rows)


if __name__ == "__main__":
    main()
