"""Offline learning on replay buffers: learned rewards beside controls, and other ways to learn.

One row of `results/offline_table.csv` for each agent: the mean success of its last policy on
Meta-World, its mean return elsewhere, over 50 episodes. All policies meet the same 50 episodes.
Scripted teachers without errors answer queries about segments of 25 steps; each seed has answers, a
reward and agents of its own. The number of updates, 25,000 of each agent, was fixed before the
first run, and so were 500 updates of a Preference Transformer, with which no unit takes an hour.
Other numbers of updates have tables of their own, such as `results/offline_table_100000.csv`.

The data are recorded here by presets of `preferl data record`, each from three seeds; those of
button-press-topdown are read from `PREFERL_SHARED` where they are (the simulator is installed
beside the rest: pip install metaworld==3.0.0). After a kill, the same command goes on. It leaves
out what `results/offline_table.csv` has, also on another machine.

    python recipes/offline_table.py --data button-press-topdown --seeds 0 1 2 3 4
    python recipes/offline_table.py --groups pt ranked cpl ipl --answers 1000
    python recipes/offline_table.py --steps 100000 --together cuda    # all at once, on a GPU
    python recipes/offline_table.py --steps 100000 --groups beside_random --seeds 5 6 7 8 9
    python recipes/offline_table.py --groups learned --answers 500 100
    python recipes/offline_table.py --summary    # shares, and paired differences from the controls
    python recipes/offline_table.py --draw       # a picture for each data set

Random rewards differ by luck, so `beside_random` brings further seeds of them and of the learned
reward alone; they come to what they come to in `rewards`.

All controls but `negated` learn from no answers, so one number of answers does for `rewards`. The
summary compares learned rewards from other numbers with these controls, too.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from result_tables import Row, add_executor_options, iqm_interval, keep, read, run_table, write_svg

from preferl.configs import from_json
from preferl.data import Comparisons, Episodes, load_episodes, save_comparisons, save_episodes
from preferl.data.episodes import join
from preferl.envs.config import EnvConfig
from preferl.envs.factory import env_factory
from preferl.errors import ConfigError, PreferlError
from preferl.evaluation import evaluate_policy
from preferl.evaluation.plots import condition_scores
from preferl.evaluation.policies import RandomPolicy
from preferl.feedback import ScriptedTeacher
from preferl.feedback.instant import sample_comparisons
from preferl.feedback.ranked_lists import sample_ranked
from preferl.offline import (
    CPLConfig,
    IPLConfig,
    IQLConfig,
    OfflineConfig,
    OfflineRun,
    run_offline,
    train_together,
)
from preferl.online import DatasetConfig
from preferl.online.dataset import record_seeds
from preferl.presets import load_preset
from preferl.reading import read_object
from preferl.runs import RunFolder
from preferl.runs.executor import Unit
from preferl.statistics import interquartile_mean, mean_interval

SHARED = Path(os.environ.get("PREFERL_SHARED", "../shared")) / "data"
RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "docs/images"
COLUMNS = ("data", "condition", "seed", "answers", "score")
KEY = COLUMNS[:-1]
LENGTH = 25
STEPS = 25_000
EPISODES = 50
SEEDS = (0, 1, 2)
FIRST_EPISODE = 10_000
"""Seed of the random policy's evaluation, as of the others."""
PRECISION: dict[str, Any] = {"precision": "float32"}
"""Of all agents, since rows are compared. Processors without bfloat16 emulate it: an update of five
agents took 44 ms in float32 and 129 ms in bfloat16, on a core with AVX-512 but no AVX512-BF16."""


@dataclass(frozen=True)
class Group:
    """Conditions that one run gives, and what differs in its settings."""

    rows: Mapping[str, str] = field(default_factory=lambda: {"learned": "learned"})
    """Conditions of the run to those of the table."""
    run: Mapping[str, Any] = field(default_factory=dict)
    teacher: ScriptedTeacher = field(default_factory=ScriptedTeacher.oracle)
    lists: bool = False


CONTROLS = ("true", "zero", "random", "negated", "cloning")
UNANSWERED = frozenset(CONTROLS) - {"negated"}
CONTROLLED = 1_000
"""Controls that learn from no answers, and the number of answers beside which they are stored."""
GROUPS = {
    "rewards": Group({name: name for name in ("learned", *CONTROLS)}, {"controls": True}),
    "beside_random": Group(
        {name: name for name in ("learned", "random")},
        {"controls": True, "only_controls": ("random",)},
    ),
    "learned": Group(),
    "pt": Group({"learned": "pt"}, {"model": "pt", "budget": 500}),
    "ranked": Group({"learned": "ranked"}, {"implied": True}, lists=True),
    "cpl": Group({"answers": "cpl"}, {"policy": "cpl", "cpl": CPLConfig(**PRECISION)}),
    "ipl": Group({"answers": "ipl"}, {"policy": "ipl", "ipl": IPLConfig(**PRECISION)}),
    "wrong_10": Group({"learned": "wrong_10"}, teacher=ScriptedTeacher.mistake(0.1)),
    "wrong_30": Group({"learned": "wrong_30"}, teacher=ScriptedTeacher.mistake(0.3)),
    "random_policy": Group({}),
}


def environment(name: str) -> dict[str, Any]:
    """How the environment of a data set is made."""
    names = ("env", "env_kwargs", "wrappers", "max_episode_steps")
    preset = load_preset(name, "data")
    return {key: preset[key] for key in names if key in preset}


def shared_episodes(folder: Path) -> Episodes:
    """Replay buffers as they lie in the shared folder."""
    parts = []
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as arrays:
            final = arrays["final_observations"]
            parts.append(
                Episodes(
                    arrays["observations"],
                    arrays["actions"],
                    arrays["rewards"],
                    np.zeros(len(arrays["rewards"]), bool),
                    final,
                    np.full(len(final), len(arrays["rewards"]) // len(final)),
                    success=arrays["success"],
                )
            )
    return join(parts)


def episodes_of(name: str, runs: Path) -> Path:
    """Where the episodes of a data set lie, within the folder of runs."""
    return runs / "data" / name / "episodes"


def prepare(name: str, options: argparse.Namespace) -> None:
    """Make the folder of a data set's episodes if it is not there."""
    episodes = episodes_of(name, options.runs)
    shared = SHARED / f"metaworld-{name}"
    if episodes.is_dir():
        return
    if any(shared.glob("*seed*.npz")):
        save_episodes(episodes, shared_episodes(shared))
        return
    print(f"recording {name}, which takes an hour or more", flush=True)
    config = from_json(DatasetConfig, load_preset(name, "data"))
    started = (episodes.parent / "config.json").is_file()
    how: dict[str, Any] = {"resume": started, "processes": options.processes, "report_to": ()}
    if record_seeds(config, episodes.parent, SEEDS, **how)["interrupted"]:
        raise KeyboardInterrupt


def work(settings: Mapping[str, Any], folder: Path) -> None:
    """One seed of a group, the work of a unit; its rows lie in `rows.csv` in its folder."""
    began = time.perf_counter()
    if (folder / "rows.csv").is_file():  # killed before the unit counted as done
        return
    acted = settings["group"] == "random_policy"
    scores = random_score(settings) if acted else agent_scores(settings, folder)
    minutes = f"{(time.perf_counter() - began) / 60:.2f}"
    rows = [
        dict(zip(KEY, key, strict=True)) | {"score": f"{scores[key[1]]:.4f}", "minutes": minutes}
        for key in keys_of(settings)
    ]
    keep(folder / "rows.csv", rows, KEY)
    print(rows, flush=True)


def train_units(units: list[Unit], options: argparse.Namespace) -> None:
    """Train the agents of units of the same data side by side, so that they are only evaluated.

    A GPU takes products of float32 in TF32, whose rounding is that of 10 bits.
    """
    torch.set_float32_matmul_precision("high")
    by_data: dict[str, dict[Path, OfflineRun]] = {}
    for unit in units:
        run = unit.folder / "run"
        seeds = (unit.settings["seed"],)
        if unit.settings["group"] != "random_policy" and not RunFolder(run).finished:
            config = run_config(unit.settings, unit.folder)
            by_data.setdefault(unit.settings["data"], {})[run] = OfflineRun(config, seeds)
    for data, runs in by_data.items():
        began = time.perf_counter()
        device = options.together

        def report(stage: str, done: int, of: int, data: str = data) -> None:
            print(f"{data}: {stage}, {done:,} of {of:,}", flush=True)

        states = options.runs / data / "together"
        train_together(runs, states, device=device, on_progress=report)
        minutes = f"{(time.perf_counter() - began) / 60:.2f}"
        of = {"data": data, "condition": f"together, {device}", "seed": "", "answers": ""}
        keep(costs(options.out), [of | {"minutes": minutes}], KEY)


def costs(out: Path) -> Path:
    """Where the minutes are that each unit of a table took."""
    return out.with_name(f"{out.stem}_costs.csv")


def random_score(settings: Mapping[str, Any]) -> dict[str, float]:
    """What actions at random come to."""
    make = env_factory(EnvConfig(**environment(settings["data"])))
    with closing(make()) as env:
        policy = RandomPolicy(env.action_space, settings["seed"])
    report = evaluate_policy(policy, make, episodes=settings["episodes"], seed=FIRST_EPISODE)
    rate = report.success_rate
    return {"random_policy": report.mean if rate is None else rate}


def agent_scores(settings: Mapping[str, Any], folder: Path) -> dict[str, float]:
    """The mean scores of a group's conditions, by their names in the table."""
    group = GROUPS[settings["group"]]
    run = folder / "run"
    if RunFolder(run).finished:  # killed before it had written its rows
        result = read_object(run / "result.json")
    else:
        how: dict[str, Any] = {"processes": 1, "report_to": ("jsonl",)}
        resume = (run / "config.json").is_file()
        seeds = (settings["seed"],)
        config = run_config(settings, folder)
        result = run_offline(config, run, resume=resume, seeds=seeds, **how)
        if result["interrupted"]:
            raise KeyboardInterrupt
    scores = {}
    for own, condition in group.rows.items():
        of = result["conditions"][own]
        rate = of["success_rate"]
        scores[condition] = (of["return"] if rate is None else rate)["mean"]
    return scores


def run_config(settings: Mapping[str, Any], folder: Path) -> OfflineConfig:
    """The settings of a unit's run, with its answers, which are asked for if they are not there.

    Paths are as relative as the unit's own, so that a checkout may move.
    """
    runs = folder.parents[3]  # of RUNS/NAME/GROUP/ANSWERS/SEED, GROUP_STEPS for other steps
    group = GROUPS[settings["group"]]
    episodes = episodes_of(settings["data"], runs)
    answers = folder / "answers"
    if not answers.is_dir():
        save_comparisons(answers, asked(load_episodes(episodes), group, settings))
    usual = {"controls": False, "iql": IQLConfig(**PRECISION)} | environment(settings["data"])
    return OfflineConfig(
        demonstrations=str(episodes),
        comparisons=str(answers),
        steps=settings["steps"],
        episodes=settings["episodes"],
        eval_every=0,
        **usual | group.run,
    )


def asked(episodes: Episodes, group: Group, settings: Mapping[str, Any]) -> Comparisons:
    """The answers of a unit's teacher to its own queries."""
    seed = settings["seed"]
    count = settings["answers"]
    drawn = episodes, count, LENGTH, group.teacher, np.random.default_rng([seed, count])
    return (
        sample_ranked(*drawn, lists=max(4, count // 100))
        if group.lists
        else (sample_comparisons(*drawn))
    )


def keys_of(settings: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The rows of a unit, as texts by `KEY`."""
    group = settings["group"]
    own = GROUPS[settings["group"]].rows.values()
    seed = str(settings["seed"])
    answers = str(settings["answers"])
    names = [group] if group == "random_policy" else own
    return [(settings["data"], name, seed, answers) for name in names]


def units_of(options: argparse.Namespace) -> list[Unit]:
    """All that is asked for and not in the table, a unit for each seed."""
    for group in options.groups:
        if group not in GROUPS:
            raise ConfigError(f"group: expected one of {', '.join(GROUPS)}, got {group}.")
    stored = {tuple(row[name] for name in KEY) for row in read(options.out)}
    units = [
        unit_of(options, name, group, count, seed)
        for name in options.data
        for group in options.groups
        for count in ([0] if group == "random_policy" else options.answers)
        for seed in options.seeds
    ]
    left = [unit for unit in units if not stored.issuperset(keys_of(unit.settings))]
    for name in dict.fromkeys(unit.settings["data"] for unit in left):
        prepare(name, options)
    return left


def unit_of(options: argparse.Namespace, name: str, group: str, count: int, seed: int) -> Unit:
    """One seed of a group, whose settings hold no path."""
    about = {"data": name, "group": group, "seed": seed, "answers": count}
    about |= {"steps": options.steps, "episodes": options.episodes}
    title = f"{name}, {group}, {count} answers, seed {seed}"
    work_of = group if options.steps == STEPS else f"{group}_{options.steps}"
    folder = options.runs / name / work_of / str(count) / str(seed)
    return Unit(title, f"{Path(__file__).stem}:{work.__name__}", about, folder)


def collect(units: list[Unit], out: Path) -> None:
    """Bring rows of units into the table, and what each took into that of costs."""
    for unit in units:
        rows = read(unit.folder / "rows.csv")
        keep(out, ({name: row[name] for name in COLUMNS} for row in rows), KEY)
        if rows:
            about = unit.settings
            cost = {"data": about["data"], "condition": about["group"]}
            cost |= {"seed": str(about["seed"]), "answers": str(about["answers"])}
            of = cost | {"minutes": rows[0]["minutes"]}
            keep(costs(out), [of], KEY)


def scores_of(rows: list[Row], data: str) -> dict[tuple[str, int], dict[int, float]]:
    """By condition and number of answers: the score of each seed."""
    found: dict[tuple[str, int], dict[int, float]] = {}
    for row in rows:
        if row["data"] == data:
            key = row["condition"], int(row["answers"])
            found.setdefault(key, {})[int(row["seed"])] = float(row["score"])
    return found


def summary(rows: list[Row]) -> None:
    """Print means, interquartile means, shares, and paired differences over seeds."""
    for data in dict.fromkeys(row["data"] for row in rows):
        scores = scores_of(rows, data)
        print(data)
        acted = [
            value
            for (name, _), of in scores.items()
            if name == "random_policy"
            for value in of.values()
        ]
        for (name, count), of in scores.items():
            values = np.array([*of.values()])
            low, high = iqm_interval(values)
            line = f"  {name}, {count:,} answers: mean {values.mean():,.3f} of {len(values)}, "
            line += (
                f"interquartile mean {interquartile_mean(values):,.3f} ({low:,.3f} to {high:,.3f})"
            )
            true = scores.get(("true", count)) or scores.get(("true", CONTROLLED))
            if acted and true and name not in (*CONTROLS, "random_policy"):
                ceiling = np.mean([*true.values()])
                floor = np.mean(acted)
                line += f", share {(values.mean() - floor) / (ceiling - floor):.3f}"
            print(line)
        for (name, count), of in scores.items():
            for control in CONTROLS if name == "learned" else ():
                other = scores.get((control, count), {})
                if not other and control in UNANSWERED:
                    other = scores.get((control, CONTROLLED), {})
                both = sorted(of.keys() & other.keys())
                if not both:
                    continue
                pairs = np.array([of[seed] - other[seed] for seed in both])
                interval = mean_interval(pairs)
                ends = "" if interval is None else f" ({interval[0]:,.3f} to {interval[1]:,.3f})"
                print(f"  learned − {control}, {count:,} answers: {pairs.mean():,.3f}{ends}")


def draw(rows: list[Row], folder: Path) -> None:
    """A picture for each data set: the score of each seed, by condition, the best one first."""
    for data in dict.fromkeys(row["data"] for row in rows):
        scores = {key: np.array([*of.values()]) for key, of in scores_of(rows, data).items()}
        ranked = sorted(scores.items(), key=lambda item: -item[1].mean())
        shown = {
            name.replace("_", " ")
            if name in (*UNANSWERED, "random_policy")
            else f"{name.replace('_', ' ')}, {count:,} answers": values
            for (name, count), values in ranked
        }
        first = next((name for name in shown if name.startswith("learned")), next(iter(shown)))
        unit = "success" if max(map(np.max, shown.values())) <= 1 else "return"
        chart = condition_scores(shown, emphasis=first, x_label=unit)
        write_svg(folder / f"offline-table-{data}.svg", chart)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["button-press-topdown"])
    groups = ", ".join(GROUPS)
    parser.add_argument("--groups", nargs="+", default=["rewards", "random_policy"], help=groups)
    parser.add_argument("--answers", type=int, nargs="+", default=[1_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=STEPS, help="updates of each agent")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="of each evaluation")
    together = "cpu or cuda, on which agents of all units learn side by side before anything else"
    parser.add_argument("--together", metavar="DEVICE", help=together)
    add_executor_options(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/offline_table"), help="of agents")
    parser.add_argument("--out", type=Path, help="table; one for each number of updates by default")
    parser.add_argument("--summary", action="store_true", help="print a summary, run nothing")
    parser.add_argument("--draw", action="store_true", help="draw what is stored, run nothing")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="where drawings go")
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    name = "offline_table" if options.steps == STEPS else f"offline_table_{options.steps}"
    options.out = options.out or RESULTS / f"{name}.csv"
    return options


def smoke(options: argparse.Namespace) -> int:
    """A few updates on a few episodes of chance."""
    with tempfile.TemporaryDirectory(prefix="preferl-table-") as name:
        options.runs = Path(name) / "runs"
        options.out = Path(name) / "table.csv"
        options.data = ["halfcheetah"]
        options.seeds = [0]
        options.answers = [20]
        options.steps = 20
        options.episodes = 1
        options.groups = ["rewards", "cpl", "random_policy"]
        config = from_json(DatasetConfig, load_preset("halfcheetah", "data") | {"mix": "random:2"})
        record_seeds(config, options.runs / "data/halfcheetah", [0], report_to=())
        units = units_of(options)
        options.together = "cpu"
        train_units(units, options)
        code = run_table(units, partial(collect, out=options.out), options)
        summary(read(options.out))
        return code


def main() -> int:
    options = parsed()
    if options.smoke:
        return smoke(options)
    if options.summary or options.draw:
        rows = read(options.out)
        if options.summary:
            summary(rows)
        if options.draw:
            draw(rows, options.pictures)
        return 0
    try:
        units = units_of(options)
        if options.together:
            train_units(units, options)
    except KeyboardInterrupt:
        print("Interrupted: the same command goes on.", file=sys.stderr)
        return 130
    except PreferlError as error:
        print(error, file=sys.stderr)
        return 1
    return run_table(units, partial(collect, out=options.out), options)


if __name__ == "__main__":
    sys.exit(main())
