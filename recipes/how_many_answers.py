"""What agents reach with how many answers, of a person's minutes: a picture of stored numbers.

The share of an agent is (its return - random) / (true - random), where "true" is the same algorithm
on the true reward. Agents of a task differ in the answers that are asked for in all, and in nothing
else. Nothing is run here: `online_table.py`, `offline_table.py` and `drlhp_pendulum.py` make the
numbers.

    python recipes/how_many_answers.py    # prints the shares, and draws the page's picture
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from drlhp_pendulum import FRESH
from offline_table import scores_of
from online_table import PICTURES, RESULTS, finals, tasks_of
from result_tables import read, write_svg

from preferl.evaluation.plots import condition_scores
from preferl.shapes import FloatArray
from preferl.statistics import mean_interval

ANSWERS_A_MINUTE = 12
"""Of a person who compares clips of a second or two gives ten to fifteen."""
RECORDED = "walker-walk"
"""The recorded episodes from which agents learned with several numbers of answers."""
Returns = dict[int, FloatArray]
"""By the answers that are asked for in all: the return of each seed."""


def pendulum() -> tuple[Returns, float, float]:
    """Returns of agents of fresh seeds, or of all with 200 answers; of the true one; at random."""
    taught = [row for row in read(RESULTS / "demo.csv") if row["teacher"] == "taught"]
    many = read(RESULTS / "drlhp_pendulum.csv")
    acted = [row for row in read(RESULTS / "online_table.csv") if row["condition"] == "random"]
    returns = {
        40: np.array([float(row["mean"]) for row in taught if int(row["seed"]) in FRESH]),
        200: np.array([float(row["mean"]) for row in many if row["teacher"] == "taught"]),
    }
    true = np.mean([float(row["mean"]) for row in many if row["teacher"] == "true reward"])
    random = np.mean([float(row["return"]) for row in acted if row["task"] == "pendulum"])
    return returns, float(true), float(random)


def online() -> dict[str, tuple[Returns, float, float]]:
    """By task of the online table that has all three: as `pendulum`, at the last evaluation."""
    rows = read(RESULTS / "online_table.csv")
    tasks: dict[str, tuple[Returns, float, float]] = {}
    for task in tasks_of(rows):
        last = finals(rows, task)
        true = last.get(("true_warm", 0), last.get(("true", 0)))
        random = last.get(("random", 0))
        learned = {budget: np.array(r) for (name, budget), r in last.items() if name == "learned"}
        if learned and true and random:
            tasks[task] = learned, float(np.mean(true)), float(np.mean(random))
    return tasks


def recorded() -> tuple[Returns, float, float]:
    """As `pendulum`, of agents that learned from recorded episodes."""
    scores = scores_of(read(RESULTS / "offline_table_100000.csv"), RECORDED)
    returns = {
        answers: np.array([*seeds.values()])
        for (condition, answers), seeds in scores.items()
        if condition == "learned"
    }
    true = np.mean([*scores["true", max(returns)].values()])
    return returns, float(true), float(np.mean([*scores["random_policy", 0].values()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="where the drawing goes")
    parser.add_argument("--smoke", action="store_true", help="draw into a temporary folder")
    options = parser.parse_args()
    tasks = {"Pendulum": pendulum(), "recorded": recorded(), **online()}
    shares = {
        (answers, task): (of - random) / (true - random)
        for task, (returns, true, random) in tasks.items()
        for answers, of in returns.items()
    }
    rows: dict[str, FloatArray] = {}
    for (answers, task), of in sorted(shares.items(), key=lambda item: item[0]):
        label = f"{answers:,}, {answers / ANSWERS_A_MINUTE:.0f} min: {task}"
        low, high = mean_interval(of) or (of[0], of[0])
        print(f"{label}: {of.mean():.2f} ({low:.2f} to {high:.2f}), {len(of)} seeds")
        rows[label] = of
    chart = condition_scores(rows, x_label="share of the way")
    with tempfile.TemporaryDirectory(prefix="preferl-picture-") as folder:
        pictures = Path(folder) if options.smoke else options.pictures
        write_svg(pictures / "how-many-answers.svg", chart)


if __name__ == "__main__":
    main()
