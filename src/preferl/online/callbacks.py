"""What happens between rollouts of stable-baselines3's algorithms: newer rewards, unusual clips."""

from contextlib import nullcontext
from typing import Final, Literal, cast, final

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
    unwrap_vec_wrapper,
)

from preferl.errors import ConfigError, require_in, require_one_of
from preferl.online.agent_state import end_replay, replay_of
from preferl.online.exploration import ExplorationPolicy, explore
from preferl.online.feedback_env import FeedbackVecEnv
from preferl.online.replay import relabel_replay, require_relabelling, require_spaces_held
from preferl.shapes import FloatArray

STRETCH_CLIPS: Final = 4
"""Lengths of a clip for which a random policy takes over now and then; shorter has few clips."""

PASS_ON: Final = (VecCheckNan, VecFrameStack, VecTransposeImage, VecVideoRecorder)
"""Wrappers that hand on rewards as they are and look no further at them."""


@final
class FeedbackCallback(BaseCallback):
    """Gives the agent in a `FeedbackVecEnv` the newest learned reward before each rollout.

    No rollout mixes two rewards. The whole replay buffer of an off-policy algorithm is relabelled
    by the new one, with the steps that had the environment's own reward. If what it stores is not
    what rewards are computed from, `learn` raises `SpaceError` at its start.

    An agent that has found its ways shows people the same clips again and again. Where clips are
    collected, a random policy takes over now and then between two rollouts, so that they compare
    more than these; nothing is learned from those steps, and the episodes after them begin anew.
    The loop in one process does the same.

    An on-policy algorithm needs no reward before its rollout is over. The rewards of all its steps
    are computed together then, to within rounding what each would have had, in a fraction of the
    time (`pay="rollout"`). Until then `step` gives zeros, and so it gives learned rewards at once
    (`pay="step"`) where anything between environment and algorithm looks at them:
    `VecNormalize(norm_reward=True)`, `VecMonitor`, a wrapper that is not SB3's.

    Args:
        exploration_fraction: share of all steps in which that is so; not counted among those
            that the algorithm was asked for. .05 shows a few unusual clips per round, 0 none.
        random_probability: see `ExplorationPolicy`.
        switch_probability: see `ExplorationPolicy`.
        pay: "rollout" or "step"; the latter for callbacks that look at each step's reward.
        wait: read the disk before each rollout, instead of what was read in the background: the
            newest reward is then always used, and the agent waits for the disk.
        seed: of what is random in it.
        verbose: as SB3 has it.

    Raises:
        ConfigError: a share or probability out of its range, or another word for `pay`.
    """

    def __init__(
        self,
        *,
        exploration_fraction: float = 0.05,
        random_probability: float = 0.5,
        switch_probability: float = 0.5,
        pay: Literal["rollout", "step"] = "rollout",
        wait: bool = False,
        seed: int = 0,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        require_in("exploration_fraction", exploration_fraction, 0.0, 0.99)
        require_in("random_probability", random_probability, 0.0, 1.0)
        require_in("switch_probability", switch_probability, 0.0, 1.0)
        require_one_of("pay", pay, ("rollout", "step"))
        self._pay = pay
        self._fraction, self._seed, self._wait = exploration_fraction, seed, wait
        self._probabilities = (random_probability, switch_probability)

    def _init_callback(self) -> None:
        self._env = feedback_env(self.training_env)
        buffer = replay_of(self.model)
        if buffer is not None:
            require_relabelling(buffer)
            if self._env.core.awaits_rewards:  # now, not hours later with the first of them
                require_spaces_held(buffer, self._env.observation_space, self._env.action_space)
        if self._env.just_reset:  # as `learn` does in its course, unless told to go on
            end_replay(self.model)
        self._together = (
            self._pay == "rollout"
            and isinstance(self.model, OnPolicyAlgorithm)
            and rewards_reach(self.training_env)
        )

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
            self.logger.record("feedback/explored_steps", self._env.explored_steps)
        if self._fraction and self._env.core.collecting:
            self._explore()
        if self._together:
            self._env.defer_rewards()

    def _on_rollout_end(self) -> None:
        if self._together:
            add_rewards(cast("OnPolicyAlgorithm", self.model), self._env.settle_rewards())

    def _on_training_end(self) -> None:
        self._env.settle_rewards()  # of a rollout that another callback gave up

    def _explore(self) -> None:
        """Let a random policy take over for a stretch, once as many steps are due."""
        explored = self._env.explored_steps
        due = self._fraction * (self.model.num_timesteps + explored) - explored
        stretch = STRETCH_CLIPS * self._env.core.config.segment_length
        env, agent = self.training_env, self.model
        if due < stretch * env.num_envs:
            return
        # Drawn from what is counted, so that a run which goes on draws as one that never stopped.
        rng = np.random.default_rng([self._seed, explored])
        policy = ExplorationPolicy(agent, env.action_space, rng, *self._probabilities)

        def count() -> None:
            self._env.explored_steps += env.num_envs

        queries = self._env.queries
        with nullcontext() if queries is None else queries.not_shown():
            self._env.core.hand_over()  # what the agent did alone, as far as it has come
            explore(agent, env, policy, stretch, on_step=count)
            self._env.core.hand_over()
        agent._last_obs = env.reset()  # type: ignore[assignment]  # its annotation is narrower than what it keeps
        agent._last_episode_starts = np.ones(env.num_envs, bool)
        if agent._vec_normalize_env is not None:
            agent._last_original_obs = agent._vec_normalize_env.get_original_obs()

    def _on_step(self) -> bool:
        return True


def feedback_env(venv: VecEnv) -> FeedbackVecEnv:
    """The `FeedbackVecEnv` among the wrappers of an algorithm's environment.

    Raises:
        ConfigError: there is none.
    """
    found = unwrap_vec_wrapper(venv, FeedbackVecEnv)
    if found is None:
        raise ConfigError("FeedbackCallback: the algorithm's environment is no FeedbackVecEnv.")
    return found


def rewards_reach(venv: VecEnv) -> bool:
    """Whether nothing between a `FeedbackVecEnv` and its algorithm looks at rewards."""
    inner = venv
    while not isinstance(inner, FeedbackVecEnv):
        unmoved = isinstance(inner, VecNormalize) and not inner.norm_reward
        if not isinstance(inner, VecEnvWrapper) or not (unmoved or isinstance(inner, PASS_ON)):
            return False
        inner = inner.venv
    return True


def add_rewards(algorithm: OnPolicyAlgorithm, more: FloatArray) -> None:
    """Add to the rewards of a full rollout, and to its advantages and returns what follows.

    Generalised advantage estimates (Schulman et al. 2016, equation 16) are linear in the rewards,
    so that what is added needs neither values nor what was seen last.

    Args:
        algorithm: whose rollout has just ended.
        more: `[T, V]`

    Raises:
        ConfigError: another number of steps, or of environments, than the rollout has.
    """
    buffer = algorithm.rollout_buffer
    if not buffer.full or buffer.rewards.shape != more.shape:
        raise ConfigError.mismatch(
            "rollout",
            expected=f"{more.shape} steps of environments, as were acted",
            got=f"{buffer.rewards.shape}{'' if buffer.full else ', not full'}",
            fix='Steps of other programs in between? `FeedbackCallback(pay="step")`.',
        )
    kept = buffer.gamma * buffer.gae_lambda
    advantages, following = np.zeros_like(more), np.zeros(more.shape[1], more.dtype)
    goes_on = np.zeros(more.shape[1], more.dtype)  # nothing is known after the last step
    for step in reversed(range(len(more))):
        following = advantages[step] = more[step] + kept * goes_on * following
        goes_on = 1.0 - buffer.episode_starts[step]
    buffer.rewards += more
    buffer.advantages += advantages
    buffer.returns += advantages
