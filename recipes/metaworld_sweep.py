"""A policy that sweeps a puck into a hole, from 40 recorded episodes and 500 scripted answers.

The episodes come from four stages of training on Meta-World's sweep-into (Yu et al. 2019); only
eleven solve the task, and each stage saw one position of the puck. Agents learn offline from the
learned and the true reward and their controls, and by cloning, and are evaluated by success in the
simulator, with the puck where it was recorded and where the simulator draws it.

The rule for the number of updates was fixed before the first run: 10,000 of each agent, evaluated
once, after the last. The simulator is installed beside the rest:

    pip install metaworld==3.0.0
    PREFERL_SHARED=../shared python recipes/metaworld_sweep.py [--smoke] [--seeds 0 1 2]
"""

import argparse
import os
import warnings
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import torch
from result_tables import installed, write

from preferl.data import Comparisons, Episodes, sample_segments
from preferl.data.sources import load_stacked
from preferl.evaluation import PolicyReport, evaluate_policies
from preferl.feedback import ScriptedTeacher, UniformPairs
from preferl.models import infer_spaces
from preferl.offline import IQL, BehaviourCloning, CloningConfig, IQLConfig, Transitions
from preferl.offline.experiment.conditions import agent_name, build_conditions
from preferl.statistics import spearman
from preferl.training import RewardFunction, RewardSettings, relabel

DATA = Path(os.environ.get("PREFERL_SHARED", "../shared")) / "data" / "metaworld-sweep-into"
RESULTS = Path(__file__).parent / "results" / "metaworld_sweep.csv"
LABELS = 500
LENGTH = 50
STEPS = 10_000
EPISODES = 100
FOLDS = 4

NEAREST = 0.15
"""Metres between puck and goal below which the simulator would draw again, here without end."""

COMPARED = ("learned", "true", "cloning")
"""Conditions that are evaluated where the puck was recorded, too; others only cost time there."""


class PuckPlaced(gymnasium.Wrapper):
    """Puts the puck where the seed of `reset` places it: drawn, or at one of the places given."""

    def __init__(self, env: gymnasium.Env, places: np.ndarray | None) -> None:
        super().__init__(env)
        self._places = places
        self._drawn = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Begin an episode with the puck placed."""
        if seed is not None:
            self._drawn = np.random.default_rng(seed)
        world = self.unwrapped
        self.env.reset(seed=seed, options=options)  # draws a task of its own, which is replaced
        start = self._start(world._random_reset_space)
        world._freeze_rand_vec = True
        world._last_rand_vec = start
        return world.reset(seed=seed)

    def _start(self, space: gymnasium.spaces.Box) -> np.ndarray:
        """Puck and goal; the simulator draws until the puck is off the goal, and so do we."""
        while True:
            start = self._drawn.uniform(space.low, space.high)
            if self._places is not None:
                start[:2] = self._places[self._drawn.integers(len(self._places))]
            if np.linalg.norm(start[:2] - self.unwrapped.goal[:2]) >= NEAREST:
                return start


def make_env(places: np.ndarray | None = None) -> gymnasium.Env:
    """The simulator, without its messages, which do not matter here."""
    import metaworld  # noqa: F401 (registers the environment)

    warnings.filterwarnings("ignore", module="gymnasium")
    env = gymnasium.make("Meta-World/MT1", env_name="sweep-into-v3", disable_env_checker=True)
    return PuckPlaced(env, places)


def answered(episodes: Episodes, seed: int) -> Comparisons:
    """Questions about segments of these episodes, answered by the true return."""
    rng = np.random.default_rng(seed)
    segments = sample_segments(episodes, 2 * LABELS, LENGTH, rng)
    pairs = UniformPairs()(segments, LABELS, rng)
    return Comparisons.of(segments, pairs, ScriptedTeacher.oracle()(segments[pairs], rng))


def fitted(episodes: Episodes, seed: int, epochs: int | None) -> RewardFunction:
    """This library's default reward of these episodes."""
    preset = RewardSettings(epochs=epochs).preset(length=LENGTH, answers=LABELS)
    spaces = infer_spaces(episodes.observations, episodes.actions)
    model, _ = preset.fit(answered(episodes, seed), *spaces, seed=seed)
    return RewardFunction(model).scaled(episodes)


def held_out_ranks(episodes: Episodes, epochs: int | None) -> list[float]:
    """Spearman of learned and true returns of the episodes that each fold left out."""
    fold = np.random.default_rng(0).permutation(len(episodes)) % FOLDS
    ranks = []
    for number in range(FOLDS):
        unseen = episodes[fold == number]
        reward = fitted(episodes[fold != number], number, epochs)
        ranks.append(spearman(relabel(unseen, reward).returns, unseen.returns))
    return ranks


def train(episodes: Episodes, seeds: list[int], steps: int, epochs: int | None) -> dict:
    """Names to policies of all conditions and seeds; each seed has a reward of its own."""
    each = [
        build_conditions(
            episodes, relabel(episodes, fitted(episodes, seed, epochs)).rewards, seeds=[seed]
        )
        for seed in seeds
    ]
    rewards = np.concatenate([one.signals for one in each], axis=1)  # [C, S, T]
    names = [
        agent_name(condition, seed) for condition in (*each[0].names, "cloning") for seed in seeds
    ]
    env = make_env()
    spaces = env.observation_space, env.action_space
    agents = IQL(
        *spaces, IQLConfig(precision="bfloat16"), seeds=range(len(names) - len(seeds)), steps=steps
    )
    agents.fit(Transitions.of(episodes, rewards=rewards.reshape(-1, episodes.steps)), steps)
    clones = BehaviourCloning(
        *spaces, CloningConfig(precision="bfloat16"), seeds=seeds, steps=steps
    )
    clones.fit(Transitions.of(episodes), steps)
    return dict(zip(names, [*agents.policies(), *clones.policies()], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few updates and episodes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    seeds, epochs = (options.seeds[:1], 1) if options.smoke else (options.seeds, None)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    episodes = load_stacked(DATA)
    if options.smoke:
        episodes = episodes[:10]
    ranks = held_out_ranks(episodes, epochs)
    print(f"Spearman of held-out returns by fold: {np.round(ranks, 3)}", flush=True)
    policies = train(episodes, seeds, 5 if options.smoke else STEPS, epochs)
    places = np.unique(np.round(episodes.observations[episodes.starts, 4:6], 4), axis=0)
    fixed = {
        "updates": STEPS,
        "ranks": " ".join(f"{rank:.3f}" for rank in ranks),
        "on": installed("metaworld", "gymnasium", "mujoco", "torch"),
    }
    rows: list[dict[str, object]] = []
    compared = {k: v for k, v in policies.items() if k.split("-")[0] in COMPARED}
    for where, env, tested in (
        ("drawn", make_env, policies),
        ("recorded", partial(make_env, places), compared),
    ):

        def keep(name: str, report: PolicyReport, where: str = where) -> None:
            """Write each result as soon as it is there: evaluating takes longer than training."""
            condition, seed = name.rsplit("-", 1)
            row: dict[str, object] = {"condition": condition, "seed": seed, "puck": where}
            row |= {"success": report.success_rate, "return": round(report.mean, 1)}
            print(*row.values(), flush=True)
            rows.append(row | fixed)
            if not options.smoke:
                write(RESULTS, rows)

        episodes_each = 2 if options.smoke else EPISODES
        evaluate_policies(
            tested,
            env,
            episodes=episodes_each,
            seed=10_000,
            max_steps=20 if options.smoke else None,
            processes=1 if options.smoke else 2,
            on_report=keep,
        )


if __name__ == "__main__":
    main()
