"""An expert trained from nothing, with a policy kept at each checkpoint on its way.

Some of them stand for a quality of behaviour: the best, and one a third of the way to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import gymnasium
from stable_baselines3.common.logger import Logger

from preferl.data.arrays import load_episodes, save_episodes
from preferl.data.episodes import Episodes, join
from preferl.errors import ConfigError, StorageError
from preferl.evaluation.environments import task_env
from preferl.evaluation.policy import PolicyReport, evaluate_policy
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


@final
class ExpertTraining:
    """Trains in slices; after each, a policy, its evaluation and the episodes are kept in a folder.

    What is there of an interrupted training goes on from the last slice, see `resume_run`. With
    `states`, episodes hold what it takes to draw a moment again.
    """

    def __init__(
        self,
        config: DatasetConfig,
        folder: RunFolder,
        *,
        states: bool,
        sink: MetricSink,
        on_progress: OnProgress,
    ) -> None:
        self._config, self._folder = config, folder
        self._sink, self._on_progress = sink, on_progress
        self._kept = folder.path("training")
        self._algorithm_config = algorithm = algorithm_for(config)
        count = config.training_environments or (1 if isinstance(algorithm, SACConfig) else 8)
        venv = task_environments(config.env, count, seed=config.seed, states=states)
        self._recorder = EpisodeRecorder(venv, states=states)
        if isinstance(algorithm, SACConfig):  # a larger buffer would only take memory
            size = min(algorithm.buffer_size, config.train_steps)
            algorithm = replace(algorithm, buffer_size=size)
        self._algorithm = build_algorithm(
            algorithm, self._recorder, seed=config.seed, device=config.device
        )
        self._algorithm.set_logger(Logger(folder=None, output_formats=[]))
        if has_run(self._kept):
            resume_run(self._kept, self._algorithm)
        else:
            require_own(self._kept, 0)

    @property
    def experience(self) -> Episodes | None:
        """Episodes that ended while training, in their order; None before the first."""
        folders = sorted((self._folder.folder / "experience").glob("*"))
        known = [path for path in folders if int(path.name) <= self._algorithm.num_timesteps]
        return join([load_episodes(path) for path in known]) if known else None

    def run(self) -> Sequence[TrainedPolicy]:
        """Train to the planned number of steps, or until a checkpoint is as good as wanted."""
        wanted = self._config.target_return
        try:
            if self._algorithm.num_timesteps:
                self._evaluate()
            while self._algorithm.num_timesteps < self._config.train_steps:
                known = evaluated(self._folder.folder)
                if wanted is not None and known and known[-1].mean >= wanted:
                    break
                self._learn(max((one.mean for one in known), default=None))
                # In this order, so that a crash between two of them loses nothing that counts.
                episodes, step = self._recorder.take(), self._algorithm.num_timesteps
                if episodes is not None:
                    save_episodes(self._folder.path(f"experience/{step:09d}"), episodes)
                save_run(self._kept, self._algorithm)
                self._evaluate()
        finally:
            self._recorder.close()
        return evaluated(self._folder.folder)

    def _learn(self, best: float | None) -> None:
        config, before = self._config, self._algorithm.num_timesteps
        ahead = config.checkpoint_every - before % config.checkpoint_every
        doing = "training" + ("" if best is None else f", best return {best:,.0f}")

        def on_step(*_: Any) -> bool:
            if self._algorithm.num_timesteps % REPORT_EVERY == 0:
                self._on_progress(doing, self._algorithm.num_timesteps, config.train_steps)
            return True

        self._on_progress(doing, before, config.train_steps)
        self._algorithm.learn(
            min(ahead, config.train_steps - before), callback=on_step, reset_num_timesteps=False
        )

    def _evaluate(self) -> None:
        """Keep and evaluate the present policy, unless that is done."""
        step = self._algorithm.num_timesteps
        file = self._folder.path(f"judged/{step:09d}.json")
        if file.is_file():
            return
        policy = self._folder.path(f"checkpoints/{step:09d}")
        save_policy(policy, self._algorithm, self._algorithm_config)
        report = evaluate_policy(
            self._algorithm,
            task_env(self._config.env),
            episodes=self._config.judge_episodes,
            seed=self._config.seed + EVALUATION_SEED,
        )
        self._sink.log({"return": report.mean, "length": float(report.lengths.mean())}, step)
        write_json(file, report.to_json())


def require_trainable(config: DatasetConfig) -> None:
    """Build the environments and the algorithm once, as training will; raise what that raises."""
    venv = task_environments(config.env, 1, seed=config.seed, states=False)
    algorithm = algorithm_for(config)
    if isinstance(algorithm, SACConfig):
        algorithm = replace(algorithm, buffer_size=1)
    build_algorithm(algorithm, venv, seed=config.seed, device=config.device)
    venv.close()


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
