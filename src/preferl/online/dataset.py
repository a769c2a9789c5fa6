"""Record a data set of mixed quality: train or load an expert, let policies act, write episodes.

A policy is saved at each checkpoint of training. Two of them stand for a quality of behaviour. The
expert has the best return, and the return of the medium policy is a third of the way from random
actions to the expert. Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning",
mix their data like this.
"""

import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv

from preferl.configs import from_json, to_json
from preferl.data.arrays import content_id, load_episodes, save_episodes
from preferl.data.episodes import Episodes, join
from preferl.data.to_minari import require_minari_env, require_new_minari, save_minari
from preferl.envs.checks import require_usable
from preferl.envs.factory import draws
from preferl.errors import ConfigError, DataError, StorageError, require_in
from preferl.evaluation.curve import Evaluation
from preferl.evaluation.policies import Policy, RandomPolicy
from preferl.evaluation.policy import PolicyReport, evaluate_policy
from preferl.evaluation.rollout import task_env
from preferl.files import write_json
from preferl.online.acting import act, has_states, load_actor, task_environments
from preferl.online.algorithms import build_algorithm, suited_algorithm
from preferl.online.checkpoints.policy_folder import load_policy, save_policy
from preferl.online.checkpoints.run_checkpoint import resume_run, save_run
from preferl.online.configs import ALL, AlgorithmConfig, DatasetConfig, SACConfig, Tier
from preferl.online.rollouts import SinkWriter, learn_within, least_steps
from preferl.online.wrappers.feedback_env import episode_recorder
from preferl.reading import read_object, reading
from preferl.reporting import PLACES_BY_DEFAULT, MetricSink, open_sinks, require_places
from preferl.runs import RunFolder, open_run, require_openable, versions
from preferl.runs.executor import Unit, run_units
from preferl.runs.summary import Estimate, MetricCurve, RunSummary
from preferl.shapes import IntArray, leaves
from preferl.training.checkpoint_folder import has_run, require_own
from preferl.training.configs import usable_device
from preferl.training.generators import generators_left_alone

CURVES: Final = (MetricCurve("Return of checkpoints", "return", ("eval/mean_reward",)),)
"""Metrics whose curves the summary of a run draws."""

OnProgress = Callable[[str, int, int], None]
"""Called with the name of the stage, how much of it is done, and how much there is in all."""

RUN: Final = "run"
"""The folder of one seed's recording, within the folder of its unit."""

SEEDS: Final[Mapping[str, int]] = {
    "random": 10_000,
    "medium": 11_000,
    "expert": 12_000,
    "checkpoints": 30_000,
    "references": 40_000,
}
"""Added to the run's seed; gives the seeds of the first episodes of tiers and evaluations."""


def record_dataset(
    config: DatasetConfig,
    out: Path | str,
    *,
    policy: Policy | None = None,
    minari: str | None = None,
    report_to: Sequence[str] = PLACES_BY_DEFAULT,
    resume: bool = False,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Record a data set of mixed quality in a folder.

    The folder has the data set in `episodes` (see `load_episodes`), one tier after another in the
    order of the mix. Its `result.json` tells where each tier begins, and its returns. For scores,
    it has the mean returns of random actions and of the expert. The folder keeps the checkpoints
    and the episodes of training. After Ctrl-C, it keeps what is there so far. The same call with
    `resume` then continues from the last checkpoint or tier. Settings and environment are checked
    before any folder is touched.

    Args:
        config: what to record.
        out: the folder; an older run there moves aside, unless it is resumed.
        policy: the expert, instead of training or loading one.
        minari: id of a Minari data set that is written as well, such as `mine/cheetah/mixed-v0`.
        report_to: where metrics of training go: some of `jsonl`, `tensorboard`, `wandb`.
        resume: continue the recording that is in `out`, which must have the same settings.
        on_progress: called with the name of the stage, how much of it is done, and how much there
            is in all.

    Returns:
        The contents of `result.json`; after Ctrl-C, only `interrupted` and the stage of the
        recording.

    Raises:
        CheckpointError: a policy or a checkpoint of training is damaged.
        ConfigError: the environment is unknown, the run to resume has other settings, or no
            checkpoint could be the medium policy.
        DataError: the Minari id is malformed or taken.
        MissingExtraError: minari or the package of the environment is not installed.
        ResumeError: the recording to resume is finished, or there is none. Nothing was changed.
        StorageError: another run works in `out`, or `out` cannot be written to.
    """
    if policy is not None:
        config.require_no_training()
    _require_recordable(config, out, minari=minari, report_to=report_to, resume=resume)
    recording = _Recording(config, policy, report_to, on_progress)
    with open_run(
        out,
        config=config,
        seed=config.seed,
        resume=resume,
        resolved=recording.resolved,
        summary=RunSummary("data", config.env_name, CURVES, steps_of="recorded steps"),
    ) as folder:
        try:
            return recording.run(folder, minari)
        except KeyboardInterrupt:
            return {"interrupted": True, "stage": recording.stage}


def _require_recordable(
    config: DatasetConfig,
    out: Path | str,
    *,
    minari: str | None,
    report_to: Sequence[str],
    resume: bool,
) -> None:
    """Raise the errors of recording now, before the expensive stages."""
    require_openable(out, resume=resume)
    require_places(report_to)
    usable_device(config.device)
    if minari is not None:
        require_new_minari(minari)
    require_usable(task_env(config), f"environment {config.env_name}")
    if config.pictures and not draws(task_env(config)):
        raise ConfigError(
            f"environment {config.env_name}: expected an environment that draws pictures, got "
            "none. Name "
            '"rgb_array" in its `render_modes`, and let it take the argument `render_mode`.'
        )
    if minari is not None:
        require_minari_env(task_env(config)())


def data_summary(result: Mapping[str, Any]) -> RunSummary:
    """Return the summary of a data set, from the contents of its `result.json`."""
    tiers = {tier["name"]: tier for tier in result["tiers"]}
    if len(tiers) < len(result["tiers"]):  # tiers of several trainings have equal names
        tiers = {f"{tier['name']}, seed {tier['seed']}": tier for tier in result["tiers"]}
    means = {name: mean for name, mean in result["references"].items() if mean is not None}
    means |= {name: tier["return"]["mean"] for name, tier in tiers.items()}
    scores = {
        name: Estimate(mean, tiers[name]["episodes"] if name in tiers else 0, "episodes")
        for name, mean in means.items()
    }
    return RunSummary(
        kind="data",
        subject=result["env"],
        curves=CURVES,
        seconds=result["seconds"],
        steps=sum(tier["steps"] for tier in tiers.values()),
        steps_of="recorded steps",
        score=scores.pop("expert", None),
        beside=scores,
    )


def data_id(episodes: Episodes) -> str:
    """Name recorded steps by their content, so that the same name means the same data."""
    observations = (*leaves(episodes.observations), *leaves(episodes.final_observations))
    steps = (episodes.actions, episodes.rewards, episodes.terminated, episodes.lengths)
    return content_id(*map(np.asarray, (*observations, *steps)))


def spread(episodes: Episodes, *, count: int | None = None, steps: int = 0) -> Episodes:
    """Choose episodes evenly from the first to the last, in order; all if there are too few.

    If `count` is None, the fewest episodes are chosen that have `steps` steps.
    """

    def evenly_spaced(number: int) -> IntArray:
        return np.linspace(0, len(episodes) - 1, number).round().astype(int)

    if count is None:
        counts = range(1, len(episodes))
        lengths = episodes.lengths
        count = next((n for n in counts if lengths[evenly_spaced(n)].sum() >= steps), len(episodes))
    return episodes[evenly_spaced(min(count, len(episodes)))]


def mean_returns(folder: Path) -> dict[int, float]:
    """Read the mean return of each checkpoint of a run, by the checkpoint's step."""
    means = {}
    for file in sorted((folder / "evaluations").glob("*.json")):
        with reading(file, expected="the evaluation of a checkpoint", error=StorageError):
            means[int(file.stem)] = PolicyReport.from_json(read_object(file)).mean
    return means


def expert(means: Mapping[int, float]) -> int:
    """Return the step of the checkpoint with the best mean return, the earliest of equals."""
    return max(means, key=means.__getitem__)


def medium(means: Mapping[int, float], random: float) -> int:
    """Return the step of the medium policy: before the expert's, a third of the way from random."""
    expert_step = expert(means)
    earlier_steps = [step for step in means if step < expert_step]
    if not earlier_steps:
        raise ConfigError(
            "medium policy: expected a checkpoint before the expert's, got the best return at the "
            f"first one, after {expert_step:,} steps. Save more checkpoints (checkpoint_every), "
            "train longer, or leave medium out."
        )
    target_return = random + (1 / 3) * (means[expert_step] - random)
    return min(earlier_steps, key=lambda step: abs(means[step] - target_return))


@final
class _Recording:
    """One recording, stage by stage; each stage writes its result to the folder."""

    _folder: RunFolder

    def __init__(
        self,
        config: DatasetConfig,
        policy: Policy | None,
        places: Sequence[str],
        on_progress: OnProgress | None,
    ) -> None:
        self.stage = ""
        self._places = places
        self._config = config
        self._on_progress = on_progress or (lambda *_: None)
        with closing(task_env(config)()) as env:
            self._states = has_states(env) or config.pictures
            actions = env.action_space
            default_algorithm = suited_algorithm(env, steps=config.train_steps)
        self._algorithm: AlgorithmConfig = config.algorithm or default_algorithm
        self._policies: dict[str, Policy] = {"random": RandomPolicy(actions, config.seed)}
        if policy is None and config.policy is not None:
            policy = load_actor(
                config.policy,
                trust_pickle=config.trust_pickle,
                vecnormalize=config.vecnormalize,
                device=config.device,
            )
        if policy is not None:
            self._policies["expert"] = policy
        self._trains = not config.amounts.keys() <= self._policies.keys()
        if self._trains:  # raises now what training would raise later
            with closing(self._environments(self._copies, config.seed, states=False)) as venv:
                fewest_steps = least_steps(self._build(venv, most_steps=1))
            require_in("train_steps", config.train_steps, fewest_steps, float("inf"))
        self._steps: dict[str, int] = {}
        self._experience: Episodes | None = None

    def run(self, folder: RunFolder, minari: str | None) -> dict[str, Any]:
        """Make all stages in order; return the contents of `result.json`."""
        self._folder = folder
        config = self._config
        started_at = time.perf_counter()
        if self._trains:
            self._choose_policies(self._train())
        tiers: dict[str, Episodes] = {tier: self._tier(tier) for tier in config.amounts}
        references = {"random": None, "expert": None} | {
            name: float(tiers[name].returns.mean()) if name in tiers else self._mean_return(name)
            for name in ("random", "expert")
            if name in self._policies
        }
        description = {
            "env": config.env_name,
            "seed": config.seed,
            "references": references,
            "algorithm": type(self._algorithm).__name__ if self._trains else None,
            "tiers": self._tier_rows(tiers),
        }
        self._report("writing", 0, 1)
        episodes = join(list(tiers.values()))
        result = _write(
            folder, config, episodes, description=description, minari=minari, started_at=started_at
        )
        shutil.rmtree(folder.folder / "tiers", ignore_errors=True)
        return result

    def _environments(self, count: int, seed: int, *, states: bool) -> VecEnv:
        """Make copies of the environment. With `states`, their infos tell how to draw a step."""
        config = self._config
        return task_environments(
            config,
            count,
            seed=seed,
            states=states,
            pictures=states and config.pictures,
            vec_env=config.vec_env,
        )

    @property
    def resolved(self) -> dict[str, Any]:
        """Return the settings of training that the environment decides."""
        return {"algorithm": self._algorithm, "training_environments": self._copies}

    @property
    def _copies(self) -> int:
        """Return the number of environments in training."""
        usual = 1 if isinstance(self._algorithm, SACConfig) else 8
        return self._config.training_environments or usual

    def _build(self, env: VecEnv, most_steps: int) -> BaseAlgorithm:
        algorithm = self._algorithm
        if isinstance(algorithm, SACConfig):  # a larger buffer would only take memory
            algorithm = replace(algorithm, buffer_size=min(algorithm.buffer_size, most_steps))
        return build_algorithm(algorithm, env, seed=self._config.seed, device=self._config.device)

    def _train(self) -> int:
        """Train in slices. Write a policy, its evaluation and the episodes after each slice.

        Return the steps made. They are fewer than planned if a checkpoint reaches the target.
        """
        config = self._config
        folder = self._folder
        training_folder = folder.path("training")
        target_return = config.target_return
        venv = self._environments(self._copies, config.seed, states=self._states)
        with (
            closing(open_sinks(self._places, folder.folder)) as sink,
            closing(episode_recorder(venv, states=self._states)) as recorder,
        ):
            agent = self._build(recorder, config.train_steps)
            writer = SinkWriter(sink, lambda: agent.num_timesteps)
            agent.set_logger(Logger(folder=None, output_formats=[writer]))
            if has_run(training_folder):
                resume_run(training_folder, agent)
                self._evaluate(agent, sink)
            else:
                require_own(training_folder, 0)
            while config.train_steps - agent.num_timesteps >= least_steps(agent):
                means = [*mean_returns(folder.folder).values()]
                if target_return is not None and means and means[-1] >= target_return:
                    break
                self._learn(agent, f", best return {max(means):,.0f}" if means else "")
                # In this order, a crash between two of these lines loses nothing that counts.
                episodes = recorder.take()
                if episodes is not None:
                    save_episodes(folder.path(f"experience/{agent.num_timesteps:09d}"), episodes)
                save_run(training_folder, agent)
                self._evaluate(agent, sink)
            return agent.num_timesteps

    def _learn(self, agent: BaseAlgorithm, remark: str) -> None:
        """Train until the next checkpoint."""
        step = agent.num_timesteps
        total_steps = self._config.train_steps
        progress = partial(self._report, f"training{remark}", total=total_steps)

        def on_step(*_: Any) -> bool:
            if agent.num_timesteps % 100 == 0:  # a step of soft actor-critic takes milliseconds
                progress(agent.num_timesteps)
            return True

        progress(step)
        interval = self._config.checkpoint_every
        steps = interval - step % interval
        while steps < least_steps(agent):
            steps += interval
        learn_within(agent, min(steps, total_steps - step), callback=on_step)

    def _evaluate(self, agent: BaseAlgorithm, sink: MetricSink) -> None:
        """Save and evaluate the current policy, unless that was done before."""
        config = self._config
        step = agent.num_timesteps
        file = self._folder.path(f"evaluations/{step:09d}.json")
        if file.is_file():
            return
        save_policy(self._folder.path(f"checkpoints/{step:09d}"), agent, self._algorithm)
        report = evaluate_policy(
            agent,
            task_env(config),
            episodes=config.eval_episodes,
            seed=config.seed + SEEDS["checkpoints"],
        )
        sink.log(Evaluation(step, report).metrics(), step)
        write_json(file, report.to_json())

    def _choose_policies(self, steps: int) -> None:
        """Load the policies of the tiers, and the episodes of training up to `steps`."""
        folder = self._folder.folder
        means = mean_returns(folder)
        self._steps["expert"] = expert(means)
        if "medium" in self._config.amounts:
            self._steps["medium"] = medium(means, self._mean_return("random"))
        for name, step in self._steps.items():
            path = folder / f"checkpoints/{step:09d}"
            self._policies[name] = load_policy(path, device=self._config.device)
        paths = sorted((folder / "experience").glob("*"))
        experience = [load_episodes(path) for path in paths if int(path.name) <= steps]
        self._experience = join(experience) if experience else None

    def _tier(self, tier: Tier) -> Episodes:
        folder = self._folder.path(f"tiers/{tier}")
        if not folder.is_dir():
            save_episodes(folder, self._replay() if tier == "replay" else self._recorded_tier(tier))
        return load_episodes(folder)

    def _recorded_tier(self, tier: Tier) -> Episodes:
        config = self._config
        amount = self._config.amounts[tier]
        seed = config.seed + SEEDS[tier]
        states = self._states
        with (
            generators_left_alone(),
            closing(self._environments(config.environments, seed, states=states)) as venv,
        ):
            set_random_seed(seed)  # policies of stable-baselines3 draw from torch's generator
            return act(
                self._policies[tier],
                venv,
                episodes=amount if config.unit == "episodes" else None,
                steps=amount,
                states=self._states,
                deterministic=config.deterministic,
                on_progress=partial(self._report, f"recording {tier}"),
            )

    def _replay(self) -> Episodes:
        experience = self._experience
        amount = self._config.amounts["replay"]
        counts_episodes = self._config.unit == "episodes"
        if experience is None:
            raise ConfigError(
                "replay: expected episodes that ended in training, got none. Train for longer "
                "than an episode, or leave replay out of the mix."
            )
        if amount == ALL:
            return experience
        episodes = spread(experience, count=amount if counts_episodes else None, steps=amount)
        if (len(episodes) if counts_episodes else episodes.steps) < amount:
            warnings.warn(
                f"replay: expected {amount:,} {self._config.unit}, but training made only "
                f"{len(experience):,} episodes of {experience.steps:,} steps; all of them are "
                "taken.",
                stacklevel=2,
            )
        return episodes

    def _mean_return(self, name: str) -> float:
        """Evaluate a policy whose tier is not recorded, or is recorded later."""
        self._report(f"evaluating {name}", 0, 1)
        seed = self._config.seed + SEEDS["references"]
        with generators_left_alone():
            set_random_seed(seed)
            return evaluate_policy(
                self._policies[name],
                task_env(self._config),
                episodes=20,
                seed=seed,
                deterministic=self._config.deterministic,
            ).mean

    def _tier_rows(self, tiers: dict[str, Episodes]) -> list[dict[str, Any]]:
        """Return a row for each tier, in order."""
        first_episodes = np.cumsum([0, *(len(episodes) for episodes in tiers.values())])
        return [
            {
                "name": name,
                "first": int(first),
                "episodes": len(episodes),
                "steps": episodes.steps,
                "trained": self._steps.get(name),
                "return": {
                    statistic: round(float(getattr(episodes.returns, statistic)()), 3)
                    for statistic in ("mean", "std", "min", "max")
                },
                "success": None
                if episodes.succeeded is None
                else round(float(episodes.succeeded.mean()), 4),
            }
            for first, (name, episodes) in zip(first_episodes, tiers.items(), strict=False)
        ]

    def _report(self, stage: str, done: int, total: int) -> None:
        self.stage = stage
        self._on_progress(stage, done, total)


def _write(
    folder: RunFolder,
    config: DatasetConfig,
    episodes: Episodes,
    *,
    description: Mapping[str, Any],
    minari: str | None,
    started_at: float,
) -> dict[str, Any]:
    """Write a data set with its `description`, and the run's result; return the result."""
    facts = {**description, "id": data_id(episodes)}
    metadata = facts | {"versions": versions()}
    save_episodes(folder.path("episodes"), episodes, about=metadata)
    if minari is not None:
        env = task_env(config)()
        save_minari(episodes, minari, env=env, algorithm=description["algorithm"], about=metadata)
    seconds = round(time.perf_counter() - started_at, 2)
    result = facts | {"minari": minari, "seconds": seconds, "interrupted": False}
    folder.result(result, data_summary(result))
    return result


@final
@dataclass(frozen=True)
class DatasetSeeds:
    """Settings that determine a data set of several seeds, as its folder stores them."""

    config: DatasetConfig
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(set(self.seeds)) == len(self.seeds) >= 1:
            raise ConfigError(
                f"seeds: expected at least one, all different, got {list(self.seeds)}."
            )

    def units(self, folder: Path, report_to: Sequence[str]) -> list[Unit]:
        """Return a unit of work for each seed, in a folder named after the seed."""
        return [
            Unit(
                name=f"seed {seed}",
                work=f"{__name__}:{_record.__name__}",
                settings={
                    "config": to_json(replace(self.config, seed=seed)),
                    "report_to": list(report_to),
                },
                folder=folder / str(seed),
            )
            for seed in self.seeds
        ]


def record_seeds(
    config: DatasetConfig,
    out: Path | str,
    seeds: Sequence[int],
    *,
    minari: str | None = None,
    report_to: Sequence[str] = PLACES_BY_DEFAULT,
    processes: int | None = None,
    resume: bool = False,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Record a data set for each seed, each in its own process, and join them.

    The folder has the joined data set in `episodes`, one seed after another. Each recording is in
    `seeds/SEED/run`. With `resume`, a killed recording continues from its last checkpoint or tier.

    Args:
        config: settings of each recording; `config.seed` is ignored.
        out: the folder; an older run there moves aside, unless it is resumed.
        seeds: one recording is made for each.
        minari: id of a Minari data set that is written as well.
        report_to: where metrics of training go.
        processes: how many recordings run at a time; None takes one for each processor core.
        resume: continue the recording that is in `out`.
        on_progress: called with the name of the stage, how many recordings are finished, and how
            many there are.

    Returns:
        The contents of `result.json`; after Ctrl-C, only `interrupted` and the stage of the
        recording.

    Raises:
        ConfigError: see `record_dataset`; or two seeds are the same, or other processes cannot make
            the environment or policy from its name.
        DataError: a recording failed; the message has the end of its log.
        ResumeError: the recording to resume is finished, or there is none. Nothing was changed.
        StorageError: another run works in `out`, or `out` cannot be written to.
    """
    run = DatasetSeeds(config, tuple(seeds))
    started_at = time.perf_counter()
    _require_recordable(config, out, minari=minari, report_to=report_to, resume=resume)
    report = on_progress or (lambda *_: None)
    stage = "recording seeds"
    units = run.units(Path(out) / "seeds", report_to)
    summary = RunSummary("data", config.env_name, steps_of="recorded steps")
    with open_run(out, config=run, seed=run.seeds[0], resume=resume, summary=summary) as folder:
        done: dict[str, dict[str, Any]] = {}

        def on_done(unit: Unit, result: dict[str, Any]) -> None:
            done[unit.name] = result
            report(stage, len(done), len(units))

        report(stage, 0, len(units))
        try:
            failures = run_units(units, on_done, processes=processes)
        except KeyboardInterrupt:
            return {"interrupted": True, "stage": stage}
        for name, reason in failures.items():
            raise DataError(
                f"recording of {name}: expected a whole one, got {reason}. Mend the cause, and "
                "repeat the command with --resume."
            )
        results = [done[unit.name] for unit in units]
        episodes, description = _joined(folder.folder, run, results)
        return _write(
            folder, config, episodes, description=description, minari=minari, started_at=started_at
        )


def _record(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Make the recording of one unit; return its result."""
    run = folder / RUN
    if RunFolder(run).finished:  # killed after the recording and before the unit was done
        return read_object(run / "result.json")
    result = record_dataset(
        from_json(DatasetConfig, settings["config"]),
        run,
        report_to=settings["report_to"],
        resume=(run / "config.json").is_file(),
    )
    if result["interrupted"]:
        raise KeyboardInterrupt
    return result


def _joined(
    folder: Path, run: DatasetSeeds, results: Sequence[dict[str, Any]]
) -> tuple[Episodes, dict[str, Any]]:
    """Join the data sets of all recordings; return their episodes and descriptions."""
    parts = [load_episodes(folder / f"seeds/{seed}/{RUN}/episodes") for seed in run.seeds]
    episodes_before = 0
    tiers = []
    for seed, part, result in zip(run.seeds, parts, results, strict=True):
        tiers += [
            tier | {"seed": seed, "first": tier["first"] + episodes_before}
            for tier in result["tiers"]
        ]
        episodes_before += len(part)
    references: dict[str, float | None] = {}
    for name in results[0]["references"]:
        values = [result["references"][name] for result in results]
        references[name] = None if None in values else sum(values) / len(values)
    description = {
        "env": run.config.env_name,
        "seeds": list(run.seeds),
        "references": references,
        "algorithm": results[0]["algorithm"],
        "tiers": tiers,
    }
    return join(parts), description
