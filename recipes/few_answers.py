"""Rewards from 20, 50 and 100 answers: which fit predicts unseen answers and true rewards best?

Three tasks give the experience of agents that were learning: `button-press-topdown` and
`sweep-into` of Meta-World, read from `PREFERL_SHARED`, and `pendulum`, the first 6,000 steps of a
small soft actor-critic that this recipe trains. A fifth of the episodes is left out. A perfect
teacher answers queries about uniform pairs of clips of 25 steps of the others. All fits of a seed
learn from the same answers.

`default` is what an online run fits. Each other fit changes one thing of it:

    small, large            two hidden layers of 32, or of 128 units
    decay, dropout          weight decay of 1, or a tenth of the hidden units dropped
    states                  without actions as inputs
    bounded                 rewards of steps in (-1, 1)
    1, 5, 7 members         in place of 3
    sub-clips               clips lose up to a fifth of their steps, others in each pass (QPA, SURF)
    pseudo-answers          a second fit to answers of the first one, where it is sure (SURF)
    warm                    a fit to half of the answers, which goes on with all of them
    long                    200 epochs without an early stop
    offline                 the preset "mlp" of `preferl reward fit`
    self-prediction         hidden layers that first learn to predict the next step's (REED)

One row of `results/few_answers.csv` for each fit: accuracy and log loss on 1,000 pairs of unseen
episodes, and rank correlations with the true reward of their steps and with the true returns of
their clips. After a kill, the same command goes on. Seeds from 0 are those of the table; try
settings on seeds from 100.

    python recipes/few_answers.py
    python recipes/few_answers.py --summary    # means, and paired differences from the default
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from offline_table import SHARED, shared_episodes
from result_tables import Row, keep, processor, read

from preferl.data import Comparisons, Episodes, load_episodes
from preferl.data.episodes import join
from preferl.evaluation import evaluate_reward
from preferl.feedback import PseudoLabels, ScriptedTeacher
from preferl.feedback.instant import sample_comparisons
from preferl.feedback.preparations import FitContext
from preferl.models import RewardModel, build_reward_model, infer_spaces
from preferl.online import DatasetConfig, OnlineConfig, SACConfig
from preferl.online.dataset import record_seeds
from preferl.runs.provenance import git_revision
from preferl.statistics import mean_interval, spearman
from preferl.threads import torch_threads
from preferl.training import (
    FitReport,
    RewardFunction,
    RewardTrainer,
    predict_next_steps,
    reward_preset,
)

RESULTS = Path(__file__).parent / "results"
KEY = ("task", "condition", "budget", "seed")
MEASURES = ("accuracy", "log_loss", "spearman_steps", "spearman_clips")
TASKS = ("button-press-topdown", "sweep-into", "pendulum")
ANSWERS = (20, 50, 100)
LEAST = 5
"""Draws; a summary leaves out what has fewer."""
LENGTH = 25
PAIRS = 1_000
RECORDED = DatasetConfig(
    env="Pendulum-v1",
    mix="replay:all",
    train_steps=6_000,
    checkpoint_every=6_000,
    eval_episodes=1,
    algorithm=SACConfig(
        hidden=(64, 64),
        batch_size=128,
        buffer_size=6_000,
        learning_rate=1e-3,
        gamma=0.98,
        tau=0.02,
    ),
)

Fit = Callable[[Comparisons, Episodes, int], tuple[RewardModel, FitReport]]
"""Answers, all experience without the unseen episodes, and a seed to a fitted model."""


def settings(**changes: Any) -> tuple[Any, Any]:
    """Settings of the model and of the trainer of an online run, changed by name."""
    default = OnlineConfig()
    parts = []
    for part in (default.model, default.trainer):
        own = {name: value for name, value in changes.items() if hasattr(part, name)}
        parts.append(replace(part, **own))
    return parts[0], parts[1]


def trainer_of(answers: Comparisons, seed: int, model: Any, trainer: Any) -> RewardTrainer:
    """A trainer of a fresh model for the spaces of these answers."""
    spaces = infer_spaces(answers.segments.observations, answers.segments.actions)
    return RewardTrainer(build_reward_model(model, *spaces, seed=seed), trainer, seed=seed)


def fit_once(**changes: Any) -> Fit:
    """One fit to all answers."""

    def fit(answers: Comparisons, _: Episodes, seed: int) -> tuple[RewardModel, FitReport]:
        trainer = trainer_of(answers, seed, *settings(**changes))
        return trainer.model, trainer.fit(answers)

    return fit


def fit_offline(answers: Comparisons, _: Episodes, seed: int) -> tuple[RewardModel, FitReport]:
    """The preset of `preferl reward fit`."""
    preset = reward_preset("mlp")
    trainer = trainer_of(answers, seed, preset.model, preset.trainer)
    return trainer.model, trainer.fit(answers)


def fit_warm(answers: Comparisons, _: Episodes, seed: int) -> tuple[RewardModel, FitReport]:
    """A fit to the first half of the answers, and one to all of them that goes on."""
    trainer = trainer_of(answers, seed, *settings())
    trainer.fit(answers[: len(answers) // 2])
    return trainer.model, trainer.fit(answers)


def fit_pseudo(
    answers: Comparisons, experience: Episodes, seed: int
) -> tuple[RewardModel, FitReport]:
    """A fit, and one that goes on with the answers of which the first is sure."""
    trainer = trainer_of(answers, seed, *settings())
    report = trainer.fit(answers)
    context = FitContext(
        reward=RewardFunction(trainer.model, likelihood=report.likelihood),
        experience=experience,
        segment_length=LENGTH,
        rng=np.random.default_rng([seed, 1]),
    )
    prepared = PseudoLabels()(answers, context)
    places = np.where(np.arange(len(prepared)) < len(answers), np.arange(len(prepared)), -1)
    return trainer.model, trainer.fit(prepared, places=places)


def fit_self_predicting(
    answers: Comparisons, experience: Episodes, seed: int
) -> tuple[RewardModel, FitReport]:
    """A fit of layers that learned to predict the next step's on all experience."""
    trainer = trainer_of(answers, seed, *settings())
    predict_next_steps(trainer.model, experience, seed=seed)
    return trainer.model, trainer.fit(answers)


FITS: dict[str, Fit] = {
    "default": fit_once(),
    "small": fit_once(hidden=(32, 32)),
    "large": fit_once(hidden=(128, 128)),
    "decay": fit_once(weight_decay=1.0),
    "dropout": fit_once(dropout=0.1),
    "states": fit_once(use_actions=False),
    "bounded": fit_once(bounded=True),
    "1 member": fit_once(members=1),
    "5 members": fit_once(members=5),
    "7 members": fit_once(members=7),
    "sub-clips": fit_once(crop=LENGTH // 5),
    "pseudo-answers": fit_pseudo,
    "warm": fit_warm,
    "long": fit_once(epochs=200, patience=None),
    "offline": fit_offline,
    "self-prediction": fit_self_predicting,
}


@cache
def experience_of(task: str, runs: Path) -> Episodes:
    """The experience of a task; pendulum's is recorded if it is not there."""
    if task == "button-press-topdown":
        return shared_episodes(SHARED / "metaworld-button-press-topdown")[:200]  # of one agent
    if task == "sweep-into":
        return join([sweep_episodes(file) for file in sorted(sweep_files())])
    folder = runs / "data" / task
    if not (folder / "episodes").is_dir():
        resume = (folder / "config.json").is_file()
        record_seeds(RECORDED, folder, [0], resume=resume, report_to=())
    return load_episodes(folder / "episodes")


def sweep_files() -> list[Path]:
    """One file for each checkpoint of the agent."""
    return list((SHARED / "metaworld-sweep-into").rglob("*.npz"))


def sweep_episodes(file: Path) -> Episodes:
    """Episodes of a file, whose last row holds the next episode's first observation."""
    with np.load(file) as arrays:
        observations, actions, rewards = (
            np.asarray(arrays[name], np.float32) for name in ("observations", "actions", "rewards")
        )
    count, steps = rewards.shape[0], rewards.shape[1] - 1
    return Episodes(
        observations[:, :-1].reshape(count * steps, -1),
        actions[:, :-1].reshape(count * steps, -1),
        rewards[:, :-1].reshape(-1),
        np.zeros(count * steps, bool),
        observations[:, -2],
        np.full(count, steps),
    )


def measure(task: str, budget: int, seed: int, name: str, options: argparse.Namespace) -> Row:
    """Fit once, and return the row."""
    episodes = experience_of(task, options.runs)
    rng = np.random.default_rng(seed)
    unseen, seen = np.split(rng.permutation(len(episodes)), [max(1, len(episodes) // 5)])
    oracle = ScriptedTeacher.oracle()
    pairs = sample_comparisons(episodes[unseen], options.pairs, LENGTH, oracle, rng)
    known = episodes[seen]
    drawn = np.random.default_rng([seed, budget])
    answers = sample_comparisons(known, budget, LENGTH, oracle, drawn)
    began = time.process_time()
    model, report = FITS[name](answers, known, seed)
    seconds = time.process_time() - began
    reward = RewardFunction(model, likelihood=report.likelihood)
    found = evaluate_reward(reward, pairs, episodes=episodes[unseen])
    scores = np.asarray(reward.scores(pairs.segments)).mean(0)
    clips = np.arange(len(scores))
    measures = (
        found.accuracy,
        found.log_loss,
        found.spearman,
        spearman(scores, pairs.segments.returns(clips)),
    )
    row = dict(zip(KEY, (task, name, str(budget), str(seed)), strict=True))
    row |= {of: f"{value:.4f}" for of, value in zip(MEASURES, measures, strict=True)}
    return row | {
        "seconds": f"{seconds:.2f}",
        "machine": f"{processor()}, {os.cpu_count()} processors, cpu",
        "commit": (git_revision(Path(__file__).parent) or "")[:12],
    }


def fill(options: argparse.Namespace) -> None:
    """Make all rows that are asked for and not stored, seed by seed."""
    stored = {tuple(row[name] for name in KEY) for row in read(options.out)}
    for seed in options.seeds:
        for task in options.tasks:
            for budget in options.answers:
                for name in options.fits:
                    if (task, name, str(budget), str(seed)) not in stored:
                        keep(options.out, [measure(task, budget, seed, name, options)], KEY)
            print(f"done: {task}, seed {seed}", flush=True)


def summary(rows: list[Row], measured: str) -> Iterator[str]:
    """Lines of a Markdown table by task, fit and answers, of what has at least `LEAST` draws.

    A cell is the mean over draws, their number, and the mean difference from the default of the
    same draws with its 95 % t interval.
    """
    values: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in rows:
        of = values.setdefault((row["task"], row["condition"], int(row["budget"])), {})
        of[row["seed"]] = float(row[measured])
    for task in TASKS:
        for name in FITS:
            cells = [
                cell(values.get((task, name, count), {}), values.get((task, "default", count), {}))
                for count in ANSWERS
            ]
            if any(cells):
                yield f"| {task} | {name} | {' | '.join(text or '–' for text in cells)} |"


def cell(draws: dict[str, float], default: dict[str, float]) -> str:
    """A cell of the summary; empty where there are too few draws."""
    both = sorted(draws.keys() & default.keys())
    if len(both) < LEAST:
        return ""
    differences = np.array([draws[seed] - default[seed] for seed in both])
    text = f"{np.mean([draws[seed] for seed in both]):.3f} ({len(both)})"
    interval = mean_interval(differences)
    if interval is None or not differences.any():  # the default itself
        return text
    low, high = interval
    return f"{text}: {differences.mean():+.3f} ({low:+.3f} to {high:+.3f})".replace("-", "−")


def show(rows: list[Row]) -> None:
    """Print a summary of each measure."""
    for measured in MEASURES:
        print(f"{measured}: mean (draws): difference from the default (95 % t interval)")
        for line in summary(rows, measured):
            print(line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--answers", type=int, nargs="+", default=list(ANSWERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--fits", nargs="+", default=list(FITS), choices=list(FITS))
    parser.add_argument("--pairs", type=int, default=PAIRS, help="to evaluate by")
    parser.add_argument("--runs", type=Path, default=Path("runs/few_answers"), help="and data")
    parser.add_argument("--out", type=Path, default=RESULTS / "few_answers.csv")
    parser.add_argument("--summary", action="store_true", help="print a summary, fit nothing")
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    if options.summary:
        show(read(options.out))
        return 0
    with torch_threads(1), tempfile.TemporaryDirectory(prefix="preferl-table-") as name:
        if options.smoke:
            options.tasks = ["sweep-into"]
            options.answers = [20]
            options.seeds = [100]
            options.fits = ["default", "pseudo-answers", "warm", "self-prediction"]
            options.pairs = 20
            options.out = Path(name) / "table.csv"
        fill(options)
        show(read(options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
