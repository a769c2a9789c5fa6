"""An expert trained from nothing, with a policy kept at each checkpoint on its way."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, final

import gymnasium
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger

from preferl.data.arrays import load_episodes, save_episodes
from preferl.data.episodes import Episodes, join
from preferl.evaluation.environments import task_env
from preferl.evaluation.policy import evaluate_policy
from preferl.files import write_json
from preferl.online.acting import task_environments
from preferl.online.algorithm_configs import AlgorithmConfig, PPOConfig, SACConfig
from preferl.online.algorithms import build_algorithm
from preferl.online.dataset_config import DatasetConfig
from preferl.online.expert_state import read_training, refill, restore_training, save_training
from preferl.online.feedback_env import EpisodeRecorder
from preferl.online.saving import save_policy
from preferl.online.tiers import Checkpoint, judged
from preferl.reporting import MetricSink
from preferl.runs import RunFolder

OnProgress = Callable[[str, int, int], None]
"""Told what is being done, in a few words, how much of it is done, and how much there is."""

JUDGE_SEED = 30_000
"""Of the first episode that a checkpoint is judged by, beyond the seed of the run."""

TELL_EVERY = 100
"""Steps between two reports of progress; a step of soft actor-critic takes milliseconds."""


@final
class ExpertTraining:
    """Trains in slices; after each, a policy, its judgement and what was lived through are kept.

    A run that is resumed goes on from the last slice that was kept, with the same networks,
    optimisers and replay buffer. Episodes under way are begun anew and random draws are others,
    so that it is another run of the same kind, not the same run.

    Args:
        config: of the recording.
        folder: of the run; what is there of an interrupted training is taken up.
        states: whether what it takes to draw a moment again is kept.
        sink: told the judged return at each checkpoint.
        on_progress: told how far training is.

    Raises:
        CheckpointError: what is there is damaged.
        ConfigError: an unknown environment, or actions that the algorithm cannot take.
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
        kept = folder.path("training")
        state = read_training(kept) if kept.is_dir() else None
        seed = config.seed + (state["step"] if state else 0)
        self.algorithm_config = algorithm_for(config)
        venv = task_environments(config.env, _parallel(config), seed=seed, states=states)
        self._recorder = EpisodeRecorder(venv, states=states)
        self._algorithm = self._build(seed)
        if state is not None:
            restore_training(self._algorithm, state)
            experience = self.experience
            if experience is not None:
                refill(self._algorithm, experience)

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

    def _build(self, seed: int) -> BaseAlgorithm:
        config = self.algorithm_config
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
        save_training(self._folder.path("training"), self._algorithm)

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
