"""Runs that work beside runs that do not, and the pictures of the page "Is it working?".

Each run is a pendulum taught by 200 comparisons with the preset `pendulum-ppo`: by a teacher who is
right, by one who guesses, by one who reverses each answer, and by one who errs in a fifth of the
answers while the fit goes on for far too long.

    python recipes/is_it_working.py [--seed 0] [--smoke]
    python recipes/is_it_working.py --draw    # the pictures alone, from the stored numbers
"""

import argparse
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from result_tables import Row, read, write, write_svg

from preferl.configs import from_json
from preferl.evaluation.plots import Curve, condition_scores, learning_curves
from preferl.online import OnlineConfig, learn_from_preferences
from preferl.presets import load_preset

RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "docs/images"
RUNS = {
    "right": {"teacher": {}},
    "guesses": {"teacher": {"guess_rate": 1.0}},
    "reversed": {"teacher": {"error_rate": 1.0}},
    "errs, long fits": {
        "teacher": {"error_rate": 0.2},
        "trainer": {"epochs": 400, "weight_decay": 0.0},
    },
}


def rows_of(name: str, config: OnlineConfig) -> list[dict[str, object]]:
    """One run, a row per iteration."""
    changed = {part: replace(getattr(config, part), **more) for part, more in RUNS[name].items()}
    rows: list[dict[str, object]] = []
    for one in learn_from_preferences(replace(config, **changed)).iterations:
        row: dict[str, object] = {"run": name, "iteration": one.iteration}
        row |= {"env_steps": one.env_steps, "comparisons": one.comparisons}
        row["true_return"] = round(one.mean_return, 1)
        fit = asdict(one.fit) if one.fit else {}
        for metric in ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy"):
            row[metric] = round(float(fit[metric][-1]), 4) if fit else ""
        row["decided"] = fit.get("decided", "")
        rows.append(row)
        print(row, flush=True)
    return rows


def columns(rows: list[Row], run: str, *names: str) -> list[np.ndarray]:
    """Numbers of a run by iteration, without those that have none."""
    kept = [row for row in rows if row["run"] == run and all(row[name] for name in names)]
    return [np.array([float(row[name]) for row in kept]) for name in names]


def picture(name: str) -> Path:
    return PICTURES / f"is-it-working-{name}.svg"


def draw(rows: list[Row]) -> None:
    """All pictures of the page."""
    curves = [Curve(run, *columns(rows, run, "comparisons", "validation_accuracy")) for run in RUNS]
    labels = {"x_label": "answers", "y_label": "accuracy, out-of-bag answers"}
    write_svg(picture("accuracy"), learning_curves(curves, references={"guessing": 0.5}, **labels))
    curves = [
        Curve(f"{short}: {kind}", *columns(rows, run, "comparisons", f"{metric}_loss"))
        for run, short in (("right", "right"), ("errs, long fits", "errs"))
        for kind, metric in (("training", "train"), ("out-of-bag", "validation"))
    ]
    labels = {"x_label": "answers", "y_label": "loss, nats per answer"}
    write_svg(picture("loss"), learning_curves(curves, references={"guessing": 0.693}, **labels))
    curves = [Curve(run, *columns(rows, run, "env_steps", "true_return")) for run in RUNS]
    write_svg(picture("return"), learning_curves(curves, y_label="return by the true reward"))
    for name, file, score, emphasis, label in (
        ("pendulum", "drlhp_pendulum.csv", ("teacher", "mean"), "taught", "true return"),
        ("door", "pt_door_human.csv", ("condition", "score"), "mr", "score on D4RL's scale"),
    ):
        stored: dict[str, list[float]] = {}
        for row in read(RESULTS / file):
            stored.setdefault(row[score[0]], []).append(float(row[score[1]]))
        scores = {condition: np.array(each) for condition, each in stored.items()}
        write_svg(picture(name), condition_scores(scores, emphasis=emphasis, x_label=label))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draw", action="store_true", help="draw what is stored, run nothing")
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    if not options.draw:
        torch.set_num_threads(1)
        config = replace(from_json(OnlineConfig, load_preset("pendulum-ppo")), seed=options.seed)
        if options.smoke:
            few = {"steps": 4_000, "initial_steps": 1_000, "iterations": 2, "comparisons": 12}
            rows_of("right", replace(config, **few, initial_epochs=2))
            return
        rows = [row for name in RUNS for row in rows_of(name, config)]
        write(RESULTS / "is_it_working.csv", rows)
    draw(read(RESULTS / "is_it_working.csv"))


if __name__ == "__main__":
    main()
