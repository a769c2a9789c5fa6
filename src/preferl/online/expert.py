"""An expert trained from nothing, with a policy kept at each checkpoint on its way.

Some of them stand for a quality of behaviour: the best, and one a third of the way to it.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import gymnasium
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from preferl.data.arrays import load_episodes, save_episodes
from preferl.data.episodes import Episodes, join
from preferl.errors import ConfigError, StorageError
from preferl.evaluation.policy import PolicyReport, evaluate_policy
from preferl.evaluation.rollout import task_env
from preferl.files import write_json
from preferl.online.acting import task_environments
from preferl.online.algorithms import build_algorithm
from preferl.online.checkpoint import resume_run, save_run
from preferl.online.configs import AlgorithmConfig, DatasetConfig, PPOConfig, SACConfig
from preferl.online.feedback_env import EpisodeRecorder
from preferl.online.saving import save_policy
from preferl.reading import read_object, reading
from preferl.reporting import MetricSink
from preferl.runs import RunFolder
from preferl.training.checkpoint_folder import has_run, require_own

OnProgress = Callable[[str, int, int], None]
"""Called with what is being done, in a few words, how much of it is done, and how much there is."""

EVALUATION_SEED = 30_000
"""Of the first episode by which a checkpoint is evaluated, beyond the seed of the run."""

REPORT_EVERY = 100
"""Steps between two reports of progress; a step of soft actor-critic takes milliseconds."""

MEDIUM = 1 / 3
"""How far a medium policy is on the way from random returns to those of the expert."""


@final
@dataclass(frozen=True)
class TrainedPolicy:
    """A policy on the way to the expert."""

    step: int  # environment steps before it
    mean: float  # return of its most likely actions
    policy: Path  # its folder, for `load_policy`


def train_expert(
    config: DatasetConfig,
    folder: RunFolder,
    *,
    states: bool,
    sink: MetricSink,
    on_progress: OnProgress,
) -> tuple[Sequence[TrainedPolicy], Episodes | None]:
    """Train in slices; after each, a policy, its evaluation and the episodes are kept in a folder.

    What is there of an interrupted training goes on from the last slice, see `resume_run`. With
    `states`, episodes hold what it takes to draw a moment again. Returns the checkpoints, to the
    planned number of steps or the first that is as good as wanted, and the episodes that ended
    meanwhile, in their order; None without any.
    """
    kept, wanted = folder.path("training"), config.target_return
    usual = 1 if isinstance(algorithm_for(config), SACConfig) else 8
    count = config.training_environments or usual
    venv = task_environments(config.env, count, seed=config.seed, states=states)
    with closing(EpisodeRecorder(venv, states=states)) as recorder:
        algorithm = _build(config, recorder, config.train_steps)
        algorithm.set_logger(Logger(folder=None, output_formats=[]))
        if has_run(kept):
            resume_run(kept, algorithm)
            _evaluate(config, folder, algorithm, sink)
        else:
            require_own(kept, 0)
        while algorithm.num_timesteps < config.train_steps:
            known = evaluated(folder.folder)
            if wanted is not None and known and known[-1].mean >= wanted:
                break
            best = max((one.mean for one in known), default=None)
            doing = "training" + ("" if best is None else f", best return {best:,.0f}")
            _learn(config, algorithm, partial(on_progress, doing))
            # In this order, so that a crash between two of them loses nothing that counts.
            if (episodes := recorder.take()) is not None:
                name = f"experience/{algorithm.num_timesteps:09d}"
                save_episodes(folder.path(name), episodes)
            save_run(kept, algorithm)
            _evaluate(config, folder, algorithm, sink)
    paths = sorted((folder.folder / "experience").glob("*"))
    whole = [load_episodes(path) for path in paths if int(path.name) <= algorithm.num_timesteps]
    return evaluated(folder.folder), join(whole) if whole else None


def _learn(
    config: DatasetConfig, algorithm: BaseAlgorithm, on_progress: Callable[[int, int], None]
) -> None:
    """Learn until the next checkpoint."""
    before = algorithm.num_timesteps
    ahead = config.checkpoint_every - before % config.checkpoint_every

    def on_step(*_: Any) -> bool:
        if algorithm.num_timesteps % REPORT_EVERY == 0:
            on_progress(algorithm.num_timesteps, config.train_steps)
        return True

    on_progress(before, config.train_steps)
    steps = min(ahead, config.train_steps - before)
    algorithm.learn(steps, callback=on_step, reset_num_timesteps=False)


def _evaluate(
    config: DatasetConfig, folder: RunFolder, algorithm: BaseAlgorithm, sink: MetricSink
) -> None:
    """Keep and evaluate the present policy, unless that is done."""
    step = algorithm.num_timesteps
    file = folder.path(f"judged/{step:09d}.json")
    if file.is_file():
        return
    save_policy(folder.path(f"checkpoints/{step:09d}"), algorithm, algorithm_for(config))
    report = evaluate_policy(
        algorithm,
        task_env(config.env),
        episodes=config.judge_episodes,
        seed=config.seed + EVALUATION_SEED,
    )
    sink.log({"return": report.mean, "length": float(report.lengths.mean())}, step)
    write_json(file, report.to_json())


def _build(config: DatasetConfig, env: VecEnv, most_steps: int) -> BaseAlgorithm:
    algorithm = algorithm_for(config)
    if isinstance(algorithm, SACConfig):  # a larger buffer would only take memory
        algorithm = replace(algorithm, buffer_size=min(algorithm.buffer_size, most_steps))
    return build_algorithm(algorithm, env, seed=config.seed, device=config.device)


def require_trainable(config: DatasetConfig) -> None:
    """Build the environments and the algorithm once, as training will; raise what that raises."""
    with closing(task_environments(config.env, 1, seed=config.seed, states=False)) as venv:
        _build(config, venv, 1)


def algorithm_for(config: DatasetConfig) -> AlgorithmConfig:
    """The algorithm of a config, or the one that suits the actions of its environment."""
    if config.algorithm is not None:
        return config.algorithm
    env = task_env(config.env)()
    continuous = isinstance(env.action_space, gymnasium.spaces.Box)
    env.close()
    return SACConfig() if continuous else PPOConfig(n_steps=256)


def evaluated(folder: Path) -> tuple[TrainedPolicy, ...]:
    """The checkpoints of a run that were evaluated, in their order."""
    found = []
    for file in sorted((folder / "judged").glob("*.json")):
        with reading(file, expected="the evaluation of a checkpoint", error=StorageError):
            mean = PolicyReport.from_json(read_object(file)).mean
        found.append(TrainedPolicy(int(file.stem), mean, folder / "checkpoints" / file.stem))
    return tuple(found)


def expert(checkpoints: Sequence[TrainedPolicy]) -> TrainedPolicy:
    """The one with the best mean return, the earlier one of equals."""
    return max(checkpoints, key=lambda checkpoint: checkpoint.mean)


def medium(checkpoints: Sequence[TrainedPolicy], random: float) -> TrainedPolicy:
    """The one nearest to a third of the way from random returns to the expert's, before it."""
    best = expert(checkpoints)
    before = [checkpoint for checkpoint in checkpoints if checkpoint.step < best.step]
    if not before:
        raise ConfigError.mismatch(
            "medium policy",
            expected="a checkpoint before the expert's",
            got=f"the best one at the first, after {best.step:,} steps",
            fix="Keep more of them (checkpoint_every), train longer, or leave medium out.",
        )
    wanted = random + MEDIUM * (best.mean - random)
    return min(before, key=lambda checkpoint: abs(checkpoint.mean - wanted))
