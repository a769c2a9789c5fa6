"""Agents that learn from comparisons beside controls: tasks, conditions and seeds, on all cores.

Each unit is one agent: a task, a condition and a seed, in a process of its own with one thread. A
task is a preset, or the id of an environment, which then has the default settings. "learned"
learns from the preset's comparisons; "true" is the same algorithm on the true reward for as many
steps, "true_scaled" on that reward as learned ones are, of mean 0 and deviation 1, and "true_warm"
begins to learn only after the first steps of an agent from comparisons, so that both make as many
updates; "random" never learns. Of "random_answers" every answer is a guess, and of "negated" every
answer is turned round. "last_reward" is a new agent on the reward that "learned" of its seed ended
with, and "regressed" one on a reward that was fitted to the true reward of each step of the
compared clips; "learned" has to be done before. Further conditions change settings, see
`CONDITIONS` and `--more`.
After a kill, the same command goes on: agents from their last checkpoints. It leaves out agents
whose last evaluation `results/online_table.csv` has, also on another machine.

    python recipes/online_table.py --tasks halfcheetah --seeds 0 1 2 3 4
    python recipes/online_table.py --tasks walker-walk --conditions learned true --steps 300000
    python recipes/online_table.py --tasks Acrobot-v1 CartPole-v1 --conditions learned random
    python recipes/online_table.py --share    # (learned - random) / (true - random), of all tasks
    python recipes/online_table.py --draw     # a picture of each task, from the stored numbers

The table of learning from few answers, written down before its first run. Settings are chosen on
seeds from 100. Steps and answers are those of the presets, 100 in 300,000 steps, of HalfCheetah
200,000, where no others are named. The share is that of "true_warm". `SEEDS` stands for `--seeds`.

    --tasks qpa-walker-walk --conditions learned true_warm random person        SEEDS 0 to 4
    --tasks qpa-walker-walk --conditions random_answers                         SEEDS 0 to 2
    --tasks qpa-walker-walk --conditions learned --comparisons 50, and 200      SEEDS 0 to 2
    --tasks halfcheetah --conditions learned true_warm random                   SEEDS 0 to 4
    --tasks halfcheetah --conditions early_answers                              SEEDS 0 to 2
    --tasks halfcheetah --conditions learned --comparisons 50                   SEEDS 0 to 2
    --tasks halfcheetah --conditions learned mistake noisy skip equal myopic
        --steps 100000 --out b_pref.csv --runs runs/b_pref                      SEEDS 0, 1
    --tasks qpa-cheetah-run --conditions learned true_warm random               SEEDS 0 to 2
    --tasks qpa-window-open --conditions learned true_warm random               SEEDS 0 to 2
    --tasks pebble-walker-walk --conditions learned --comparisons 100
        --steps 300000                                                          SEEDS 0 to 2

On HalfCheetah, `early_answers` was the setting of choice for a while, by an agent of seed 100 (see
`results/online_tries.csv`). Its three seeds are no better than those of the preset, which therefore
kept its share of early answers.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from result_tables import (
    Row,
    add_executor_options,
    iqm_interval,
    keep,
    processor,
    read,
    run_table,
    write_svg,
)
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from preferl.configs import from_json, to_json
from preferl.data import Segments, load_comparisons
from preferl.envs.factory import env_factory
from preferl.errors import ConfigError
from preferl.evaluation import PolicyReport, evaluate_policy
from preferl.evaluation.curve import Evaluation, Evaluator, evaluation_interval
from preferl.evaluation.plots import Curve, learning_curves
from preferl.evaluation.policies import RandomPolicy
from preferl.models import build_reward_model
from preferl.online import (
    FeedbackVecEnv,
    OnlineConfig,
    SaveRunCallback,
    make_environments,
    resume_run,
    run_online,
    save_policy,
)
from preferl.online.algorithms import algorithm_of, build_algorithm, normalised
from preferl.online.configs import EvaluationConfig
from preferl.online.loop import FIRST_EPISODE
from preferl.online.rollouts import learn_within
from preferl.presets import load_preset, preset_names, with_changes
from preferl.reporting import read_jsonl, series
from preferl.runs import RunFolder
from preferl.runs.executor import Unit
from preferl.runs.provenance import git_revision
from preferl.statistics import interquartile_mean, mean_interval
from preferl.training import RewardFunction, has_run, load_reward, save_reward
from preferl.training.batches import to_tensor, to_tensors

RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "docs/images"
AGENT = ("task", "condition", "budget", "seed")
KEY = (*AGENT, "steps")
MEASURED = ("answers", "steps", "return", "success", "seconds", "machine", "commit")
COLUMNS = (*AGENT, *MEASURED)
"""The budget is the answers that are asked for in all, `answers` those that an agent has learned
from so far, and `seconds` are of processor time, since the agent began."""
CONDITIONS: dict[str, Mapping[str, Any]] = {
    "learned": {},
    "true": {},
    "true_scaled": {},
    "true_warm": {},
    "last_reward": {},
    "regressed": {},
    "random": {},
    "random_answers": {"teacher": {"guess_rate": 1.0}},
    "negated": {"teacher": {"error_rate": 1.0}},
    "errors": {"teacher": {"error_rate": 0.3}},
    # B-Pref's teachers, beside the oracle of "learned", and one who errs as people do.
    **{name: {"teacher": {"kind": name}} for name in ("mistake", "noisy", "skip", "equal")},
    "myopic": {"teacher": {"kind": "myopic"}},
    "person": {"teacher": {"kind": "person"}},
    "with_actions": {"model": {"use_actions": True}},
    "fifty_epochs": {"trainer": {"epochs": 50, "patience": None}},
    "short_clips": {"segment_length": 25},
    "long_clips": {"segment_length": 100},
    "early_answers": {"initial_fraction": 0.5},
    "more_fits": {"iterations": 40},
    "uniform": {"sampler": "uniform"},
    "informative": {"sampler": "informative"},
    "disagreement": {"sampler": "disagreement"},
    "entropy": {"sampler": "entropy"},
    "k_center": {"sampler": "k_center"},
    "equal_sessions": {
        "sampler": "disagreement",
        "schedule": "constant",
        "initial_fraction": 0.1,
    },
    "recent_answers": {
        "max_comparisons": 300,
        "model": {"members": 7},
        "trainer": {"noise": 0.1},
    },
    "errors_plain_fit": {
        "teacher": {"error_rate": 0.3},
        "trainer": {"epochs": 50, "patience": None, "noise": 0.0},
    },
    "filtering": {"teacher": {"error_rate": 0.3}, "prepare": ["rime"]},
    "rime": {"teacher": {"error_rate": 0.3}, "prepare": ["rime"], "trainer": {"noise": 0.0}},
    "surf": {"prepare": ["surf"], "trainer": {"crop": 5}},
    "rune": {"exploration_bonus": 0.05},
}
"""By name: what changes in the settings of the preset."""
ASK_NOBODY = ("true", "true_scaled", "true_warm", "random")
"""Conditions whose budget is 0."""
NEARLY = 0.95
"""Of the steps of the longest agent: others stopped, and are not compared with it."""
FIRST = ("learned", "true", "random", "random_answers", "negated")
FEW = 10
"""Of fewer seeds, bootstrap intervals are too narrow: 73 % of those of three cover the mean."""
Add = Callable[[int, int, PolicyReport], None]
"""Keeps an evaluation: answers, steps, episodes."""


def answers_before(run: Path, step: int) -> int:
    """Answers that an agent had learned from at a step, by the metrics of its run."""
    metrics = read_jsonl(run / "metrics.jsonl")
    if "feedback/answers" not in metrics:
        return 0
    steps, answers = series(metrics, "feedback/answers")
    return int(max(answers[steps < step], default=0))


def by_comparisons(config: OnlineConfig, folder: Path, add: Add) -> None:
    """An agent that learns from comparisons; its run is kept in the folder."""
    run = RunFolder(folder / "run")

    def evaluated(one: Evaluation) -> None:
        add(answers_before(run.folder, one.step), one.step, one.report)

    if not run.finished:
        result = run_online(
            config,
            run.folder,
            evaluation=EvaluationConfig(oracle=False, episodes=config.eval_episodes, clip_steps=0),
            on_evaluation=evaluated,
            report_to=("jsonl",),
            resume=(run.folder / "config.json").is_file(),
        )
        if result["interrupted"]:
            raise KeyboardInterrupt


class UnitRewards(VecNormalize):
    """Rewards of mean 0 and deviation 1 over all steps so far; a replay buffer samples them so."""

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env, norm_obs=False)

    def _update_reward(self, reward: np.ndarray) -> None:
        self.ret_rms.update(reward)

    def normalize_reward(self, reward: np.ndarray) -> np.ndarray:
        """Rewards as the algorithm learns from them."""
        return super().normalize_reward(reward - self.ret_rms.mean)


def by_true_reward(
    config: OnlineConfig, folder: Path, add: Add, *, wrap: Callable[[VecEnv], VecEnv] | None = None
) -> None:
    """The same algorithm on the environment's own reward, for as many steps; keeps its policy."""
    make = env_factory(config)
    checkpoints = folder / "checkpoints"
    env = make_environments(make, config.environments, seed=config.seed, vec_env=config.vec_env)
    env = env if wrap is None else wrap(env)
    env = normalised(env) if config.normalise_observations else env  # outermost: it acts on these
    with closing(env):
        chosen = algorithm_of(config, env)
        agent = build_algorithm(chosen, env, seed=config.seed, device=config.device)
        if has_run(checkpoints):
            resume_run(checkpoints, agent)
        done = [int(row["steps"]) for row in read(folder / "rows.csv")]
        evaluates = Evaluates(agent, config, max(done, default=None), add)
        saves = SaveRunCallback(checkpoints, every=max(1, config.steps // 10))
        learn_within(agent, config.steps - agent.num_timesteps, callback=[saves, evaluates])
        evaluates.offer(over=True)
        save_policy(folder / "policy", agent, chosen)


class Evaluates(BaseCallback):
    """Evaluates between rollouts, as often as a run from comparisons does, and by its episodes."""

    def __init__(self, agent: Any, config: OnlineConfig, last: int | None, add: Add) -> None:
        super().__init__()
        self._agent = agent
        self._last = last
        self._add = add
        self._evaluator = Evaluator(
            env_factory(config),
            every=evaluation_interval(config.eval_every, config.steps),
            episodes=config.eval_episodes,
            seed=config.seed + FIRST_EPISODE,
        )

    def offer(self, *, over: bool = False) -> None:
        """Evaluate the agent as it is now if it is time to; `over` at its end."""
        step = self._agent.num_timesteps
        if self._evaluator.due(step, self._last, over=over):
            self._add(0, step, self._evaluator(self._agent))
            self._last = step

    def _on_rollout_start(self) -> None:
        self.offer()

    def _on_step(self) -> bool:
        return True


def by_last_reward(config: OnlineConfig, folder: Path, add: Add) -> None:
    """The same algorithm on the reward that the agent of `learned` ended with, from the start."""
    last = load_reward(learned_run(folder) / "reward")
    by_true_reward(config, folder, add, wrap=partial(FeedbackVecEnv, rewards=last))


def by_regression(config: OnlineConfig, folder: Path, add: Add) -> None:
    """As `by_last_reward`, on a reward of the same steps that knows the true reward of each."""
    run = learned_run(folder)
    fitted = folder / "reward"
    if not fitted.is_dir():
        segments = load_comparisons(run / "comparisons").segments
        save_reward(fitted, regressed(load_reward(run / "reward"), segments, seed=config.seed))
    by_true_reward(config, folder, add, wrap=partial(FeedbackVecEnv, rewards=load_reward(fitted)))


def learned_run(folder: Path) -> Path:
    """The run of the agent of `learned` that has the task and the seed of a unit's folder."""
    run = folder.parents[1] / "learned" / folder.name / "run"
    if not RunFolder(run).finished:
        raise ConfigError(
            f"learned: expected a finished run in {run}, got none. Run the condition `learned` "
            "with the same --runs first."
        )
    return run


def regressed(
    like: RewardFunction, segments: Segments, *, seed: int, updates: int = 3_000, batch: int = 256
) -> RewardFunction:
    """Fit a reward of the same kind to the true reward of each step, at mean 0 and deviation 1."""
    spaces = like.observation_space, like.action_space
    model = build_reward_model(like.model.config, *spaces, seed=seed)
    steps = to_tensors(segments.observations, "cpu"), to_tensor(segments.actions, "cpu")
    model.encoder.observe(*steps)
    features = model.encoder(*steps)[:, None]
    rewards = to_tensor(segments.rewards, "cpu")
    targets = (rewards - rewards.mean()) / rewards.std()
    drawn = torch.Generator().manual_seed(seed)
    mask = torch.ones(batch, 1, dtype=torch.bool)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(updates):
        rows = torch.randint(len(targets), (batch,), generator=drawn)
        found = model.judge(features[rows], mask).rewards[..., 0]  # [E, B]
        optimiser.zero_grad()
        (found - targets[rows]).square().mean().backward()
        optimiser.step()
    return RewardFunction(model)


def at_random(config: OnlineConfig, _: Path, add: Add) -> None:
    """A policy that acts at random."""
    make = env_factory(config)
    seed = config.seed + FIRST_EPISODE
    with closing(make()) as env:
        policy = RandomPolicy(env.action_space, config.seed)
    add(0, 0, evaluate_policy(policy, make, episodes=config.eval_episodes, seed=seed))


def work(settings: Mapping[str, Any], folder: Path) -> None:
    """Train one agent, the work of a unit; each evaluation is a row of `rows.csv` in its folder."""
    torch.set_num_threads(1)
    rows = folder / "rows.csv"
    before = max((float(row["seconds"]) for row in read(rows)), default=0.0)
    made_by = {
        "machine": f"{processor()}, {os.cpu_count()} processors, {settings['config']['device']}",
        "commit": (git_revision(Path(__file__).parent) or "")[:12],  # whose defaults made the row
    }

    def add(answers: int, steps: int, report: PolicyReport) -> None:
        success = report.success_rate
        row = {
            "answers": str(answers),
            "steps": str(steps),
            "return": f"{report.mean:.2f}",
            "success": "" if success is None else f"{success:g}",
            "seconds": f"{before + time.process_time():.0f}",
        }
        keep(rows, [row | made_by], ("steps",))
        print(row, flush=True)

    config = from_json(OnlineConfig, settings["config"])
    scaled = partial(by_true_reward, wrap=UnitRewards)
    others: dict[str, Callable[[OnlineConfig, Path, Add], None]] = {
        "true": by_true_reward,
        "true_scaled": scaled,
        "true_warm": by_true_reward,
        "last_reward": by_last_reward,
        "regressed": by_regression,
        "random": at_random,
    }
    others.get(settings["condition"], by_comparisons)(config, folder, add)


def units_of(options: argparse.Namespace) -> list[Unit]:
    """All agents that are asked for; raises `ConfigError` for settings that do not go together."""
    conditions = CONDITIONS | more_conditions(options.more)
    units = []
    last = last_steps(options.out)
    for task in options.tasks:
        for condition in options.conditions:
            if condition not in conditions:
                raise ConfigError(
                    f"condition: expected one of {', '.join(conditions)}, got {condition}."
                )
            settings = with_changes(shortened(settings_of(task), options), conditions[condition])
            for seed in options.seeds:
                config = settings | {"seed": seed, "device": options.device}
                if condition == "true_warm":
                    config = warmed_up(config)
                budget = 0 if condition in ASK_NOBODY else config["comparisons"]
                from_json(OnlineConfig, config)
                steps = 0 if condition == "random" else config["steps"]
                stored = last.get((task, condition, str(budget), str(seed)), -math.inf)
                if not stored <= steps / NEARLY:
                    raise ConfigError(
                        f"{options.out}: expected agents of {steps:,} steps, got {stored:,} "
                        "steps. Name another table with --out."
                    )
                if stored > steps - config["environments"]:
                    continue
                about = {"task": task, "condition": condition, "budget": budget, "config": config}
                name = f"{labelled(condition, budget)} on {task}, seed {seed}"
                folder = Path(task, str(budget), condition, str(seed))
                place = f"{Path(__file__).stem}:{work.__name__}"
                units.append(Unit(name, place, about, options.runs / folder))
    return units


def warmed_up(config: dict[str, Any]) -> dict[str, Any]:
    """Settings by which an agent on the true reward begins to learn as late as a learned one."""
    algorithm = config["algorithm"] or {}
    if "learning_starts" not in algorithm:
        raise ConfigError(
            "condition true_warm: expected an algorithm with a replay buffer, got "
            f"{algorithm.get('kind', 'the default one')}. Leave the condition out."
        )
    return with_changes(config, {"algorithm": {"learning_starts": config["initial_steps"]}})


def labelled(condition: str, budget: int) -> str:
    """A condition and how many answers it asks for, for people."""
    return f"{condition}, {budget} answers" if budget else condition


def last_steps(table: Path) -> dict[tuple[str, ...], int]:
    """By task, condition, budget and seed: the steps of the last evaluation in a table."""
    found: dict[tuple[str, ...], int] = {}
    for row in read(table):
        agent = tuple(row[name] for name in AGENT)
        found[agent] = max(found.get(agent, 0), int(row["steps"]))
    return found


def more_conditions(file: Path | None) -> dict[str, Mapping[str, Any]]:
    return {} if file is None else yaml.safe_load(file.read_text(encoding="utf-8"))


def settings_of(task: str) -> dict[str, Any]:
    """Those of a preset, or the default ones of an environment."""
    return load_preset(task) if task in preset_names() else to_json(OnlineConfig(env=task))


def shortened(settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Settings with the steps and comparisons that are asked for.

    The first steps change in proportion; a replay buffer that holds all steps still does.
    """
    if (steps := options.steps) is not None:
        first = round(settings["initial_steps"] * steps / settings["steps"])
        algorithm = settings["algorithm"] or {}
        if algorithm.get("buffer_size", 0) >= settings["steps"]:
            settings["algorithm"] = algorithm | {"buffer_size": max(steps, settings["steps"])}
        settings |= {"steps": steps, "initial_steps": max(first, settings["environments"])}
    if options.comparisons is not None:
        settings["comparisons"] = options.comparisons
    if options.smoke:
        settings["eval_episodes"] = 1
    return settings


def collect(units: list[Unit], out: Path) -> None:
    """Bring rows of agents into the table."""
    for unit in units:
        about = unit.settings
        agent = {
            "task": about["task"],
            "condition": about["condition"],
            "budget": str(about["budget"]),
            "seed": str(about["config"]["seed"]),
        }
        keep(out, (agent | row for row in read(unit.folder / "rows.csv")), KEY)


def curves_of(rows: list[Row], task: str) -> dict[tuple[str, int], dict[int, list[float]]]:
    """By condition and budget, and by step: the returns of all seeds."""
    curves: dict[tuple[str, int], dict[int, list[float]]] = {}
    for row in rows:
        if row["task"] == task:
            by_step = curves.setdefault((row["condition"], int(row["budget"])), {})
            by_step.setdefault(int(row["steps"]), []).append(float(row["return"]))
    return curves


def finals(rows: list[Row], task: str) -> dict[tuple[str, int], list[float]]:
    """By condition and budget: each seed's return in its last evaluation; none of who stopped."""
    last: dict[tuple[str, int, str], Row] = {}
    for row in sorted((row for row in rows if row["task"] == task), key=lambda r: int(r["steps"])):
        last[row["condition"], int(row["budget"]), row["seed"]] = row
    most = max(int(row["steps"]) for row in last.values())
    returns: dict[tuple[str, int], list[float]] = {}
    for (condition, budget, seed), row in last.items():
        if condition == "random" or int(row["steps"]) >= NEARLY * most:
            returns.setdefault((condition, budget), []).append(float(row["return"]))
        else:
            agent = f"{labelled(condition, budget)} on {task}, seed {seed}"
            print(f"{agent}: left out, stopped at {row['steps']} steps")
    return returns


def tasks_of(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["task"] for row in rows))


def share(rows: list[Row]) -> None:
    """Print how much of what the true reward brings the answers bring, by task and condition."""
    for task in tasks_of(rows):
        returns = finals(rows, task)
        means = {agent: float(np.mean(each)) for agent, each in returns.items()}
        random = means.get(("random", 0))
        true = means.get(("true_warm", 0), means.get(("true", 0)))
        if random is None or true is None:
            print(f"{task}: no share without the conditions random and true or true_warm")
            continue
        print(f"{task}: random {random:,.1f}, true {true:,.1f}")
        for agent, mean in means.items():
            if agent[0] != "random":
                each = np.array(returns[agent])
                low, high = mean_interval(each) or (mean, mean)
                label = (
                    f"  {labelled(*agent)}: {mean:,.1f} ({len(each)}, {low:,.0f} to {high:,.0f})"
                )
                print(f"{label}, share {(mean - random) / (true - random):.3f}")


def draw(rows: list[Row], folder: Path) -> None:
    """A picture of each task: interquartile means with their intervals; of few seeds, each seed."""
    for task in tasks_of(rows):
        by_agent = curves_of(rows, task)
        acted = [mean for each in by_agent.pop(("random", 0), {}).values() for mean in each]
        random = {"random": float(np.mean(acted))} if acted else {}
        curves = []
        ranks = {condition: rank for rank, condition in enumerate(FIRST)}
        for agent in sorted(by_agent, key=lambda agent: (ranks.get(agent[0], len(FIRST)), agent)):
            by_step = by_agent[agent]
            seeds = max(map(len, by_step.values()))
            steps = sorted(step for step, each in by_step.items() if len(each) == seeds)
            values = np.array([by_step[step] for step in steps])  # [n, S]
            label = f"{labelled(*agent)} ({seeds})"
            if seeds < FEW:
                curves.append(Curve(label, np.array(steps), values.T))
            else:
                band = np.array([iqm_interval(each) for each in values]).T
                curves.append(Curve(label, np.array(steps), interquartile_mean(values), band))
        if curves:
            write_svg(
                folder / f"online-table-{task}.svg", learning_curves(curves, references=random)
            )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = f"presets ({', '.join(preset_names())}) or ids of environments"
    parser.add_argument("--tasks", nargs="+", default=["halfcheetah"], help=known)
    parser.add_argument("--conditions", nargs="+", default=FIRST, help=", ".join(CONDITIONS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, help="instead of the preset's")
    parser.add_argument("--comparisons", type=int, help="instead of the preset's")
    parser.add_argument("--more", type=Path, help="YAML: further conditions, changes by name")
    parser.add_argument("--device", default="cpu", help="cuda replays SAC's updates as a graph")
    add_executor_options(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/online_table"), help="of agents")
    parser.add_argument("--out", type=Path, default=RESULTS / "online_table.csv")
    parser.add_argument("--share", action="store_true", help="print shares, run nothing")
    parser.add_argument("--draw", action="store_true", help="draw what is stored, run nothing")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="where drawings go")
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    return parser.parse_args()


def table(options: argparse.Namespace) -> int:
    """Run all that is not done; 1 if something failed, 2 if settings are wrong."""
    try:
        units = units_of(options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return run_table(units, partial(collect, out=options.out), options)


def main() -> int:
    options = parsed()
    if options.smoke:
        with tempfile.TemporaryDirectory(prefix="preferl-table-") as name:
            options.runs = Path(name) / "runs"
            options.out = Path(name) / "table.csv"
            options.tasks = ["pendulum"]
            options.seeds = [0]
            options.conditions = FIRST[:3]
            options.steps = 2_000
            options.comparisons = 20
            code = table(options)
            share(read(options.out))
            return code
    if options.share or options.draw:
        rows = read(options.out)
        if options.share:
            share(rows)
        if options.draw:
            draw(rows, options.pictures)
        return 0
    return table(options)


if __name__ == "__main__":
    sys.exit(main())
