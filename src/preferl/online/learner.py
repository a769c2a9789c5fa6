"""Agents that act, learn from a learned reward, and return their experience."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, final

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from stable_baselines3.common.vec_env import (
    VecEnv,
    VecEnvWrapper,
    VecNormalize,
    VecTransposeImage,
    is_vecenv_wrapped,
)

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segments import Segments
from preferl.envs.checks import require_usable
from preferl.envs.factory import draws, env_factory
from preferl.errors import ConfigError, require_in, require_one_of
from preferl.feedback.step_rewards import AnyReward
from preferl.models.build import build_reward_model
from preferl.models.spaces import infer_spaces
from preferl.online.algorithms import (
    algorithm_of,
    build_algorithm,
    make_environments,
    normalised,
)
from preferl.online.checkpoints.env_state import env_state
from preferl.online.checkpoints.run_checkpoint import agent_state, restore_agent
from preferl.online.configs import Before, OnlineConfig, PPOConfig
from preferl.online.methods.hybrid_replay import use_hybrid_replay
from preferl.online.methods.pretraining import (
    fill_replay,
    has_critic,
    require_critic,
    reset_critic,
)
from preferl.online.rollouts import RolloutHooks, SinkWriter, learn_within, listed
from preferl.online.wrappers.exploration import ExplorationPolicy, explore, require_reset
from preferl.online.wrappers.feedback_config import BeforeFirstReward
from preferl.online.wrappers.feedback_env import FeedbackVecEnv, RecordsStates
from preferl.online.wrappers.recording import Recording, zeros_of
from preferl.online.wrappers.replay import relabel_replay, replay_of, require_relabelling
from preferl.online.wrappers.reward_computer import WindowReward
from preferl.online.wrappers.rollout_rewards import RolloutRewards
from preferl.printing import get_logger
from preferl.reporting import MetricSink
from preferl.threads import is_small, threads_for
from preferl.training.reward_trainer import RewardTrainer

LOGGER = get_logger(__name__)


class PolicyLearner(Protocol):
    """An agent in its environments, from any library.

    It also has `steps`: how many environment steps it has taken in all.
    """

    def learn(self, steps: int) -> Episodes:
        """Act for `steps` more environment steps, improve, and return the experience."""

    def explore(self, steps: int) -> Episodes:
        """Act for `steps` more environment steps without improving, sometimes at random."""

    def set_reward(self, reward: WindowReward) -> None:
        """Use `reward` from now on, also for stored experience that the agent still learns from."""


@final
class SB3Learner:
    """A stable-baselines3 algorithm that learns from a learned reward.

    Its `env` is a `FeedbackVecEnv` without a store. This environment records the environments' own
    rewards and gives the learned one. It lies inside `VecNormalize` and `VecTransposeImage` if
    these are used. The algorithm learns in slices, with the same result as in one run:

    - Schedules (learning rate, clipping, DQN's exploration) follow the whole run.
    - Steps are environment steps, including exploration. There are never more than were requested.
      A call makes whole rollouts and leaves the remainder to the next call. A rollout is shortened
      at the end of the run, and in a call with fewer steps than one rollout (`learn_within`).
    - Steps of exploration are stored in the replay buffer of an off-policy algorithm, which learns
      from them later (`fill_replay`).
    - Environments are reset before the algorithm acts again if it has explored, or if a callback or
      an interrupt has stopped a rollout.

    Args:
        algorithm: on- or off-policy, with its environment set.
        total_steps: environment steps of the whole run; schedules end there.
        exploration_fraction: share of each call's steps that explore. A random policy takes over
            for some of them, and the algorithm does not learn. 0.05 gives a few unusual clips per
            round.
        before: what `explore` does before the first learned reward. With "zero" the algorithm
            learns nothing. With "entropy" it learns on a bonus for new states
            (`StateEntropyBonus`), as in PEBBLE, and the first learned reward resets its critic
            (`reset_critic`).
        random_probability, switch_probability: see `ExplorationPolicy`.
        rng: generator of exploration; the algorithm has its own `seed`.
        states: record `info["state"]` of each step, see `RecordsStates`.
        callback: passed to every `algorithm.learn`. Without one, PPO and A2C compute learned
            rewards in one batch at the end of each rollout. With one, they compute rewards at every
            step, since the callback may read them.
        progress_bar: passed to every `algorithm.learn`.

    Raises:
        ConfigError: a number is out of its range; the algorithm has no environment; the environment
            already has a learned reward, or a `VecNormalize` under other wrappers; the replay
            buffer cannot be relabelled; or `before` is "entropy" and there is no critic to reset.
    """

    def __init__(
        self,
        algorithm: BaseAlgorithm,
        *,
        total_steps: int,
        exploration_fraction: float = 0.05,
        before: Before = "zero",
        random_probability: float = 0.5,
        switch_probability: float = 0.5,
        rng: np.random.Generator,
        states: bool = False,
        callback: MaybeCallback = None,
        progress_bar: bool = False,
    ) -> None:
        require_in("total_steps", total_steps, 1, float("inf"))
        require_in("exploration_fraction", exploration_fraction, 0.0, 1.0)
        require_one_of("before", before, Before)
        if before == "entropy":
            require_critic(algorithm)
        if (buffer := replay_of(algorithm)) is not None:
            require_relabelling(buffer)
        self.algorithm = algorithm
        self.env = _installed(algorithm, states)
        self.total_steps = total_steps
        self.progress_bar = progress_bar
        self.exploration_fraction = exploration_fraction
        self.before = before
        self._exploration = ExplorationPolicy(
            algorithm, algorithm.action_space, rng, random_probability, switch_probability
        )
        self._hooks = RolloutHooks()
        self._callback = [*listed(callback), self._hooks]
        if callback is None:  # a user's callback may read the rewards of steps
            self._hooks.rewards = RolloutRewards(algorithm)
        self._steps_allowed = 0
        self._exploration_due = 0.0  # exploration steps requested but not yet made
        self._learned_on_bonus = False
        _stretch_schedules(algorithm, lambda: max(0.0, 1.0 - self.steps / self.total_steps))
        _keep_quiet(algorithm)

    @property
    def steps(self) -> int:
        """Environment steps used so far, including exploration."""
        return self.env.steps

    @property
    def recording(self) -> Recording:
        """Return the record of the environments' steps, with the environments' own rewards."""
        return self.env.core.recording

    def learn(self, steps: int) -> Episodes:
        """Explore for a share of `steps`, and let the algorithm learn for the rest.

        Steps that do not fill a rollout are left to the next call. All calls together therefore
        make nearly all requested steps, and never more.

        Returns:
            The episodes that ended in this call, with the environments' rewards; none if the call
            made no step. If ended episodes hold at most half of the call's steps, running episodes
            are cut and returned too, so that there is something to compare.
        """
        steps_before = self.steps
        with self._step_budget(steps), self.threads():
            self._explore(self.exploration_fraction * steps)
            self._improve(self._steps_allowed - self.steps)
        finished_steps = self.recording.finished_steps
        steps_made = self.steps - steps_before
        return self._take_episodes(cut=steps_made > 0 and 2 * finished_steps <= steps_made)

    def explore(self, steps: int) -> Episodes:
        """Explore for `steps`, rounded to whole vector steps, without learning.

        With `before="entropy"` and no learned reward yet, the algorithm learns on the bonus
        instead. All episodes of the call are returned. The last episode of each environment is cut.
        """
        with self._step_budget(steps), self.threads():
            if self.before == "entropy" and self.env.learned_reward is None:
                self._improve(self._steps_allowed - self.steps)
            else:
                self._explore(steps)
        return self._take_episodes(cut=True)

    def threads(self) -> AbstractContextManager[None]:
        """Give a small policy one processor thread during a block."""
        return threads_for(small=is_small(self.algorithm.policy))

    def report_to(self, sink: MetricSink) -> None:
        """Send stable-baselines3's diagnostics to a sink from now on, by environment steps used."""
        self._hooks.writer = SinkWriter(sink, lambda: self.steps)

    def before_rollout(self, call: Callable[[], None]) -> None:
        """From now on, call a function between any two rollouts of the algorithm."""
        self._hooks.before_rollout = call

    def set_reward(self, reward: WindowReward | AnyReward) -> None:
        """Learn from `reward` from now on, and relabel the replay buffer.

        The reward may be a plain function of observations and actions. Call this between calls of
        `learn`, so that no rollout mixes two rewards. If a critic has learned on the bonus for new
        states, the first reward resets it. The critic then learns from the relabelled buffer.

        Raises:
            SpaceError: the reward was made for other observations or actions.
        """
        is_first = self.env.learned_reward is None
        self.env.set_reward(reward)
        buffer = replay_of(self.algorithm)
        learned_reward = self.env.learned_reward
        if buffer is not None and learned_reward is not None:
            relabel_replay(buffer, learned_reward)
        if is_first and self._learned_on_bonus and has_critic(self.algorithm):
            reset_critic(self.algorithm)

    def snapshot(self) -> dict[str, Any]:
        """Return the state of agent and environments, for `restore`; call it between two calls."""
        return {
            "agent": agent_state(self.algorithm),
            "environment": env_state(_environment(self.algorithm)),
            "version": self.env.reward_version,
            "exploration": self._exploration.snapshot(),
            "steps_allowed": self._steps_allowed,
            "exploration_due": self._exploration_due,
            "learned_on_bonus": self._learned_on_bonus,
        }

    def restore(self, snapshot: Mapping[str, Any], reward: WindowReward | None) -> None:
        """Continue from the snapshot of a learner that was built in the same way and had `reward`.

        The snapshot's replay buffer is relabelled already. `CheckpointError` is raised if the
        learner of the snapshot was built in another way.
        """
        if reward is not None:
            self.env.set_reward(reward, version=int(snapshot["version"]))
        restore_agent(self.algorithm, _environment(self.algorithm), snapshot)
        self._exploration.restore(snapshot["exploration"])
        self._steps_allowed = snapshot["steps_allowed"]
        self._exploration_due = float(snapshot["exploration_due"])
        self._learned_on_bonus = bool(snapshot["learned_on_bonus"])

    @contextmanager
    def _step_budget(self, steps: int) -> Iterator[None]:
        require_in("steps", steps, 0, float("inf"))
        self._steps_allowed += steps
        try:
            yield
        except BaseException:
            self._forget_the_rest()
            raise

    def _forget_the_rest(self) -> None:
        """Drop steps that an interrupt or callback prevented, so that no later call makes them."""
        self._steps_allowed = min(self._steps_allowed, self.steps)

    def _explore(self, steps: float) -> None:
        self._exploration_due += steps
        env = _environment(self.algorithm)
        agent = self.algorithm
        steps_left = max(0, self._steps_allowed - self.steps)
        vector_steps = int((min(self._exploration_due, steps_left) + 1e-9) // env.num_envs)

        def count() -> None:
            self._exploration_due -= env.num_envs

        if vector_steps > 0 and isinstance(agent, OffPolicyAlgorithm):
            fill_replay(agent, env, self._exploration, vector_steps, on_step=count)
        elif vector_steps > 0:
            explore(agent, env, self._exploration, vector_steps, on_step=count)

    def _improve(self, steps: int) -> None:
        if steps <= 0:
            return
        self._learned_on_bonus |= self.env.learned_reward is None
        completed = False
        last = self._steps_allowed >= self.total_steps
        try:
            completed = learn_within(
                self.algorithm,
                steps,
                last=last,
                callback=self._callback,
                progress_bar=self.progress_bar,
            )
        finally:
            if not completed:
                self._forget_the_rest()
                require_reset(self.algorithm)

    def _take_episodes(self, *, cut: bool) -> Episodes:
        episodes = self.env.take(unfinished="cut" if cut else "keep")
        if episodes is not None:
            return episodes
        return _no_episodes(self.env.observation_space, self.env.action_space)


@final
class RecordedExperience:
    """Takes the place of the agent in a run without steps. The run asks about recorded episodes.

    Args:
        comparisons: answers that exist already.
        episodes: recorded experience that queries are about.
        queries: how many queries the run asks.

    Raises:
        ConfigError: there are neither comparisons nor episodes, or there are queries without
            episodes.
    """

    steps = 0

    def __init__(
        self, comparisons: Comparisons | None, episodes: Episodes | None, *, queries: int
    ) -> None:
        recorded: Episodes | Segments
        if episodes is not None:
            recorded = episodes
        elif comparisons is not None:
            recorded = comparisons.segments
        else:
            raise ConfigError(
                "steps: expected recorded episodes or comparisons for a run of 0 steps, got "
                "neither. Pass episodes= or comparisons=, or take steps."
            )
        if queries and episodes is None:
            raise ConfigError(
                f"episodes: expected recorded episodes for {queries} comparisons of a run without "
                "steps, got none. Pass episodes=, or take steps."
            )
        inferred = infer_spaces(recorded.observations, recorded.actions)
        self.observation_space, self.action_space = inferred

    def learn(self, steps: int) -> Episodes:
        """Make no step; return no episodes."""
        del steps
        return _no_episodes(self.observation_space, self.action_space)

    explore = learn

    def set_reward(self, reward: WindowReward) -> None:
        """Do nothing: no agent learns from the reward."""

    def snapshot(self) -> dict[str, Any]:
        """Return an empty snapshot, as there is no state."""
        return {}

    def restore(self, snapshot: Mapping[str, Any], reward: WindowReward | None) -> None:
        """Change nothing."""


def _no_episodes(observations: spaces.Space[Any], actions: spaces.Space[Any]) -> Episodes:
    return Episodes(
        observations=zeros_of(observations, (0,)),
        actions=np.asarray(zeros_of(actions, (0,))),
        rewards=np.zeros(0, np.float32),
        terminated=np.zeros(0, bool),
        final_observations=zeros_of(observations, (0,)),
        lengths=np.zeros(0, int),
    )


@dataclass(eq=False)
class _WholeRunSchedule:
    """A schedule that follows the whole run instead of the slice that SB3 counts."""

    schedule: Schedule
    remaining: Callable[[], float]

    def __call__(self, _remaining_of_slice: float) -> float:
        return self.schedule(self.remaining())

    def __reduce__(self) -> tuple[Callable[[Schedule], Schedule], tuple[Schedule]]:
        """Pickle the wrapped schedule, so that a saved algorithm does not refer to a learner."""
        return copy, (self.schedule,)


def _stretch_schedules(algorithm: BaseAlgorithm, remaining: Callable[[], float]) -> None:
    for name in ("lr_schedule", "clip_range", "clip_range_vf", "exploration_schedule"):
        schedule = getattr(algorithm, name, None)  # an algorithm has some of them only
        if isinstance(schedule, _WholeRunSchedule):
            schedule = schedule.schedule
        if callable(schedule):
            setattr(algorithm, name, _WholeRunSchedule(schedule, remaining))


def _keep_quiet(algorithm: BaseAlgorithm) -> None:
    """Make a quiet algorithm write no logs. SB3 would make a new folder of logs for each slice."""
    if not (algorithm.verbose or algorithm.tensorboard_log or algorithm._custom_logger):
        algorithm.set_logger(Logger(folder=None, output_formats=[]))


def _installed(algorithm: BaseAlgorithm, states: bool) -> FeedbackVecEnv:
    """Wrap the environment, inside the outermost wrappers that change what the policy sees."""
    top = _environment(algorithm)
    if is_vecenv_wrapped(top, FeedbackVecEnv):
        raise ConfigError(
            "algorithm: its environment already has a learned reward. Use the learner of that "
            "environment, or set a new environment with `algorithm.set_env`."
        )
    outer: VecEnvWrapper | None = None
    inner = top
    while isinstance(inner, VecTransposeImage | VecNormalize):
        outer = inner
        inner = inner.venv
    if is_vecenv_wrapped(inner, VecNormalize):
        raise ConfigError(
            "algorithm: VecNormalize is inside other wrappers, where it would pass the "
            "environment's own reward to the algorithm. Put VecNormalize outermost."
        )
    env = FeedbackVecEnv(inner, record=True, states=states, before=BeforeFirstReward.ENTROPY)
    if outer is not None:
        outer.venv = env
    algorithm.set_env(env if outer is None else top)
    return env


def _environment(algorithm: BaseAlgorithm) -> VecEnv:
    env = algorithm.get_env()
    if env is None:
        raise ConfigError("algorithm: it has no environment. Set one with `algorithm.set_env`.")
    return env


def build_learner(config: OnlineConfig, rng: np.random.Generator) -> SB3Learner:
    """Build the agent and the environments of a config."""
    environment_factory = env_factory(config)
    require_usable(environment_factory, f"environment {config.env_name}")
    wrap = RecordsStates if config.states else None
    if config.states and draws(environment_factory):
        environment_factory = partial(environment_factory, render_mode="rgb_array")
    environment_count = config.environments
    seed = config.seed
    vec_env = config.vec_env
    env = make_environments(
        environment_factory, environment_count, seed=seed, wrap=wrap, vec_env=vec_env
    )
    env = normalised(env) if config.normalise_observations else env
    algorithm_config = algorithm_of(config, env)
    if isinstance(algorithm_config, PPOConfig):
        _warn_of_short_iterations(config, algorithm_config)
    algorithm = build_algorithm(algorithm_config, env, seed=config.seed, device=config.device)
    if config.recent_share:
        use_hybrid_replay(algorithm, share=config.recent_share, steps=config.buffer_steps)
    return SB3Learner(
        algorithm,
        total_steps=config.steps,
        exploration_fraction=config.exploration_fraction,
        before=config.before,
        random_probability=config.random_probability,
        switch_probability=config.switch_probability,
        rng=rng,
        states=config.states,
    )


def _warn_of_short_iterations(config: OnlineConfig, algorithm: PPOConfig) -> None:
    rollout = algorithm.n_steps * config.environments
    learning = (1 - config.exploration_fraction) * (config.steps - config.initial_steps)
    if learning / config.iterations < rollout:
        LOGGER.warning(
            "An iteration has %d steps to learn from, and a rollout takes %d (n_steps * "
            "environments), so rollouts shrink to fit. An iteration with less than a minibatch "
            "(batch_size, %d) leaves its steps to the next. Take a smaller n_steps, fewer "
            "iterations or more steps.",
            learning / config.iterations,
            rollout,
            algorithm.batch_size,
        )


def build_trainer(config: OnlineConfig, learner: Any) -> RewardTrainer:
    """Build the reward model and trainer of a config, for the learner's spaces."""
    space_owner: FeedbackVecEnv | RecordedExperience
    if isinstance(learner, SB3Learner):
        space_owner = learner.env
    elif isinstance(learner, RecordedExperience):
        space_owner = learner
    else:
        raise ConfigError(
            "trainer: expected a RewardTrainer beside a learner of your own, got none beside a "
            f"{type(learner).__name__}. Build the trainer's model for the learner's spaces and "
            "pass trainer=."
        )
    model = build_reward_model(
        config.model, space_owner.observation_space, space_owner.action_space, seed=config.seed
    )
    return RewardTrainer(model, config.trainer, seed=config.seed, device=config.device)
