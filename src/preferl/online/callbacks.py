"""Takes newer rewards up between rollouts of stable-baselines3's algorithms."""

from typing import final

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from preferl.errors import ConfigError
from preferl.online.agent_state import replay_of
from preferl.online.feedback_env import FeedbackVecEnv
from preferl.online.replay import relabel_replay, require_relabelling


@final
class FeedbackCallback(BaseCallback):
    """Gives the agent in a `FeedbackVecEnv` the newest learned reward before each rollout.

    No rollout mixes two rewards. The whole replay buffer of an off-policy algorithm is paid again
    by the new one; what it was paid while the environment's own reward was switched on, too.

    Args:
        wait: read the disk before each rollout, instead of what was read in the background: the
            newest reward is then always used, and the agent waits for the disk.
        verbose: as SB3 has it.
    """

    def __init__(self, *, wait: bool = False, verbose: int = 0) -> None:
        super().__init__(verbose)
        self._wait = wait

    def _init_callback(self) -> None:
        self._env = feedback_env(self.training_env)
        buffer = replay_of(self.model)
        if buffer is not None:
            require_relabelling(buffer)

    def _on_rollout_start(self) -> None:
        self._env.refresh(wait=self._wait)
        version, reward = self._env.core.paid_version, self._env.learned_reward
        buffer = replay_of(self.model)
        if buffer is not None:
            known, paid = self._env.paid_replay
            if version and version != (paid if known is buffer else 0) and reward is not None:
                relabel_replay(buffer, reward)
            self._env.paid_replay = (buffer, version)
        self.logger.record("feedback/reward_version", version)
        counts = self._env.counts
        if counts is not None:
            self.logger.record("feedback/asked", counts.asked)
            self.logger.record("feedback/dropped_segments", counts.dropped_segments)

    def _on_step(self) -> bool:
        return True


def feedback_env(venv: VecEnv) -> FeedbackVecEnv:
    """The `FeedbackVecEnv` among the wrappers of an algorithm's environment.

    Raises:
        ConfigError: there is none.
    """
    inner: VecEnv = venv
    while not isinstance(inner, FeedbackVecEnv):
        if not isinstance(inner, VecEnvWrapper):
            raise ConfigError("FeedbackCallback: the algorithm's environment is no FeedbackVecEnv.")
        inner = inner.venv
    return inner
