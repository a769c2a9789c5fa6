"""A reward from 1,600 comparisons made by real people, validated on demonstrations it never saw.

Demonstrations of opening a door (Rajeswaran et al. 2018) and crowd labels for them (Uni-RLHF,
Yuan et al. 2024). Five folds by pair; by demonstration, 5 of 25 held out, trained on pairs with
no step in them and tested on pairs wholly in them; labels shuffled; a linear reward beside it.

    PREFERL_SHARED=../shared python recipes/door_human_reward.py [--smoke]
"""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from result_tables import write

from preferl.cli.reward import FitConfig, fit_reward
from preferl.data import Comparisons, Episodes, folds, split_off_episodes
from preferl.data.sources import load_demonstrations, load_labels
from preferl.statistics import spearman, wilson_interval
from preferl.training import RewardFunction, RewardSettings, relabel

SHARED = Path(os.environ.get("PREFERL_SHARED", "../shared"))
DOOR = SHARED / "data" / "adroit-door-human"
RESULTS = Path(__file__).parent / "results" / "door_human_reward.csv"
HELD_OUT = 5  # demonstrations


def right(reward: RewardFunction, test: Comparisons) -> np.ndarray:
    """Which decided answers fall on the side that the mean member expects."""
    test = test[test.decided].compact()
    scores = reward.scores(test.segments)[:, test.pairs]
    first = np.tanh((scores[..., 0] - scores[..., 1]) / 2).mean(0)  # 2 P - 1
    return (first > 0) == (test.preference > 0.5)


def crossing(comparisons: Comparisons) -> np.ndarray:
    """Which pairs hold a segment that runs across a demonstration's end."""
    origin = comparisons.segments.origin[comparisons.pairs]
    return (origin[..., 0] != origin[..., 2]).any(axis=1)


def by_pair(config: FitConfig, episodes: Episodes, pairs: Comparisons) -> Iterator[tuple]:
    """Each fold's `(right, crossing, Spearman)`; the same fold for equal pairs."""
    fold = folds(pairs, 5, np.random.default_rng(config.seed))
    for number in range(5):
        train = pairs[fold != number]
        test = pairs[fold == number]
        reward = fitted(config, episodes, train)
        yield right(reward, test), crossing(test[test.decided]), np.nan


def by_demonstration(
    config: FitConfig, episodes: Episodes, pairs: Comparisons, draws: int
) -> Iterator[tuple]:
    """Each draw's `(right, crossing, Spearman on the held-out demonstrations)`."""
    for draw in range(draws):
        rng = np.random.default_rng([config.seed, draw])
        held = rng.permutation(len(episodes))[:HELD_OUT]
        train, test = split_off_episodes(pairs, held)
        reward = fitted(config, episodes, train)
        unseen = episodes[held]
        rank = spearman(relabel(unseen, reward).rewards, unseen.rewards)
        yield right(reward, test), crossing(test[test.decided]), rank


def fitted(config: FitConfig, episodes: Episodes, train: Comparisons) -> RewardFunction:
    """The reward that `preferl reward fit` makes of these pairs."""
    if config.crossing == "drop":
        train = train[~crossing(train)]
    return fit_reward(config, episodes, train)[0]


def row(name: str, split: str, results: list[tuple], seconds: float) -> dict[str, object]:
    """Pooled accuracy with its Wilson interval, and Spearman, over folds or draws."""
    hits, crosses = (np.concatenate([r[i] for r in results]) for i in (0, 1))
    ranks = np.array([r[2] for r in results])
    parts = [r[0].mean() for r in results]
    low, high = wilson_interval(hits.sum(), len(hits))
    return {
        "reward": name,
        "split": split,
        "fits": len(results),
        "decided": len(hits),
        "accuracy": round(float(hits.mean()), 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "deviation": round(float(np.std(parts, ddof=1)), 4),
        "accuracy_within_episodes": round(float(hits[~crosses].mean()), 4),
        "spearman": round(float(ranks.mean()), 4),
        "spearman_deviation": round(float(np.std(ranks, ddof=1)), 4),
        "seconds_per_fit": round(seconds / len(results), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one short fit of each kind")
    smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    episodes = load_demonstrations(DOOR / "door-v0_demos.pickle")
    labels = DOOR / "door-human-v1_human_labels"
    pairs = load_labels(labels, episodes, crossing="keep").comparisons
    rng = np.random.default_rng(0)
    shuffled = [
        replace(pairs, preference=rng.permutation(pairs.preference))
        for _ in range(1 if smoke else 5)
    ]
    ours = RewardSettings(epochs=1 if smoke else None)
    base = FitConfig(DOOR, labels, out=RESULTS, reward=ours)
    kinds = {
        "mlp x 3": base,
        "mlp x 3, crossing pairs dropped": replace(base, crossing="drop"),
        "linear": replace(base, reward=replace(ours, hidden=(), members=1)),
    }
    draws = 2 if smoke else 20
    rows = []
    for name, config in kinds.items():
        for split, results in (
            ("pair", by_pair(config, episodes, pairs)),
            ("demonstration", by_demonstration(config, episodes, pairs, draws)),
        ):
            began = time.perf_counter()
            rows.append(row(name, split, list(results), time.perf_counter() - began))
            print(rows[-1], flush=True)
    began = time.perf_counter()
    results = [part for each in shuffled for part in by_pair(base, episodes, each)]
    rows.append(row("mlp x 3, labels shuffled", "pair", results, time.perf_counter() - began))
    print(rows[-1])
    if not smoke:
        write(RESULTS, rows)


if __name__ == "__main__":
    main()
