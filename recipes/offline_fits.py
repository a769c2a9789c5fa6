"""Ways to fit a reward to answers about recorded episodes: which one do unseen answers prefer?

A fifth of the episodes is left out. A perfect teacher answers queries about segments of 25 steps of
the others, and each alternative of a fit (a bounded head, cropped clips, both), a fit to ranked
lists and one to what these imply learn from as many answers. `unseen_loss` is what a choice goes
by: the loss on answers that members have not seen. `log_loss` and `accuracy` are of 2,000 pairs
from the episodes that were left out, which are the same for all numbers of answers of a seed. With
--errors some answers are wrong.

One row for each fit in `results/offline_fits.csv`; after a kill, the same command goes on. It
leaves out what this file has, also on another machine. The data are those of `offline_table.py`.

    python recipes/offline_fits.py --data button-press-topdown --answers 100 500 1000
    python recipes/offline_fits.py --errors 0.3
    python recipes/offline_fits.py --summary
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from offline_table import LENGTH, episodes_of, prepare
from result_tables import Row, add_executor_options, keep, read, run_table

from preferl.configs import from_json
from preferl.data import Comparisons, Episodes, load_episodes
from preferl.evaluation import evaluate_reward
from preferl.feedback import ScriptedTeacher
from preferl.feedback.instant import sample_comparisons
from preferl.feedback.ranked_lists import sample_ranked
from preferl.models import infer_spaces
from preferl.online import DatasetConfig
from preferl.online.dataset import record_seeds
from preferl.presets import load_preset
from preferl.runs.executor import Unit
from preferl.training import RewardFunction, RewardPreset, RewardSettings

RESULTS = Path(__file__).parent / "results"
KEY = ("data", "errors", "answers", "seed", "fit")
PAIRS = 2_000


def work(settings: Mapping[str, Any], folder: Path) -> None:
    """All fits of one seed, the work of a unit; its rows lie in `rows.csv` in its folder."""
    runs = folder.parents[4]  # of RUNS/fits/NAME/ERRORS/ANSWERS/SEED
    known, pairs = split(load_episodes(episodes_of(settings["data"], runs)), settings)
    spaces = infer_spaces(known.observations, known.actions)
    rows = []
    for name, (preset, answers) in fits_of(known, settings).items():
        model, report = preset.fit(answers, *spaces, seed=settings["seed"])
        found = evaluate_reward(RewardFunction(model, likelihood=report.likelihood), pairs)
        numbers = (report.unseen_loss, found.log_loss, found.accuracy)
        row = dict(zip(KEY, (*key_of(settings), name), strict=True))
        named = zip(("unseen_loss", "log_loss", "accuracy"), numbers, strict=True)
        rows.append(row | {of: f"{value:.4f}" for of, value in named})
    keep(folder / "rows.csv", rows, KEY)


def split(episodes: Episodes, settings: Mapping[str, Any]) -> tuple[Episodes, Comparisons]:
    """Episodes to learn from, and pairs of the others; whatever the number of answers is."""
    rng = np.random.default_rng(settings["seed"])
    unseen, seen = np.split(rng.permutation(len(episodes)), [max(1, len(episodes) // 5)])
    oracle = ScriptedTeacher.oracle()
    count = settings["pairs"]
    return episodes[seen], sample_comparisons(episodes[unseen], count, LENGTH, oracle, rng)


def fits_of(
    known: Episodes, settings: Mapping[str, Any]
) -> dict[str, tuple[RewardPreset, Comparisons]]:
    """What is fitted, by name, and the answers to which it is."""
    count = settings["answers"]
    teacher = ScriptedTeacher.mistake(settings["errors"])
    drawn = known, count, LENGTH, teacher
    rng = np.random.default_rng([settings["seed"], count])
    given = sample_comparisons(*drawn, rng)
    ranked = sample_ranked(*drawn, rng, lists=max(4, count // 100))
    preset = RewardSettings(epochs=settings["epochs"]).preset(length=LENGTH, answers=count)
    fits = {name: (one, given) for name, one in preset.alternatives(LENGTH).items()}
    implied = replace(preset, trainer=replace(preset.trainer, implied=True))
    return fits | {"ranked": (preset, ranked), "ranked, implied": (implied, ranked)}


def key_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """A unit's rows by `KEY`, but for the fit, as texts; they are stored together."""
    return tuple(str(settings[name]) for name in KEY[:-1])


def units_of(options: argparse.Namespace) -> list[Unit]:
    """All that is asked for and not in the table, a unit for each seed."""
    stored = {tuple(row[name] for name in KEY[:-1]) for row in read(options.out)}
    units = [
        unit_of(options, name, count, seed)
        for name in options.data
        for count in options.answers
        for seed in options.seeds
    ]
    left = [unit for unit in units if key_of(unit.settings) not in stored]
    for name in dict.fromkeys(unit.settings["data"] for unit in left):
        prepare(name, options)
    return left


def unit_of(options: argparse.Namespace, name: str, count: int, seed: int) -> Unit:
    """All fits of one seed, in settings that hold no path."""
    about = {"data": name, "errors": options.errors, "answers": count, "seed": seed}
    about |= {"pairs": options.pairs, "epochs": options.epochs}
    folder = options.runs / f"fits/{name}/{options.errors}/{count}/{seed}"
    title = f"{name}, {count} answers, {options.errors:.0%} wrong, seed {seed}"
    return Unit(title, f"{Path(__file__).stem}:{work.__name__}", about, folder)


def collect(units: list[Unit], out: Path) -> None:
    """Bring rows of units into the table."""
    for unit in units:
        keep(out, read(unit.folder / "rows.csv"), KEY)


def summary(rows: list[Row]) -> None:
    """Means over seeds, and how often the least unseen loss names the least log loss."""
    for about in sorted({(row["data"], row["errors"], int(row["answers"])) for row in rows}):
        own = [r for r in rows if (r["data"], r["errors"], int(r["answers"])) == about]
        print("{}, {} wrong, {:,} answers".format(*about))
        for fit in dict.fromkeys(row["fit"] for row in own):
            of = [row for row in own if row["fit"] == fit]
            names = ("unseen_loss", "log_loss", "accuracy")
            means = (np.mean([float(row[name]) for row in of]) for name in names)
            print(
                f"  {fit} ({len(of)}): unseen {{:.3f}}, log loss {{:.3f}}, {{:.3f}}".format(*means)
            )
        right = []
        for seed in {row["seed"] for row in own}:
            plain = [r for r in own if r["seed"] == seed and not r["fit"].startswith("ranked")]
            chosen, best = (
                min(plain, key=lambda row: float(row[name]))["fit"]
                for name in ("unseen_loss", "log_loss")
            )
            right.append(chosen == best)
        print(f"  the choice by unseen answers was the best of {len(plain)}: {np.mean(right):.0%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["button-press-topdown"])
    parser.add_argument("--answers", type=int, nargs="+", default=[100, 500, 1_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--errors", type=float, default=0.0, help="share of wrong answers")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="to evaluate by")
    parser.add_argument("--epochs", type=int, help="of each fit; the library's by default")
    add_executor_options(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/offline_table"), help="and data")
    parser.add_argument("--out", type=Path, default=RESULTS / "offline_fits.csv")
    parser.add_argument("--summary", action="store_true", help="print a summary, run nothing")
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    if options.summary:
        summary(read(options.out))
        return 0
    if not options.smoke:
        return run_table(units_of(options), partial(collect, out=options.out), options)
    with tempfile.TemporaryDirectory(prefix="preferl-table-") as name:
        options.runs = Path(name) / "runs"
        options.out = Path(name) / "table.csv"
        options.data = ["halfcheetah"]
        options.seeds = [0]
        options.answers = [40]
        options.pairs = 20
        options.epochs = 1
        config = from_json(DatasetConfig, load_preset("halfcheetah", "data") | {"mix": "random:5"})
        record_seeds(config, options.runs / "data/halfcheetah", [0], report_to=())
        code = run_table(units_of(options), partial(collect, out=options.out), options)
        summary(read(options.out))
        return code


if __name__ == "__main__":
    sys.exit(main())
