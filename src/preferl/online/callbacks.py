"""Callbacks of stable-baselines3: new rewards, exploration and checkpoints between rollouts."""

import signal
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from traceback import walk_stack
from types import FrameType, MethodType
from typing import Literal, final

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import (
    SubprocVecEnv,
    unwrap_vec_wrapper,
)

from preferl.errors import CheckpointError, ConfigError, StorageError, require_in, require_one_of
from preferl.online.checkpoints.run_checkpoint import save_run
from preferl.online.methods.pretraining import has_critic, reset_critic
from preferl.online.service.supervisor import OnMessage, write_to_terminal
from preferl.online.wrappers.exploration import ExplorationPolicy, explore
from preferl.online.wrappers.feedback_config import BeforeFirstReward
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.online.wrappers.replay import (
    end_replay,
    relabel_replay,
    replay_of,
    require_relabelling,
    require_spaces_held,
)
from preferl.online.wrappers.rollout_rewards import RolloutRewards
from preferl.printing import get_logger
from preferl.training.checkpoint_folder import require_own

LOGGER = get_logger(__name__)


@final
class FeedbackCallback(BaseCallback):
    """Gives the agent in a `FeedbackVecEnv` the newest learned reward before each rollout.

    With a new reward, the whole replay buffer of an off-policy algorithm is relabelled. If the
    critic has learned on the bonus for new states (`before="entropy"`), the first reward resets it.
    If the buffer stores other observations than those that rewards are computed from, `learn`
    raises `SpaceError` at its start.

    A trained agent shows people the same clips again and again. While clips are collected, a random
    policy therefore takes over sometimes between two rollouts. Nothing is learned from these steps,
    and new episodes begin after them. The loop in one process does the same.

    An on-policy algorithm needs no reward before the end of its rollout. The rewards of all its
    steps are then computed in one batch. That takes a fraction of the time, and differs only by
    rounding. Until then, `step` gives zeros. Rewards are computed at each step if anything between
    environment and algorithm reads them: `VecNormalize(norm_reward=True)`, `VecMonitor`, or a
    wrapper that is not SB3's.

    Args:
        exploration_fraction: share of all steps in which the random policy takes over. These steps
            come on top of those that the algorithm makes. 0.05 gives a few unusual clips per round.
        random_probability, switch_probability: see `ExplorationPolicy`.
        compute_rewards: "rollout" computes rewards once per rollout. "step" computes them at each
            step, for callbacks that read rewards.
        wait: whether to read the disk before each rollout, instead of using what was read in the
            background. The newest reward is then always used, but the agent waits for the disk.
        seed: seed of the exploration.
        verbose: SB3's level of messages.

    Raises:
        ConfigError: a share or probability is out of its range, or `compute_rewards` is neither
            word.
    """

    def __init__(
        self,
        *,
        exploration_fraction: float = 0.05,
        random_probability: float = 0.5,
        switch_probability: float = 0.5,
        compute_rewards: Literal["rollout", "step"] = "rollout",
        wait: bool = False,
        seed: int = 0,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        require_in("exploration_fraction", exploration_fraction, 0.0, 0.99)
        require_in("random_probability", random_probability, 0.0, 1.0)
        require_in("switch_probability", switch_probability, 0.0, 1.0)
        require_one_of("compute_rewards", compute_rewards, ("rollout", "step"))
        self._compute_rewards = compute_rewards
        self._fraction = exploration_fraction
        self._seed = seed
        self._wait = wait
        self._probabilities = (random_probability, switch_probability)

    def _init_callback(self) -> None:
        env = unwrap_vec_wrapper(self.training_env, FeedbackVecEnv)
        if env is None:
            raise ConfigError("FeedbackCallback: the algorithm's environment is no FeedbackVecEnv.")
        self._env = env
        buffer = replay_of(self.model)
        if buffer is not None:
            require_relabelling(buffer)
            # Checked now, not hours later with the first reward.
            if self._env.core.computer.published is not None:
                require_spaces_held(buffer, self._env.observation_space, self._env.action_space)
        if self._env.just_reset:  # `learn` resets, unless it continues a training
            end_replay(self.model)
        self._rewards = RolloutRewards(self.model)

    def _on_rollout_start(self) -> None:
        self._env.refresh(wait=self._wait)
        version = self._env.core.computer.active_version
        reward = self._env.learned_reward
        buffer = replay_of(self.model)
        if buffer is not None:
            relabelled, relabelled_by = self._env.relabelled
            present = relabelled_by if relabelled is buffer else 0
            if version and version != present and reward is not None:
                relabel_replay(buffer, reward)
                if relabelled is buffer and not relabelled_by:
                    self._forget_the_bonus()
            self._env.relabelled = (buffer, version)
        self.logger.record("feedback/reward_version", version)
        counts = self._env.counts
        if counts is not None:
            self.logger.record("feedback/asked", counts.asked)
            self.logger.record("feedback/dropped_segments", counts.dropped_segments)
            self.logger.record("feedback/explored_steps", self._env.explored_steps)
        if self._env.core.recording.collecting:
            self._explore()
        if self._compute_rewards == "rollout":
            self._rewards.begin()

    def _forget_the_bonus(self) -> None:
        """Reset a critic that has learned on the bonus for new states, as the loop does."""
        learned = self._env.core.config.before == BeforeFirstReward.ENTROPY
        if learned and self.model._n_updates and has_critic(self.model):
            reset_critic(self.model)

    def _on_rollout_end(self) -> None:
        self._rewards.add()

    def _on_training_end(self) -> None:
        self._env.settle_rewards()  # another callback may have stopped a rollout

    def _explore(self) -> None:
        """Let a random policy take over for a stretch, once enough exploration steps are due."""
        env = self.training_env
        agent = self.model
        explored = self._env.explored_steps
        due = self._fraction * (agent.num_timesteps + explored) - explored
        stretch = 4 * self._env.core.config.segment_length  # a shorter one has few clips
        if due < stretch * env.num_envs:
            return
        # Seeded by the steps so far, so that a resumed run draws like an uninterrupted one.
        rng = np.random.default_rng([self._seed, explored])
        policy = ExplorationPolicy(agent, env.action_space, rng, *self._probabilities)

        def count() -> None:
            self._env.explored_steps += env.num_envs

        queries = self._env.queries
        with nullcontext() if queries is None else queries.not_shown():
            # episodes that the agent made alone, as far as they have come
            self._env.core.hand_over()
            explore(agent, env, policy, stretch, on_step=count)
            self._env.core.hand_over()
        # the annotation is narrower than the attribute's values
        agent._last_obs = env.reset()  # type: ignore[assignment]
        agent._last_episode_starts = np.ones(env.num_envs, bool)
        if agent._vec_normalize_env is not None:
            agent._last_original_obs = agent._vec_normalize_env.get_original_obs()

    def _on_step(self) -> bool:
        return True


@final
class SaveRunCallback(BaseCallback):
    """Writes a checkpoint between two rollouts, after every `every` steps, and one at the end.

    A killed run continues from the last checkpoint: see `resume_run`. If a callback stops the run
    within a rollout, no checkpoint is written there, since half a rollout cannot be saved. If the
    disk is full or away, or the last checkpoint is damaged, a warning is logged, and learning
    continues.

    The first Ctrl-C lets the current rollout and its update finish, saves the run, and then stops
    it. A second Ctrl-C stops it at once. Nothing of this happens if a script handles Ctrl-C itself,
    or with `SubprocVecEnv`, whose environments end at Ctrl-C.

    Args:
        folder: folder that holds only this run's checkpoints.
        every: fewest environment steps between two checkpoints. 10,000 cost little compared with
            learning; a resumed run repeats the steps after the last checkpoint.
        say: called with a line about what Ctrl-C does; writes to the terminal by default.
        verbose: SB3's level of messages.

    Raises:
        CheckpointError: at the start of `learn`, the folder's newest checkpoint is damaged.
        ConfigError: `every` is below 1; or, at the start of `learn`, the folder's run has made more
            steps than this one.
        StorageError: at the start of `learn`, the folder holds something else, or cannot be read.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        every: int = 10_000,
        say: OnMessage = write_to_terminal,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        require_in("every", every, 1, float("inf"))
        self._folder = Path(folder)
        self._every = every
        self._say = say

    def _init_callback(self) -> None:
        self._saved = self._tried = self.model.num_timesteps
        self._between = True  # true between two rollouts
        self._interrupted = False
        require_own(self._folder, self._saved)  # now, not after the first hours

    def _on_training_start(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        ours = isinstance(handler, MethodType) and isinstance(handler.__self__, SaveRunCallback)
        if (
            (handler is signal.default_int_handler or ours)  # a failed run may have left ours
            and threading.current_thread() is threading.main_thread()
            and not isinstance(self.training_env.unwrapped, SubprocVecEnv)
        ):
            signal.signal(signal.SIGINT, self._interrupt)

    def _on_rollout_start(self) -> None:
        if self._interrupted:
            self._save_and_leave()
        if self.model.num_timesteps - self._tried >= self._every:
            self._save()
        self._between = False

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self._between = True

    def _on_training_end(self) -> None:
        if signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._interrupted:  # Ctrl-C came in the last rollout
            self._save_and_leave()
        if self._between and self.model.num_timesteps > self._tried:
            self._save()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Note that the run is to stop. From now on, Ctrl-C stops at once."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        frames = () if frame is None else (outer for outer, _ in walk_stack(frame))
        learns = [f for f in frames if f.f_code.co_name == "learn"]
        if not any(learn.f_locals.get("self") is self.model for learn in learns):
            signal.default_int_handler(number, frame)  # `learn` has already ended by an error
        self._interrupted = True
        with suppress(RuntimeError):  # the signal may interrupt a line that is being written
            self._say(
                "Ctrl-C: the current rollout is finished, then the run is saved and stops. "
                f"Ctrl-C again stops at once; {self._unsaved()} are then repeated."
            )

    def _save_and_leave(self) -> None:
        self._interrupted = False
        if self._between and self.model.num_timesteps > self._saved:
            self._save()
        if self.model.num_timesteps > self._saved:
            self._say(f"Not saved; {self._unsaved()} are repeated.")
        else:
            self._say(f"Saved after {self._saved:,} steps.")
        raise KeyboardInterrupt

    def _unsaved(self) -> str:
        count = self.model.num_timesteps - self._saved
        return f"{count:,} steps since the last checkpoint" if self._saved else f"{count:,} steps"

    def _save(self) -> None:
        self._tried = self.model.num_timesteps
        try:
            save_run(self._folder, self.model, self.training_env)
        except (StorageError, CheckpointError) as error:
            LOGGER.warning("No checkpoint after %d steps: %s", self._tried, error)
        else:
            self._saved = self._tried
