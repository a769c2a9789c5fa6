"""An expert trained from nothing, with a policy kept at each checkpoint on its way.

Some of them stand for a quality of behaviour: the best, and one a third of the way to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import gymnasium
from stable_baselines3.common.base_class import BaseAlgorithm
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
"""Told what is being done, in a few words, how much of it is done, and how much there is."""

JUDGE_SEED = 30_000
"""Of the first episode that a checkpoint is judged by, beyond the seed of the run."""

TELL_EVERY = 100
"""Steps between two reports of progress; a step of soft actor-critic takes milliseconds."""

MEDIUM = 1 / 3
"""How far a medium policy is on the way from random returns to those of the expert."""


@final
@dataclass(frozen=True)
class Checkpoint:
    """A policy on the way to the expert.

    Attributes:
        step: environment steps before it.
        mean: return of its judged episodes, with its most likely actions.
        policy: its folder, for `load_policy`.
    """

    step: int
    mean: float
    policy: Path


@final
class ExpertTraining:
    """Trains in slices; after each, a policy, its judgement and what was lived through are kept.

    A run that is resumed goes on from the last slice that was kept, see `resume_run`.

    Args:
        config: of the recording.
        folder: of the run; what is there of an interrupted training is taken up.
        states: whether what it takes to draw a moment again is kept.
        sink: told the judged return at each checkpoint.
        on_progress: told how far training is.

    Raises:
        CheckpointError: what is there is damaged.
        ConfigError: an unknown environment, or actions that the algorithm cannot take.
        StorageError: what is there is of an older version.
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
        self._sink, self._tell = sink, on_progress
        self._kept = folder.path("training")
        self.algorithm_config = algorithm_for(config)
        venv = task_environments(config.env, _parallel(config), seed=config.seed, states=states)
        self._recorder = EpisodeRecorder(venv, states=states)
        self._algorithm = self._build()
        if has_run(self._kept):
            resume_run(self._kept, self._algorithm)
        else:
            require_own(self._kept, 0)

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """All that were judged, in their order."""
        return judged(self._folder.folder)

    @property
    def experience(self) -> Episodes | None:
        """Episodes that ended while training, in their order; None before the first."""
        folders = sorted((self._folder.folder / "experience").glob("*"))
        known = [path for path in folders if int(path.name) <= self._algorithm.num_timesteps]
        return join([load_episodes(path) for path in known]) if known else None

    def run(self) -> Sequence[Checkpoint]:
        """Train to the planned number of steps, or until a checkpoint is as good as wanted."""
        try:
            if self._algorithm.num_timesteps:
                self._judge()
            while not self._done():
                self._learn()
                self._keep()
                self._judge()
        finally:
            self._recorder.close()
        return self.checkpoints

    def _build(self) -> BaseAlgorithm:
        seed, config = self._config.seed, self.algorithm_config
        if isinstance(config, SACConfig):  # a larger buffer would only take memory
            config = replace(config, buffer_size=min(config.buffer_size, self._config.train_steps))
        algorithm = build_algorithm(config, self._recorder, seed=seed, device=self._config.device)
        algorithm.set_logger(Logger(folder=None, output_formats=[]))
        return algorithm

    def _done(self) -> bool:
        wanted, known = self._config.target_return, self.checkpoints
        reached = wanted is not None and bool(known) and known[-1].mean >= wanted
        return reached or self._algorithm.num_timesteps >= self._config.train_steps

    def _learn(self) -> None:
        config, before = self._config, self._algorithm.num_timesteps
        ahead = config.checkpoint_every - before % config.checkpoint_every
        best = max((checkpoint.mean for checkpoint in self.checkpoints), default=None)
        doing = "training" + ("" if best is None else f", best return {best:,.0f}")

        def tell(*_: Any) -> bool:
            if self._algorithm.num_timesteps % TELL_EVERY == 0:
                self._tell(doing, self._algorithm.num_timesteps, config.train_steps)
            return True

        self._tell(doing, before, config.train_steps)
        self._algorithm.learn(
            min(ahead, config.train_steps - before), callback=tell, reset_num_timesteps=False
        )

    def _keep(self) -> None:
        """In this order, so that a crash between two of them loses nothing that counts."""
        name = f"{self._algorithm.num_timesteps:09d}"
        episodes = self._recorder.take()
        if episodes is not None:
            save_episodes(self._folder.path(f"experience/{name}"), episodes)
        save_run(self._kept, self._algorithm)

    def _judge(self) -> None:
        """Keep and judge the present policy, unless that is done."""
        step = self._algorithm.num_timesteps
        file = self._folder.path(f"judged/{step:09d}.json")
        if file.is_file():
            return
        policy = self._folder.path(f"checkpoints/{step:09d}")
        save_policy(policy, self._algorithm, self.algorithm_config)
        report = evaluate_policy(
            self._algorithm,
            task_env(self._config.env),
            episodes=self._config.judge_episodes,
            seed=self._config.seed + JUDGE_SEED,
        )
        self._sink.log({"return": report.mean, "length": float(report.lengths.mean())}, step)
        write_json(file, report.to_json())


def require_trainable(config: DatasetConfig) -> None:
    """Build the environments and the algorithm once, as training will, and let go of them.

    Raises:
        ConfigError: an unknown environment, or actions that the algorithm cannot take.
    """
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


def _parallel(config: DatasetConfig) -> int:
    if config.training_environments is not None:
        return config.training_environments
    return 1 if isinstance(algorithm_for(config), SACConfig) else 8


def judged(folder: Path) -> tuple[Checkpoint, ...]:
    """The checkpoints of a run that were judged, in their order.

    Raises:
        StorageError: a damaged file.
    """
    return tuple(
        Checkpoint(int(file.stem), _mean(file), folder / "checkpoints" / file.stem)
        for file in sorted((folder / "judged").glob("*.json"))
    )


def expert(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """The one that was judged best, the earlier one of equals."""
    return max(checkpoints, key=lambda checkpoint: checkpoint.mean)


def medium(checkpoints: Sequence[Checkpoint], random: float) -> Checkpoint:
    """The one nearest to a third of the way from random returns to the expert's, before it.

    Args:
        checkpoints: in the order of training.
        random: mean return of random actions.

    Raises:
        ConfigError: none before the expert.

    >>> ways = [Checkpoint(n, mean, Path()) for n, mean in enumerate((-50.0, 80.0, 120.0, 300.0))]
    >>> medium(ways, random=0.0).mean
    80.0
    """
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


def _mean(file: Path) -> float:
    with reading(file, expected="the judgement of a checkpoint", error=StorageError):
        return PolicyReport.from_json(read_object(file)).mean
