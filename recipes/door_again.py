"""The door again: does a policy from 25 demonstrations have to be a matter of luck?

Policies of equal loss open the door in none to half of the episodes, by their initial weights.
Tries to make them alike, each with three ends of its training:

- "plain": as in `pt_door_human.py`, from a Markovian reward; "dropout": three times as much of it;
  "standardised": observations of mean 0 and deviation 1; "chunks": actions of the next ten steps,
  and the mean of all that were planned for a step (Zhao et al. 2023, arXiv:2304.13705, section 4).
- "last": the weights of the last update; "averaged": their mean over the second half of the updates
  (Izmailov et al. 2018, arXiv:1803.05407); "ensembled": mean actions of five such policies.

A seed is that of a fit, and of five agents; "last" and "averaged" are of the first of them. Agents
of the true reward and of none have "last" alone. All tries, the 20,000 updates and the 100 episodes
were fixed before the first run. Agents of a try are one computation: minutes on a GPU, hours on a
processor. After a kill, the same command goes on.

`--look` tells how far single agents of "plain" come: to the handle, past its latch, and the door
open by a little or all the way, as shares of 25 episodes.

    PREFERL_SHARED=../shared python recipes/door_again.py --device cuda
    PREFERL_SHARED=../shared python recipes/door_again.py --look
    python recipes/door_again.py --summary
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from pt_door_human import (
    DEMONSTRATIONS,
    ENV,
    EPISODES,
    STEPS,
    TASK,
    fit_reward,
    load_demonstrations,
)
from result_tables import Row, keep, read
from safetensors.torch import load_file, save_file

from preferl.data import Episodes
from preferl.errors import PreferlError
from preferl.evaluation import PolicyReport, evaluate_policies, task_env
from preferl.evaluation.rollout import SeededEpisodes, rollout
from preferl.files import writing
from preferl.offline import IQL, BehaviourCloning, CloningConfig, IQLConfig, OfflinePolicy
from preferl.offline.experiment.conditions import ConditionScore, agent_name, build_conditions
from preferl.statistics import interquartile_mean, mean_interval
from preferl.training import relabel

RESULTS = Path(__file__).parent / "results" / "door_again.csv"
KEY = ("try", "end", "condition", "seed")
CONDITIONS = ("learned", "true", "zero", "cloning")
MEMBERS = 5
FIRST_EPISODE = 10_000
LOOKED = 25
ENDS = {"last": CONDITIONS, "averaged": ("learned", "cloning"), "ensembled": ("learned", "cloning")}
"""Of training, and the conditions that are evaluated at each."""


STAGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "reached": lambda seen: np.linalg.norm(seen[:, 35:38], axis=1) < 0.08,  # metres to the handle
    "latch": lambda seen: seen[:, 27] > 0.8,  # radians
    "ajar": lambda seen: seen[:, 28] > 0.2,
    "open": lambda seen: seen[:, 28] > 1.35,  # success
}
"""Of an episode, by what is seen; the hand has joints of its own in the first 27 numbers."""


@dataclass(frozen=True)
class Try:
    """How agents learn and act."""

    dropout: float = 0.1
    standardised: bool = False
    chunk: int = 1


TRIES = {
    "plain": Try(),
    "dropout": Try(dropout=0.3),
    "standardised": Try(standardised=True),
    "chunks": Try(chunk=10),
}


class Actor:
    """Acts by the mean actions of policies, and of all chunks that reach a step.

    Args:
        policies: that act on observations in other units, and plan chunks.
        centre: `[O]` of observations.
        scale: `[O]` of observations.
        chunk: how many actions each plans.
    """

    def __init__(
        self, policies: list[OfflinePolicy], centre: np.ndarray, scale: np.ndarray, chunk: int
    ) -> None:
        self.policies = policies
        self.centre = centre
        self.scale = scale
        self.chunk = chunk

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Any]:
        """`[V, O]` observations to `[V, A]` actions; the state is what is planned, `[V, chunk]`."""
        del deterministic
        seen = ((observation - self.centre) / self.scale).astype(np.float32)
        planned = np.mean([policy.predict(seen)[0] for policy in self.policies], axis=0)
        planned = planned.reshape(len(seen), self.chunk, -1)  # [V, chunk, A]
        if state is None:
            state = np.zeros_like(planned), np.zeros(planned.shape[:2])
        total, count = (np.roll(part, -1, axis=1) for part in state)
        total[:, -1] = 0
        count[:, -1] = 0
        total[episode_start] = 0
        count[episode_start] = 0
        total = total + planned
        count = count + 1
        return (total[:, 0] / count[:, :1]).astype(np.float32), (total, count)


def units_of(episodes: Episodes, how: Try) -> tuple[np.ndarray, np.ndarray]:
    """`[O]` centre and scale of observations."""
    seen = np.asarray(episodes.observations)
    if not how.standardised:
        return np.zeros(seen.shape[1]), np.ones(seen.shape[1])
    deviation = seen.std(0)
    return seen.mean(0), np.where(deviation < 1e-6, 1.0, deviation)


def as_tried(episodes: Episodes, how: Try) -> Episodes:
    """Episodes in the units of a try, with chunks of actions: the last is repeated at the end."""
    centre, scale = units_of(episodes, how)
    ends = np.repeat(np.cumsum(episodes.lengths), episodes.lengths) - 1  # [T]
    ahead = np.arange(episodes.steps)[:, None] + np.arange(how.chunk)
    actions = np.asarray(episodes.actions)[np.minimum(ahead, ends[:, None])]  # [T, chunk, A]
    return replace(
        episodes,
        observations=((episodes.observations - centre) / scale).astype(np.float32),
        final_observations=((episodes.final_observations - centre) / scale).astype(np.float32),
        actions=actions.reshape(episodes.steps, -1),
    )


def rewards_of(episodes: Episodes, runs: Path, seeds: list[int], smoke: bool) -> np.ndarray:
    """`[S, T]` learned rewards, one fit for each seed; those in files are not fitted again."""
    runs.mkdir(parents=True, exist_ok=True)
    rewards = []
    for seed in seeds:
        file = runs / f"rewards-{seed}.safetensors"
        if not file.is_file():
            fitted = relabel(episodes, fit_reward("mr", episodes, smoke, seed)).rewards
            with writing(file) as draft:
                save_file({"rewards": torch.as_tensor(np.asarray(fitted))}, draft)
        rewards.append(load_file(file)["rewards"].numpy())
    return np.stack(rewards)


def signals_of(episodes: Episodes, learned: np.ndarray, seeds: list[int]) -> np.ndarray:
    """`[C * S * MEMBERS, T]` scaled rewards of the conditions that have one."""
    parts = []
    for seed, rewards in zip(seeds, learned, strict=True):
        found = build_conditions(episodes, rewards, seeds=[seed], task=TASK)
        parts.append(found.signals[[found.names.index(name) for name in CONDITIONS[:-1]]])
    signals = np.repeat(np.concatenate(parts, axis=1), MEMBERS, axis=1)
    return signals.reshape(-1, signals.shape[-1])


def train(name: str, episodes: Episodes, signals: np.ndarray, options: argparse.Namespace) -> None:
    """Train all agents of a try that have no policies yet."""
    how = TRIES[name]
    folder = options.runs / name
    env = task_env(ENV)()
    low, high = (
        np.tile(bound, how.chunk) for bound in (env.action_space.low, env.action_space.high)
    )
    about: dict[str, Any] = {"steps": options.steps, "device": options.device}
    about["observation_space"] = env.observation_space
    about["action_space"] = spaces.Box(low, high, dtype=np.float32)
    env.close()
    seeds = [seed * MEMBERS + member for seed in options.seeds for member in range(MEMBERS)]
    settings = replace(IQLConfig.preset(TASK.hyperparameters), dropout=how.dropout)
    conditions = CONDITIONS[:-1]
    kinds = {
        "iql": (partial(IQL, config=settings), conditions, signals),
        "bc": (partial(BehaviourCloning, config=CloningConfig(how.dropout)), ("cloning",), None),
    }
    for kind, (build, labels, rewards) in kinds.items():
        if (folder / kind).is_dir():
            continue
        learner = build(seeds=seeds * len(labels), **about)
        last, averaged = learned(learner, as_tried(episodes, how), rewards, folder, kind)
        names = [agent_name(label, seed) for label in labels for seed in seeds]
        with writing(folder / kind) as draft:
            for end, policies in (("last", last), ("averaged", averaged)):
                for agent, policy in zip(names, policies, strict=True):
                    policy.save(draft / end / agent)


def learned(
    learner: Any, episodes: Episodes, rewards: np.ndarray | None, folder: Path, kind: str
) -> tuple[list[OfflinePolicy], list[OfflinePolicy]]:
    """Policies with the last weights, and with the mean of those in the second half."""
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / f"{kind}.safetensors"
    sums = folder / f"{kind}-sums.safetensors"
    every = max(1, learner.steps // 20)

    def add(step: int, _: Mapping[str, Any]) -> None:
        print(f"{folder.name}, {kind}: {step:,} of {learner.steps:,}", flush=True)
        known = load_file(sums) if sums.is_file() else {"step": torch.tensor(0)}
        if step <= max(learner.steps // 2, int(known["step"])):  # or added before a kill
            return
        own = {n: t for n, t in learner.state().items() if n.startswith("policy.")}
        total = {n: t + known[n] if n in known else t for n, t in own.items()}
        count = known.get("count", torch.tensor(0)) + 1
        with writing(sums) as draft:
            save_file(total | {"step": torch.tensor(step), "count": count}, draft)

    how: dict[str, Any] = {"checkpoint_every": every, "every": every, "on_progress": add}
    learner.learn(episodes, rewards, state, **how)
    last = learner.policies()
    total = load_file(sums)
    mean = {n: t / total["count"] for n, t in total.items() if n.startswith("policy.")}
    learner.load_state(learner.state() | mean)
    return last, learner.policies()


def actor_of(key: tuple[str, ...], episodes: Episodes, runs: Path) -> Actor:
    """What acts in a row of the table."""
    name, end, condition, seed = key
    folder = runs / name / ("bc" if condition == "cloning" else "iql")
    folder /= "last" if end == "last" else "averaged"
    members = range(MEMBERS) if end == "ensembled" else (0,)
    agents = (agent_name(condition, int(seed) * MEMBERS + member) for member in members)
    policies = [OfflinePolicy.load(folder / agent) for agent in agents]
    return Actor(policies, *units_of(episodes, TRIES[name]), TRIES[name].chunk)


def evaluate(episodes: Episodes, options: argparse.Namespace) -> None:
    """Add the rows that the table lacks."""
    stored = {tuple(row[name] for name in KEY) for row in read(options.out)}
    keys = [
        (name, end, condition, str(seed))
        for name in options.tries
        for end, conditions in ENDS.items()
        for condition in conditions
        for seed in options.seeds
    ]
    left = {", ".join(key): key for key in keys if key not in stored}

    def add(name: str, report: PolicyReport) -> None:
        score = ConditionScore.of([report], TASK)
        numbers = {
            "score": score.scores[0],
            "return": score.returns[0],
            "success": score.success[0],
        }
        row = dict(zip(KEY, left[name], strict=True))
        keep(options.out, [row | {n: f"{v:.3f}" for n, v in numbers.items()}], KEY)
        print(row, numbers, flush=True)

    evaluate_policies(
        {name: actor_of(key, episodes, options.runs) for name, key in left.items()},
        task_env(ENV),
        episodes=2 if options.smoke else EPISODES,
        seed=FIRST_EPISODE,
        max_steps=20 if options.smoke else None,
        processes=options.processes,
        on_report=add,
    )


def look(episodes: Episodes, options: argparse.Namespace) -> None:
    """Shares of episodes that come to each stage, for every other agent, in another table."""
    out = options.out.with_name(f"{options.out.stem}_stages.csv")
    make = task_env(ENV)
    made = [make() for _ in range(LOOKED)]
    for condition, kind in (("learned", "iql"), ("cloning", "bc")):
        for agent in range(0, MEMBERS * len(options.seeds), 2):
            place = options.runs / "plain" / kind / "averaged" / agent_name(condition, agent)
            policy = Actor([OfflinePolicy.load(place)], *units_of(episodes, TRIES["plain"]), 1)
            envs = SeededEpisodes(made, seed=FIRST_EPISODE)
            reached = np.zeros((len(STAGES), LOOKED), bool)
            for step in islice(rollout(policy, envs, deterministic=True), 200):  # an episode each
                reached |= [stage(step.observations) for stage in STAGES.values()]
            shares = zip(STAGES, reached.mean(1), strict=True)
            row = {"condition": condition, "agent": str(agent)} | {n: f"{v:.2f}" for n, v in shares}
            keep(out, [row], ("condition", "agent"))
            print(row, flush=True)


def summary(rows: list[Row]) -> Iterator[str]:
    """Scores of each try, end and condition, and what the learned reward has over cloning."""
    scores: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        of = scores.setdefault((row["try"], row["end"], row["condition"]), {})
        of[row["seed"]] = float(row["score"])
    for key, of in scores.items():
        values = np.array([*of.values()])
        line = f"{', '.join(key)}: mean {values.mean():.1f}, interquartile mean "
        line += f"{interquartile_mean(values):.1f}, {values.min():.1f} to {values.max():.1f}"
        clones = scores.get((*key[:2], "cloning"), {})
        both = sorted(of.keys() & clones.keys())
        if key[2] == "learned" and len(both) > 1:
            pairs = np.array([of[seed] - clones[seed] for seed in both])
            low, high = mean_interval(pairs) or (np.nan, np.nan)
            line += f"; minus cloning {pairs.mean():.1f} ({low:.1f} to {high:.1f})"
        yield line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", nargs="+", choices=TRIES, default=[*TRIES])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--device", default="cpu", help="cpu or cuda, where agents learn")
    parser.add_argument("--processes", type=int, default=2, help="that evaluate")
    parser.add_argument("--runs", type=Path, default=Path("runs/door_again"), help="of agents")
    parser.add_argument("--out", type=Path, default=RESULTS, help="table")
    parser.add_argument("--look", action="store_true", help="at how far agents come, no more")
    parser.add_argument("--summary", action="store_true", help="print a summary, run nothing")
    parser.add_argument("--smoke", action="store_true", help="a few updates and episodes")
    options = parser.parse_args()
    if options.summary:
        print(*summary(read(options.out)), sep="\n")
        return 0
    options.steps = STEPS
    torch.set_float32_matmul_precision("high")  # on a GPU in TF32, whose rounding is of 10 bits
    with tempfile.TemporaryDirectory(prefix="preferl-door-") as name:
        if options.smoke:
            options.runs = Path(name) / "runs"
            options.out = Path(name) / "table.csv"
            options.tries = ["standardised", "chunks"]
            options.seeds = [0]
            options.steps = 4
            options.processes = 1
        try:
            run(options)
        except KeyboardInterrupt:
            print("Interrupted: the same command goes on.", file=sys.stderr)
            return 130
        except PreferlError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def run(options: argparse.Namespace) -> None:
    """Fit, train and evaluate what is not there yet, and print a summary."""
    episodes = load_demonstrations(DEMONSTRATIONS)
    if options.look:
        look(episodes, options)
        return
    rewards = rewards_of(episodes, options.runs, options.seeds, options.smoke)
    for name in options.tries:
        train(name, episodes, signals_of(episodes, rewards, options.seeds), options)
    evaluate(episodes, options)
    print(*summary(read(options.out)), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
