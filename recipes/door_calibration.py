"""Whether probabilities of the default door reward come true, on answers it never saw.

The 1,600 comparisons of `door_human_reward.py`, with its folds by pair (three seeds) and its draws
of five demonstrations, those once more without the pairs that run across a demonstration's end.
Each fit is validated with the noise of its training ignored, with that noise,
and with noise and scale fitted to its out-of-bag answers. Ties are left out of all numbers, and
calibration has ten bins. Fits that `--keep` holds are not made again.

    PREFERL_SHARED=../shared python recipes/door_calibration.py [--smoke] [--keep FOLDER]
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from door_human_reward import DOOR, HELD_OUT, RESULTS
from result_tables import write

from preferl.cli.reward import FitConfig, fit_reward
from preferl.data import Comparisons, Episodes, folds, split_off_episodes
from preferl.data.arrays import load_arrays, save_arrays
from preferl.data.sources import load_demonstrations, load_labels
from preferl.evaluation import calibration
from preferl.feedback import Likelihood
from preferl.training import RewardSettings

TABLE = RESULTS.with_name("door_calibration.csv")
DRAWS = 20


@dataclass(frozen=True, eq=False)
class Part:
    """One fit: what it is called, and the answers that it is trained and validated on."""

    split: str
    seed: int
    number: int
    train: Comparisons
    test: Comparisons


def parts(
    episodes: Episodes, pairs: Comparisons, whole: Comparisons, seeds: int, draws: int
) -> Iterator[Part]:
    """All fits, those by pair first; `whole` are the pairs that cross no demonstration's end."""
    for seed in range(seeds):
        fold = folds(pairs, 5, np.random.default_rng(seed))
        for number in range(5):
            yield Part("pair", seed, number, pairs[fold != number], pairs[fold == number])
    for draw in range(draws):
        held = np.random.default_rng([0, draw]).permutation(len(episodes))[:HELD_OUT]
        yield Part("demonstration", 0, draw, *split_off_episodes(pairs, held))
        yield Part("demonstration-whole", 0, draw, *split_off_episodes(whole, held))


def predicted(
    part: Part, config: FitConfig, episodes: Episodes, keep: Path
) -> dict[str, np.ndarray]:
    """Logits `[E, P]` of decided answers `[P]`, and the fitted likelihood; made once."""
    folder = keep / f"{part.split}-{part.seed}-{part.number}"
    if not folder.is_dir():
        reward, _ = fit_reward(replace(config, seed=part.seed), episodes, part.train)
        test = part.test[part.test.decided].compact()
        scores = reward.scores(test.segments)[:, test.pairs]  # [E, P, 2]
        held = {
            "logits": scores[..., 0] - scores[..., 1],
            "preference": test.preference,
            "fitted": np.array([reward.likelihood.noise, reward.likelihood.scale]),
        }
        save_arrays(folder, held, {"kind": "predictions"})
    return load_arrays(folder, memory_map=False)[0]


def likelihoods(found: dict[str, np.ndarray], trained: float) -> dict[str, Likelihood]:
    """By name, those that the table compares."""
    return {
        "noise ignored": Likelihood(),
        "noise of training": Likelihood(trained),
        "fitted": Likelihood(*found["fitted"].tolist()),
    }


def answered_by(logits: np.ndarray, likelihood: Likelihood) -> np.ndarray:
    """`[2, P]` logarithms of the members' mean probability that the first, or second, wins."""
    each = likelihood.log_probability(np.stack([logits, -logits]))  # [2, E, P]
    return np.logaddexp.reduce(each, axis=1) - np.log(len(logits))


def row(about: dict[str, object], log: np.ndarray, preference: np.ndarray) -> dict[str, object]:
    """Numbers of predictions `[2, P]` beside the answers `[P]`."""
    loss = -np.where(preference > 0.5, log[0], log[1])
    return about | {
        "decided": len(preference),
        "log_loss": round(float(loss.mean()), 4),
        "calibration_error": round(calibration(np.exp(log[0]), preference).error or 0.0, 4),
        "accuracy": round(float(((log[0] > log[1]) == (preference > 0.5)).mean()), 4),
    }


def rows_of(
    found: dict[Part, dict[str, np.ndarray]], trained: float
) -> Iterator[dict[str, object]]:
    """A row for each fit and likelihood, then for each split and seed all answers pooled."""
    pools: dict[tuple[str, int, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    for part, held in found.items():
        for name, likelihood in likelihoods(held, trained).items():
            log = answered_by(held["logits"], likelihood)
            about = {"split": part.split, "seed": part.seed, "part": part.number}
            yield row(about | {"likelihood": name}, log, held["preference"]) | {
                "noise": round(likelihood.noise, 4),
                "scale": round(likelihood.scale, 4),
            }
            pool = pools.setdefault((part.split, part.seed, name), [])
            pool.append((log, held["preference"]))
    for (split, seed, name), pooled in pools.items():
        about = {"split": split, "seed": seed, "part": "pooled", "likelihood": name}
        log, preference = (np.concatenate(column, -1) for column in zip(*pooled, strict=True))
        yield row(about, log, preference) | {"noise": "", "scale": ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one short fit of each kind")
    parser.add_argument("--keep", type=Path, default=Path("runs/door_calibration"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    episodes = load_demonstrations(DOOR / "door-v0_demos.pickle")
    labels = DOOR / "door-human-v1_human_labels"
    pairs, whole = (
        load_labels(labels, episodes, crossing=crossing).comparisons
        for crossing in ("keep", "drop")
    )
    settings = RewardSettings(epochs=1 if options.smoke else None)
    config = FitConfig(DOOR, labels, out=TABLE, reward=settings)
    trained = settings.preset(length=pairs.segments.length, answers=len(pairs)).trainer.noise
    keep = options.keep / "smoke" if options.smoke else options.keep
    found: dict[Part, dict[str, np.ndarray]] = {}
    for part in parts(episodes, pairs, whole, *((1, 1) if options.smoke else (3, DRAWS))):
        found[part] = predicted(part, config, episodes, keep)
        print(part.split, part.seed, part.number, *found[part]["fitted"].round(3), flush=True)
    rows = list(rows_of(found, trained))
    for one in rows:
        if one["part"] == "pooled":
            print(one)
    if not options.smoke:
        write(TABLE, rows)


if __name__ == "__main__":
    main()
