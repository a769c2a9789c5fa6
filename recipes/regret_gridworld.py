"""Answers by return and answers by regret, each read by both likelihoods (Knox et al. 2024).

Gridworlds of 6 x 6 cells, in which three steps of ten go anywhere: in the top row a goal (10) and
two pits (-10) end the episode, a fifth of the other cells has a coin (0.5), a fifth is mud (-2),
and the rest costs 0.5 a step. A random policy makes clips of three steps, from anywhere, or from
the two lowest rows, so far below that no clip shows a goal or a pit. A teacher compares two clips
by the sum of their rewards, or by their regret, and errs as the logistic function says. From each
teacher's answers, two rewards are fitted: as if the answers were about returns, and as if they were
about regret. What counts is how well the optimal policy of the fitted reward does under the true
one: 0 as the uniform policy, 1 as the best.

    python recipes/regret_gridworld.py [--worlds 10] [--summary]

After a kill, the same command goes on with the worlds that are not in the table.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from result_tables import keep, read
from torch import Tensor

from preferl.functional import (
    pool,
    preference_logits,
    preference_probability,
    segment_regret,
)
from preferl.statistics import mean_interval
from preferl.training import LinearTask, fit_by_regret, fit_by_return

RESULTS = Path(__file__).parent / "results" / "regret_gridworld.csv"
SIDE = 6
LENGTH = 3
SLIP = 0.3
PLACES = {"anywhere": 1, "far": 4}
"""By name, the highest row in which clips begin."""

ANSWERS = (30, 300)
POLICIES = 32
WEIGHTS = torch.tensor([10.0, -10.0, 0.5, -2.0, -0.5], dtype=torch.float64)
"""Of goal, pit, coin, mud and road."""

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
KEY = ("world", "clips", "answers", "teacher", "fit")


def gridworld(rng: np.random.Generator) -> tuple[LinearTask, np.ndarray]:
    """Return a task, and which of its cells `[X]` end the episode."""
    cells = np.stack(np.divmod(np.arange(SIDE**2), SIDE), axis=-1)
    moved = np.clip(cells[:, None] + MOVES, 0, SIDE - 1) @ [SIDE, 1]  # [X, U]
    meant = np.eye(len(cells))[moved]  # [X, U, X]
    transitions = (1 - SLIP) * meant + SLIP * meant.mean(1, keepdims=True)
    kinds = rng.choice([2, 3, 4], len(cells), p=[0.2, 0.2, 0.6])
    kinds[rng.permutation(SIDE)[:3]] = [0, 1, 1]
    ends = kinds < 2
    features = transitions @ np.eye(5)[kinds]
    transitions[ends] = 0
    features[ends] = 0
    return LinearTask(torch.tensor(transitions), torch.tensor(features), 0.95), ends


def clips(
    task: LinearTask, ends: np.ndarray, top: int, pairs: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states, actions and mask `[P, 2, L]` of a uniform policy, from a row downwards.

    Real steps come last.
    """
    chances = task.transitions.numpy().cumsum(-1)
    state = rng.integers(top * SIDE, SIDE**2, (pairs, 2))
    states = np.zeros((LENGTH, pairs, 2), np.int64)
    actions = rng.integers(len(MOVES), size=states.shape)
    for step in range(LENGTH):
        states[step] = state
        drawn = rng.random(state.shape)[..., None]
        following = (chances[state, actions[step]] < drawn).sum(-1).clip(max=len(ends) - 1)
        state = np.where(ends[state], state, following)
    real = ~ends[states]
    order = np.argsort(real, axis=0, kind="stable")  # padding comes first
    columns = [np.take_along_axis(column, order, 0) for column in (states, actions, real)]
    states, actions, mask = (torch.tensor(np.moveaxis(column, 0, -1)) for column in columns)
    return states, actions, mask


def true_value(task: LinearTask, policy: Tensor) -> float:
    """Return the true value of a policy's chances `[X, U]`, averaged over first states."""
    followed = torch.einsum("xu,xun->xn", policy, task.transitions)
    reward = (policy * (task.features @ WEIGHTS)).sum(-1)
    identity = torch.eye(len(policy), dtype=policy.dtype)
    return float(torch.linalg.solve(identity - task.discount * followed, reward).mean())


def rows_of(world: int, place: str, answers: int) -> list[dict[str, object]]:
    """Fit both rewards to the answers of both teachers in one world."""
    rng = np.random.default_rng([world, PLACES[place], answers])
    task, ends = gridworld(np.random.default_rng(world))
    states, actions, mask = clips(task, ends, PLACES[place], answers, rng)
    features = task.features[states, actions]
    scores = {
        "return": pool(features @ WEIGHTS, mask),
        "regret": -segment_regret(task.advantages(WEIGHTS)[None], states, actions, mask)[0],
    }

    def value_of(weights: Tensor) -> float:
        policy = task.optimal_policies(weights[None])[0]
        return true_value(task, torch.eye(len(MOVES), dtype=weights.dtype)[policy])

    uniform = true_value(task, torch.full((len(ends), len(MOVES)), 0.25, dtype=torch.float64))
    best = value_of(WEIGHTS)
    rows: list[dict[str, object]] = []
    for teacher, score in scores.items():
        probability = preference_probability(preference_logits(score)).numpy()
        preference = torch.tensor((rng.random(answers) < probability).astype(float))
        fitted = {
            "return": fit_by_return(features, mask, preference, seed=world),
            "regret": fit_by_regret(
                task, states, actions, mask, preference, policies=POLICIES, seed=world
            ),
        }
        for fit, weights in fitted.items():
            share = (value_of(weights) - uniform) / (best - uniform)
            row = {"world": world, "clips": place, "answers": answers, "teacher": teacher}
            rows.append({**row, "fit": fit, "share": round(share, 4)})
    return rows


def summary() -> None:
    """Print means with 95 % intervals over worlds."""
    table = read(RESULTS)
    for place in PLACES:
        for answers in ANSWERS:
            for teacher in ("return", "regret"):
                line = f"clips {place}, {answers} answers by {teacher}:"
                for fit in ("return", "regret"):
                    key = (place, str(answers), teacher, fit)
                    shares = [
                        float(r["share"]) for r in table if tuple(r[k] for k in KEY[1:]) == key
                    ]
                    interval = mean_interval(np.array(shares)) if shares else None
                    if interval is not None:
                        ends = "{:.2f} to {:.2f}".format(*interval)
                        line += f"  fit by {fit} {np.mean(shares):.2f} ({ends})"
                print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=10)
    parser.add_argument("--summary", action="store_true", help="print means, run nothing")
    parser.add_argument("--smoke", action="store_true", help="seconds; stores nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.smoke:
        print(*rows_of(0, "far", 4), sep="\n")
        return
    for world in range(0 if options.summary else options.worlds):
        for place in PLACES:
            for answers in ANSWERS:
                stored = {tuple(row[k] for k in KEY[:3]) for row in read(RESULTS)}
                if (str(world), place, str(answers)) not in stored:
                    keep(RESULTS, rows_of(world, place, answers), KEY)
                    print(f"world {world}, clips {place}, {answers} answers", flush=True)
    summary()


if __name__ == "__main__":
    main()
