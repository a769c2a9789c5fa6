"""What happens between rollouts of stable-baselines3's algorithms: newer rewards, unusual clips."""

from contextlib import nullcontext
from typing import Any, Final, Literal, cast, final

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from preferl.errors import ConfigError, require_in
from preferl.online.agent_state import end_replay, lose_place, replay_of
from preferl.online.exploration import ExplorationPolicy
from preferl.online.feedback_env import FeedbackVecEnv
from preferl.online.replay import relabel_replay, require_relabelling, require_spaces_held
from preferl.online.rollouts import pay_rollout, rewards_reach

STRETCH_CLIPS: Final = 4
"""Lengths of a clip for which a random policy takes over now and then; shorter has few clips."""


@final
class FeedbackCallback(BaseCallback):
    """Gives the agent in a `FeedbackVecEnv` the newest learned reward before each rollout.

    No rollout mixes two rewards. The whole replay buffer of an off-policy algorithm is paid again
    by the new one; what it was paid while the environment's own reward was switched on, too. If
    what it stores is not what rewards are computed from, `learn` raises `SpaceError` at its start.

    An agent that has found its ways shows people the same clips again and again. With
    `exploration_fraction`, a random policy takes over now and then between two rollouts, so that
    they compare more than these; nothing is learned from those steps, and the episodes after them
    begin anew. The loop in one process does the same.

    An on-policy algorithm needs no reward before its rollout is over. All its steps are paid
    together then, to within rounding what each would have been paid, in a fraction of the time
    (`pay="rollout"`). Until then `step` gives zeros, and so it gives what was learned at once
    (`pay="step"`) where anything between environment and algorithm looks at rewards:
    `VecNormalize(norm_reward=True)`, `VecMonitor`, a wrapper that is not SB3's.

    Args:
        exploration_fraction: share of all steps in which that is so; not counted among those
            that the algorithm was asked for. It takes none by default.
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
        exploration_fraction: float = 0.0,
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
        if pay not in ("rollout", "step"):
            raise ConfigError.mismatch("pay", expected="rollout or step", got=repr(pay))
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
            pay_rollout(cast("OnPolicyAlgorithm", self.model), self._env.settle_rewards())

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
        observations: Any = agent._last_obs
        starts = np.ones(env.num_envs, bool)
        handover = self._env.handover
        with nullcontext() if handover is None else handover.not_shown():
            self._env.core.hand_over()  # what the agent did alone, as far as it has come
            for _ in range(stretch):
                actions, _state = policy.predict(observations, episode_start=starts)
                observations, _rewards, starts, _infos = env.step(actions)
                self._env.explored_steps += env.num_envs
            self._env.core.hand_over()
        lose_place(agent)
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
    inner: VecEnv = venv
    while not isinstance(inner, FeedbackVecEnv):
        if not isinstance(inner, VecEnvWrapper):
            raise ConfigError("FeedbackCallback: the algorithm's environment is no FeedbackVecEnv.")
        inner = inner.venv
    return inner
