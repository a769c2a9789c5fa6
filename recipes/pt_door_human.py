"""Policies from 25 demonstrations of opening a door and 1,600 comparisons made by real people.

Markovian and Preference Transformer rewards are fitted to crowd labels (Uni-RLHF, Yuan et al.
2024) of demonstrations (Rajeswaran et al. 2018) and reward agents of implicit Q-learning. Beside
them learn agents with the true reward, none, a random one and the opposite of what people
preferred, and clones of the demonstrations. All conditions and seeds are one batched computation.

The rule for the number of updates was fixed before the first run: 20,000 of each agent, evaluated
once, after the last. `AdroitHandDoor-v1` (`pip install 'preferl[robotics]'`) is evaluated with the
sign of its reach term corrected.

    PREFERL_SHARED=../shared python recipes/pt_door_human.py [--smoke] [--seeds 0 1 2]
"""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from result_tables import installed, write

from preferl.data import Episodes, find_task
from preferl.data.sources import load_demonstrations, load_labels
from preferl.evaluation import evaluate_policies, task_env
from preferl.models import infer_spaces
from preferl.offline import IQL, BehaviourCloning, CloningConfig, IQLConfig, Transitions
from preferl.offline.experiment.conditions import (
    Conditions,
    ConditionScore,
    agent_name,
    build_conditions,
    compare,
)
from preferl.training import RewardFunction, RewardSettings, relabel

SHARED = Path(os.environ.get("PREFERL_SHARED", "../shared"))
DOOR = SHARED / "data" / "adroit-door-human"
DEMONSTRATIONS = DOOR / "door-v0_demos.pickle"
RESULTS = Path(__file__).parent / "results" / "pt_door_human.csv"
TASK = find_task("door-human-v1")
ENV = "AdroitHandDoor-v1"
STEPS = 20_000
EPISODES = 100
ON = ("gymnasium", "gymnasium-robotics", "mujoco", "torch")
REWARDS = {
    name: RewardSettings(name, members=3, budget=budget, batch_size=64, noise=0.1, normalise=True)
    for name, budget in (("mr", 300), ("pt", 100))
}


def fit_reward(name: str, episodes: Episodes, smoke: bool, seed: int) -> RewardFunction:
    """An ensemble of one kind, normalised over the episodes."""
    labels = load_labels(DOOR / "door-human-v1_human_labels", episodes, crossing="keep")
    pairs = labels.comparisons[: 16 if smoke else None]
    settings = replace(REWARDS[name], budget=1 if smoke else REWARDS[name].budget)
    preset = settings.preset(length=pairs.segments.length, answers=len(pairs))
    spaces = infer_spaces(episodes.observations, episodes.actions)
    model, report = preset.fit(pairs, *spaces, seed=seed)
    held = report.validation_accuracy[report.best_epoch - 1]
    print(f"{name}, seed {seed}: {held:.3f} held out, {report.seconds:.0f} s", flush=True)
    return RewardFunction(model).scaled(episodes)


def learned_rewards(labelled: Episodes, episodes: Episodes, smoke: bool, seeds: list[int]) -> dict:
    """`[S, T]` the rewards of each kind for each step; each seed has its own fit to the labels."""

    def rewards_of(name: str, seed: int) -> np.ndarray:
        return relabel(episodes, fit_reward(name, labelled, smoke, seed)).rewards

    return {name: np.stack([rewards_of(name, seed) for seed in seeds]) for name in REWARDS}


def all_conditions(episodes: Episodes, rewards: dict, seeds: list[int]) -> Conditions:
    """PT with its controls, and MR beside them; one fit of a reward per seed."""
    parts = []
    for k, seed in enumerate(seeds):
        beside = build_conditions(episodes, rewards["pt"][k], seeds=[seed], task=TASK)
        mr = build_conditions(episodes, rewards["mr"][k], seeds=[seed], task=TASK, controls=False)
        parts.append(np.concatenate([mr.signals, beside.signals]))
    return Conditions(("mr", "pt", *beside.names[1:]), tuple(seeds), np.concatenate(parts, axis=1))


def train(episodes: Episodes, conditions: Conditions, seeds: list[int], steps: int) -> dict:
    """Names to policies: every condition and seed as one batched computation, then the clones."""
    env = task_env(ENV)()
    spaces = env.observation_space, env.action_space
    config = replace(IQLConfig.preset(TASK.hyperparameters), precision="bfloat16")
    agents = IQL(*spaces, config, seeds=conditions.agent_seeds, steps=steps)
    agents.fit(
        Transitions.of(episodes, rewards=conditions.flat_signals),
        steps,
        on_progress=log_progress(steps),
    )
    clones = BehaviourCloning(
        *spaces, CloningConfig(config.dropout, precision="bfloat16"), seeds=seeds, steps=steps
    )
    clones.fit(Transitions.of(episodes), steps)
    names = [*conditions.agents, *(agent_name("cloning", seed) for seed in seeds)]
    return dict(zip(names, [*agents.policies(), *clones.policies()], strict=True))


def log_progress(steps: int):
    """Prints how far training is."""
    began = time.perf_counter()

    def on_progress(step: int, metrics: dict) -> None:
        value = " ".join(f"{v:.1f}" for v in metrics["value"])
        print(f"{step:,}/{steps:,} {time.perf_counter() - began:.0f} s, values {value}", flush=True)

    return on_progress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few updates and episodes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    seeds = options.seeds[:1] if options.smoke else options.seeds
    torch.set_num_threads(2)
    labelled = load_demonstrations(DEMONSTRATIONS)
    episodes = labelled[:3] if options.smoke else labelled
    rewards = learned_rewards(labelled, episodes, options.smoke, seeds)
    conditions = all_conditions(episodes, rewards, seeds)
    policies = train(episodes, conditions, seeds, 5 if options.smoke else STEPS)
    reports = evaluate_policies(
        policies,
        task_env(ENV),
        episodes=2 if options.smoke else EPISODES,
        seed=10_000,
        max_steps=20 if options.smoke else None,
    )
    scores = {
        name: ConditionScore.of([reports[agent_name(name, seed)] for seed in seeds], TASK)
        for name in (*conditions.names, "cloning")
    }
    for condition, score in scores.items():
        print(condition, score.to_json(), flush=True)
    for learned in rewards:
        held_against = {a: scores[a].returns for a in scores if a == learned or a not in rewards}
        held_against["learned"] = held_against.pop(learned)
        if len(seeds) > 1:
            print(f"{learned}: {compare(held_against).text}")
    if not options.smoke:
        on = installed(*ON)
        write(RESULTS, [row | {"on": on} for row in rows_of(scores, seeds)])


def rows_of(scores: dict[str, ConditionScore], seeds: list[int]) -> Iterator[dict[str, object]]:
    """One row per condition and seed."""
    for condition, score in scores.items():
        for k, seed in enumerate(seeds):
            earned = score.scores[k], score.returns[k], score.success[k]
            yield row_of(condition, seed, *earned, STEPS)


def row_of(
    condition: str, seed: int, score: float, mean: float, success: float, updates: int
) -> dict[str, object]:
    """An agent of a table."""
    earned = {"score": score, "return": mean, "success": success}
    rounded = {name: round(float(value), 3) for name, value in earned.items()}
    about = {"condition": condition, "seed": seed}
    return about | rounded | {"updates": updates, "episodes": EPISODES}


if __name__ == "__main__":
    main()
