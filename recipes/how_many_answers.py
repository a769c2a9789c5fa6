"""What agents reach with how many answers, of a person's minutes: a picture of stored numbers.

The share of an agent is (its return - random) / (true - random), where "true" is the same algorithm
on the true reward. Agents of a task differ in the answers that are asked for in all, and in nothing
else. Nothing is run here: `online_table.py`, `offline_table.py` and `drlhp_pendulum.py` make the
numbers. The shares of agents that learned while they acted are also written into the package, where
`preferl online run` finds what it quotes for its number of answers.

    python recipes/how_many_answers.py    # prints, draws the page's picture, writes the shares
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from drlhp_pendulum import FRESH
from offline_table import scores_of
from online_table import PICTURES, RESULTS, finals, last_steps, settings_of, tasks_of
from result_tables import read, write_svg

from preferl import presets
from preferl.evaluation.plots import condition_scores
from preferl.files import write_json
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


def shares_of(tasks: dict[str, tuple[Returns, float, float]]) -> dict[tuple[str, int], FloatArray]:
    """By task and number of answers: the share of the way of each seed."""
    return {
        (task, answers): (returned - random) / (true - random)
        for task, (returns, true, random) in tasks.items()
        for answers, returned in sorted(returns.items())
    }


def written(shares: dict[tuple[str, int], FloatArray]) -> Iterator[dict[str, Any]]:
    """Rows of the package's file, see `preferl.presets.MeasuredShare`."""
    last = last_steps(RESULTS / "online_table.csv")
    for (task, answers), share in shares.items():
        settings = settings_of(task)
        agent = (task, "learned", str(answers))
        made = [steps for key, steps in last.items() if key[:3] == agent]
        low, high = mean_interval(share) or (None, None)
        yield {
            "env": settings["env"],
            "preset": task,
            "steps": max(made, default=settings["steps"]),
            "answers": answers,
            "share": round(float(share.mean()), 3),
            "low": None if low is None else round(low, 3),
            "high": None if high is None else round(high, 3),
            "seeds": len(share),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="where the drawing goes")
    parser.add_argument("--smoke", action="store_true", help="write into a temporary folder")
    options = parser.parse_args()
    acted = shares_of({"pendulum": pendulum(), **online()})
    rows: dict[str, FloatArray] = {}
    for (task, answers), share in {
        **acted,
        **shares_of({f"recorded {RECORDED}": recorded()}),
    }.items():
        label = f"{task}: {answers:,} ({answers / ANSWERS_A_MINUTE:.0f} min)"
        low, high = mean_interval(share) or (share[0], share[0])
        print(f"{label}: {share.mean():.2f} ({low:.2f} to {high:.2f}), {len(share)} seeds")
        rows[label] = share
    chart = condition_scores(rows, x_label="share of the way")
    with tempfile.TemporaryDirectory(prefix="preferl-picture-") as folder:
        pictures = Path(folder) if options.smoke else options.pictures
        write_svg(pictures / "how-many-answers.svg", chart)
        package = Path(folder) if options.smoke else Path(presets.__file__).parent
        write_json(package / presets.SHARES, {"shares": [*written(acted)]})


if __name__ == "__main__":
    main()
