"""A pendulum taught to stand by comparisons, beside controls (Christiano et al. 2017).

Each seed: an agent taught by a scripted teacher, one by the same teacher with every answer
turned round, one with answers drawn at random, one by a teacher who errs as people do, and one that
learns from the true reward. After a kill, the same command goes on with the agents that are not in
the table.

    python recipes/drlhp_pendulum.py                  # 200 answers
    python recipes/drlhp_pendulum.py --table demo     # as `preferl demo`, 40 answers

The table of the demo, written down before its first run: "taught" with the seeds 0 to 4, which
README and the tests have, and 220 to 239, which had never been used; "random answers" and "person"
with 220 to 224, and "negated answers" with 0 to 2. The length of the run was chosen on the seeds
100 to 119 (`--table demo_choice`): in an earlier table, of 12,000 steps, one of twenty agents did
not stand.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from result_tables import keep, read

from preferl.configs import from_json
from preferl.evaluation import PolicyReport, evaluate_policy
from preferl.feedback import ScriptedTeacher
from preferl.online import OnlineConfig, learn_from_preferences, train_on_true_reward
from preferl.presets import load_preset

RESULTS = Path(__file__).parent / "results"
TEACHERS = {
    "taught": {},
    "negated answers": {"error_rate": 1.0},
    "random answers": {"guess_rate": 1.0},
    "person": {},
    "true reward": None,
}
FIRST = [0, 1, 2, 3, 4]
FRESH = list(range(220, 240))
TABLES = {
    "drlhp_pendulum": {
        "taught": FIRST,
        "negated answers": FIRST,
        "random answers": FIRST,
        "true reward": FIRST,
    },
    "demo": {
        "taught": FIRST + FRESH,
        "random answers": FRESH[:5],
        "person": FRESH[:5],
        "negated answers": FIRST[:3],
    },
    "demo_choice": {"taught": list(range(100, 120))},
}
"""By the name of a file of results: the seeds of each teacher."""
ANSWERS = {"drlhp_pendulum": 200, "demo": 40, "demo_choice": 40}
KEY = ("teacher", "seed")


def learned(config: OnlineConfig, teacher: str) -> tuple[object, int, int]:
    """The agent that a teacher makes, environment steps, answers."""
    changes = TEACHERS[teacher]
    if changes is None:
        return train_on_true_reward(config), config.steps, 0
    person = ScriptedTeacher.person() if teacher == "person" else config.teacher
    report = learn_from_preferences(replace(config, teacher=replace(person, **changes)))
    return report.learner.algorithm, report.env_steps, len(report.comparisons)


def row(teacher: str, config: OnlineConfig, episodes: int) -> dict[str, object]:
    """One agent, evaluated on so many episodes of the true reward."""
    began = time.perf_counter()
    agent, steps, answers = learned(config, teacher)
    seconds = time.perf_counter() - began
    report: PolicyReport = evaluate_policy(agent, config.env, episodes=episodes, seed=10_000)
    return {
        "teacher": teacher,
        "seed": config.seed,
        "mean": round(report.mean, 1),
        "median": round(report.median, 1),
        "worst": round(float(report.returns.min()), 1),
        "env_steps": steps,
        "comparisons": answers,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", choices=TABLES, default="drlhp_pendulum")
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = from_json(OnlineConfig, load_preset("pendulum"))
    config = replace(config, comparisons=ANSWERS[options.table], eval_every=0)
    if options.smoke:
        config = replace(config, steps=1_200, initial_steps=900, iterations=1, comparisons=10)
        for teacher in TEACHERS:
            print(row(teacher, config, episodes=2), flush=True)
        return
    out = RESULTS / f"{options.table}.csv"
    for teacher, seeds in TABLES[options.table].items():
        for seed in seeds:
            done = {(line["teacher"], int(line["seed"])) for line in read(out)}
            if (teacher, seed) not in done:
                line = row(teacher, replace(config, seed=seed), episodes=100)
                keep(out, [{name: str(value) for name, value in line.items()}], KEY)
                print(line, flush=True)
        means = [float(line["mean"]) for line in read(out) if line["teacher"] == teacher]
        print(f"{teacher}: median {np.median(means):.0f}, worst {min(means):.0f}", flush=True)


if __name__ == "__main__":
    main()
