"""What history buys: MR, NMR and the Preference Transformer on comparisons made by real people.

The published networks, three of each, with inputs normalised, a tenth of the answers allowed to be
random, and a short budget of updates. The same folds and draws of demonstrations as
`door_human_reward.py`, whose small perceptrons they stand beside; eight draws instead of twenty.

    PREFERL_SHARED=../shared python recipes/door_reward_models.py [--smoke] [--only mr nmr pt]
"""

import argparse
import os
import time
from dataclasses import replace
from itertools import islice

import torch
from door_human_reward import DOOR, RESULTS, by_demonstration, by_pair, row
from pt_door_human import REWARDS
from result_tables import keep

from preferl.cli.reward import FitConfig
from preferl.data.sources import load_demonstrations, load_labels
from preferl.training import RewardSettings

TABLE = RESULTS.with_name("door_reward_models.csv")
KINDS: dict[str, RewardSettings] = REWARDS | {
    "nmr": replace(REWARDS["mr"], model="nmr", budget=100)
}
DRAWS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one epoch of few answers each")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    episodes = load_demonstrations(DOOR / "door-v0_demos.pickle")
    labels = DOOR / "door-human-v1_human_labels"
    pairs = load_labels(labels, episodes, crossing="keep").comparisons
    if options.smoke:
        pairs = pairs[:40]
        episodes = episodes[:1]
    rows = []
    for name in options.only:
        settings = replace(KINDS[name], budget=1) if options.smoke else KINDS[name]
        config = FitConfig(DOOR, labels, out=TABLE, reward=settings)
        folds = by_pair(config, episodes, pairs)
        splits = {"pair": islice(folds, 2 if options.smoke else None)}
        if not options.smoke:
            splits["demonstration"] = by_demonstration(config, episodes, pairs, DRAWS)
        for split, results in splits.items():
            began = time.perf_counter()
            rows.append(row(f"{name} x 3", split, list(results), time.perf_counter() - began))
            print(rows[-1], flush=True)
            if not options.smoke:
                keep(TABLE, rows[-1:], ("reward", "split"))


if __name__ == "__main__":
    main()
