"""How well a reward is fitted to answers of which some are wrong: the default fit beside a search.

500 answers of a HalfCheetah run, of which a share is turned round, are fitted by the library's
defaults and by every fixed setting of a grid over epochs, weight decay, noise and width. What
counts is the accuracy on 2,000 pairs of clips that no fit has seen, against the true returns. The
best fixed setting of each share is chosen by these pairs, which no user could do.

    python recipes/online_table.py --tasks halfcheetah --conditions learned --comparisons 700
        --seeds 0    # the run
    python recipes/wrong_answers.py [--run FOLDER] [--wrong 0.1 0.2 0.35]
    python recipes/wrong_answers.py --table   # of the stored rows

Rows are added as they come, and those that are there are not computed again.
"""

import argparse
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from annotators_trust import gaits
from result_tables import Row, keep, read

from preferl.data import Comparisons
from preferl.data.arrays import load_comparisons
from preferl.feedback import ScriptedTeacher
from preferl.feedback.instant import sample_comparisons
from preferl.models import MLPRewardConfig, infer_spaces
from preferl.models.build import build_reward_model
from preferl.training import RewardTrainer, RewardTrainerConfig

RESULTS = Path(__file__).parent / "results" / "wrong_answers.csv"
RUN = Path("runs/online_table/halfcheetah/700/learned/0/run")
COLUMNS = ("wrong", "seed", "fit", "width", "decay", "noise", "epochs", "accuracy")
LENGTH = 50
ANSWERS = 500
UNSEEN = 2_000
WRONG = (0.1, 0.2, 0.35)
EPOCHS = (2, 5, 10, 15, 20, 30, 50)
WIDTHS = (64, 128)
DECAYS = (0.01, 1.0, 10.0)
NOISES = (0.0, 0.2, 0.5)
DEFAULT = "default"
FIXED = "fixed"


def answers_of(options: argparse.Namespace) -> tuple[Comparisons, Comparisons]:
    """Right answers to learn from, and unseen pairs of the clips of other answers of the run."""
    rng = np.random.default_rng(35)
    oracle = ScriptedTeacher.oracle()
    if options.smoke:
        known = sample_comparisons(gaits(10, 200, rng), 60, LENGTH, oracle, rng)
        answers = 40
        unseen = 50
    else:
        known = load_comparisons(options.run / "comparisons")
        answers = ANSWERS
        unseen = UNSEEN
    known = known[rng.permutation(len(known))]
    others = known[answers:].compact().segments.episodes()
    return known[:answers].compact(), sample_comparisons(others, unseen, LENGTH, oracle, rng)


def with_errors(right: Comparisons, wrong: float, seed: int) -> Comparisons:
    """The same answers, of which exactly this share is turned round."""
    rng = np.random.default_rng([35, seed])
    flipped = rng.permutation(len(right))[: round(wrong * len(right))]
    preference = right.preference.copy()
    preference[flipped] = 1 - preference[flipped]
    return replace(right, preference=preference)


def trainer_of(train: Comparisons, width: int, seed: int, **settings: object) -> RewardTrainer:
    spaces = infer_spaces(train.segments.observations, train.segments.actions)
    model = MLPRewardConfig(hidden=(width, width), members=3)
    config = RewardTrainerConfig(**settings)
    return RewardTrainer(build_reward_model(model, *spaces, seed=seed), config, seed=seed)


def grid(smoke: bool) -> list[dict[str, object]]:
    """The settings of each fit: the defaults, and the fixed ones of the search."""
    epochs = 2 if smoke else max(EPOCHS)
    fixed = [
        {"fit": FIXED, "width": width, "decay": decay, "noise": noise, "epochs": epochs}
        for width, decay, noise in product(WIDTHS, DECAYS, NOISES)
    ]
    return [{"fit": DEFAULT}, *fixed]


def rows_of(
    train: Comparisons, unseen: Comparisons, setting: dict[str, object], seed: int
) -> list[dict[str, object]]:
    """The rows of one fit: of the defaults the state that remains, of the others some epochs."""
    if setting["fit"] == DEFAULT:
        trainer = trainer_of(train, 64, seed)
        epoch = trainer.fit(train).best_epoch
        config = trainer.config
        accuracy = round(trainer.evaluate(unseen)[1], 4)
        own = {"decay": config.weight_decay, "noise": config.noise, "epochs": epoch}
        return [{**setting, "width": 64, **own, "accuracy": accuracy}]
    settings = {"weight_decay": setting["decay"], "noise": setting["noise"], "patience": None}
    trainer = trainer_of(train, setting["width"], seed, epochs=setting["epochs"], **settings)
    known: dict[int, float] = {}

    def seen(epoch: int, _: object) -> None:
        if epoch in EPOCHS:
            known[epoch] = round(trainer.evaluate(unseen)[1], 4)

    trainer.fit(train, on_epoch=seen)
    return [{**setting, "epochs": epoch, "accuracy": each} for epoch, each in known.items()]


def table(rows: list[Row]) -> None:
    """Print, for each share of wrong answers, the defaults beside the best fixed setting."""
    for wrong in sorted({float(row["wrong"]) for row in rows}):
        found: dict[tuple[str, ...], list[float]] = {}
        for row in rows:
            if float(row["wrong"]) == wrong:
                setting = tuple(row[name] for name in ("width", "decay", "noise", "epochs"))
                key = (row["fit"], *(setting if row["fit"] == FIXED else ()))
                found.setdefault(key, []).append(float(row["accuracy"]))
        own = found.pop((DEFAULT,))
        key, best = max(found.items(), key=lambda item: float(np.mean(item[1])))
        print(
            f"{wrong:.0%} wrong: default {np.mean(own):.3f} ({min(own):.3f} to {max(own):.3f}), "
            f"best of {len(found)} fixed {np.mean(best):.3f} ({min(best):.3f} to {max(best):.3f}; "
            f"width {key[1]}, decay {key[2]}, noise {key[3]}, {key[4]} epochs), "
            f"difference {100 * (np.mean(own) - np.mean(best)):+.1f} points, {len(own)} seeds"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, default=RUN, help="folder of a HalfCheetah run")
    parser.add_argument("--wrong", type=float, nargs="+", default=WRONG, help="shares")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("--smoke", action="store_true", help="seconds; learns little")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.smoke:
        options.out = Path(tempfile.mkdtemp(), RESULTS.name)
        options.seeds = [0]
    if not (options.table or options.smoke or options.run.is_dir()):
        parser.error(f"no run at {options.run}; the first command above makes it")
    if not options.table:
        right, unseen = answers_of(options)
        known = {tuple(row[name] for name in COLUMNS[:-2]) for row in read(options.out)}
        known |= {(*key[:3], "", "", "") for key in known if key[2] == DEFAULT}
        for seed, wrong in product(options.seeds, options.wrong):
            train = with_errors(right, wrong, seed)
            about = {"wrong": wrong, "seed": seed}
            for setting in grid(options.smoke):
                key = {name: str((about | setting).get(name, "")) for name in COLUMNS[:-2]}
                if tuple(key.values()) not in known:
                    found = rows_of(train, unseen, setting, seed)
                    made = [{name: (about | row)[name] for name in COLUMNS} for row in found]
                    keep(options.out, made, COLUMNS[:-1])
            print(f"{wrong:.0%} wrong, seed {seed}: done", flush=True)
    table(read(options.out))


if __name__ == "__main__":
    main()
