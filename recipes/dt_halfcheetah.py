r"""A Decision Transformer that runs as fast as it is asked to, step by step as in its tutorial.

Beeching and Simonini (2022), "Train your first Decision Transformer", load recorded episodes of
HalfCheetah, normalise what is seen, sum up what is still to come, and train a transformer to do
what led there. Here the data set is recorded first, random to expert, so that there is something
to choose from; five returns are then asked of each agent. Behaviour cloning and implicit Q-learning
learn from the same episodes.

    preferl data record --env HalfCheetah-v5 --out runs/halfcheetah --target-return 3500 \
        --checkpoint-every 5000 --eval-episodes 3 \
        --mix random:100,medium:200,expert:200,replay:60 \
        --algorithm sac --algorithm.learning-starts 1000 --algorithm.batch-size 128 \
        --algorithm.learning-rate 1e-3
    python recipes/dt_halfcheetah.py --data runs/halfcheetah/episodes [--seeds 0 1 2]

`--smoke` records a little in Pendulum-v1 instead, and learns nothing. It takes
`pip install 'preferl[hub,mujoco]'`. Numbers of updates were fixed before the first whole run.
Where other programs work beside it, OMP_NUM_THREADS=1 is several times faster than two threads.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from result_tables import installed, write

from preferl.data import Episodes
from preferl.data.sources import load_source
from preferl.evaluation import evaluate_policies, task_env
from preferl.offline import (
    IQL,
    BehaviourCloning,
    CloningConfig,
    DecisionTransformer,
    DTConfig,
    IQLConfig,
    Transitions,
)
from preferl.online import DatasetConfig, record_dataset
from preferl.statistics import spearman
from preferl.training import scale_by_return_range
from preferl.training.configs import fast_precision

RESULTS = Path(__file__).parent / "results" / "dt_halfcheetah.csv"
STEPS = 5_000
UPDATES = 10_000
EPISODES = 20
"""Twentieths of the tutorial's updates, in larger steps; and what others are given."""
ASKED = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares of the way from the worst return of the data to that of its best decile."""
ON = ("gymnasium", "mujoco", "torch")


def data_set(options: argparse.Namespace) -> tuple[str, Episodes]:
    """The environment's id and its recorded episodes, of mixed quality."""
    if not options.smoke:
        return "HalfCheetah-v5", load_source(options.data)
    record_dataset(DatasetConfig("Pendulum-v1", mix="random:8"), "smoke")
    return "Pendulum-v1", load_source("smoke/episodes")


def best_decile(returns: np.ndarray) -> float:
    """Mean of the best tenth of the episodes."""
    return float(np.sort(returns)[-max(1, len(returns) // 10) :].mean())


def transformers(env: str, episodes: Episodes, options: argparse.Namespace) -> dict:
    """One trained agent per seed."""
    spaces = spaces_of(env)
    agents = {}
    for seed in options.seeds:
        # Returns are divided by 1000 and 20 steps are seen at once, as in the tutorial.
        config = DTConfig(scale=1000.0, learning_rate=3e-4, precision=fast_precision())
        agent = DecisionTransformer(*spaces, config, seed=seed, steps=options.steps)
        began = time.perf_counter()
        last = agent.fit(agent.sequences(episodes), on_progress=log_progress)
        seconds = time.perf_counter() - began
        print(f"dt, seed {seed}: loss {last['loss']:.4f}, {seconds:.0f} s", flush=True)
        agents[seed] = agent
    return agents


def log_progress(step: int, metrics: dict) -> None:
    """Prints how far training is, now and then."""
    if step % 500 == 0:
        print(f"  {step:,} updates, loss {metrics['loss']:.4f}", flush=True)


def spaces_of(env: str) -> tuple:
    """Of observations and actions."""
    made = task_env(env)()
    return made.observation_space, made.action_space


def others(env: str, episodes: Episodes, options: argparse.Namespace) -> dict:
    """Clones of the data, and agents of implicit Q-learning on its own reward."""
    spaces = spaces_of(env)
    seeds = options.seeds
    updates = options.updates
    config = IQLConfig.preset("mujoco")
    clones = BehaviourCloning(*spaces, CloningConfig(), seeds=seeds, steps=updates)
    clones.fit(Transitions.of(episodes), updates)
    agents = IQL(*spaces, config, seeds=seeds, steps=updates)
    scaled = scale_by_return_range(episodes, learned=False)
    agents.fit(Transitions.of(scaled), updates)
    return {"cloning": clones.policies(), "iql": agents.policies()}


def evaluate(env: str, policies: dict, options: argparse.Namespace) -> dict:
    """Mean returns by name; two policies are evaluated at a time."""
    reports = evaluate_policies(
        policies,
        task_env(env),
        episodes=options.episodes,
        seed=10_000,
        processes=1 if options.smoke else 2,
        on_report=lambda name, report: print(f"{name}: {report.mean:,.1f}", flush=True),
    )
    return {name: report.mean for name, report in reports.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few updates on a little data")
    parser.add_argument("--data", type=Path, default=Path("runs/halfcheetah/episodes"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=STEPS, help="updates of a transformer")
    parser.add_argument("--updates", type=int, default=UPDATES, help="of a clone and by IQL")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="by which each is evaluated")
    options = parser.parse_args()
    if options.smoke:
        options.seeds = [0]
        options.steps = 2
        options.updates = 2
        options.episodes = 1
    env, episodes = data_set(options)
    lowest = float(episodes.returns.min())
    best = best_decile(episodes.returns)
    print(f"{len(episodes)} episodes, returns {lowest:,.0f} to {episodes.returns.max():,.0f}")
    asked = [lowest + share * (best - lowest) for share in ASKED]
    agents = transformers(env, episodes, options)
    policies = {
        f"dt/{seed}/{target:.0f}": agent.policy(target)
        for seed, agent in agents.items()
        for target in asked
    }
    for name, found in others(env, episodes, options).items():
        policies |= {f"{name}/{s}/": p for s, p in zip(options.seeds, found, strict=True)}
    earned = evaluate(env, policies, options)
    summarise(earned, best, options.seeds)
    if not options.smoke:
        write(RESULTS, [*rows_of(earned, best, options)])


def summarise(earned: dict, best: float, seeds: list[int]) -> None:
    """The returns as shares of the best decile's, and how the asked order the earned ones."""
    print(f"best decile of the data: {best:,.1f}")
    for kind in ("dt", "cloning", "iql"):
        shares = [by_seed(earned, kind, seed)[-1] / best for seed in seeds]
        print(f"{kind}: {np.mean(shares):.1%} of it ({', '.join(f'{s:.1%}' for s in shares)})")
    ranks = [spearman(np.array(ASKED), by_seed(earned, "dt", seed)) for seed in seeds]
    print(f"dt: rank correlation of asked and earned {ranks}")


def by_seed(earned: dict, kind: str, seed: int) -> np.ndarray:
    """Returns of one agent, in the order of what it was asked for."""
    return np.array([value for name, value in earned.items() if name.startswith(f"{kind}/{seed}/")])


def rows_of(earned: dict, best: float, options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """One row per agent and target, with the packages that decide the returns."""
    on = installed(*ON)
    for name, value in earned.items():
        row: dict[str, object] = dict(
            zip(("policy", "seed", "asked"), name.split("/"), strict=True)
        )
        row |= {"return": round(value, 1), "of_best_decile": round(value / best, 4)}
        row["updates"] = options.steps if row["policy"] == "dt" else options.updates
        yield row | {"episodes": options.episodes, "on": on}


if __name__ == "__main__":
    main()
