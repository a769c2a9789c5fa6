"""What a wrapped environment does at each step: record it, compute its reward, ask about it.

`FeedbackCore` joins three parts that do not know each other: `Recording` keeps the steps,
`RewardComputer` gives them rewards, and `QueryWorker` asks people about finished episodes.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from gymnasium import spaces

from preferl.data.episodes import Episodes
from preferl.errors import ConfigError
from preferl.feedback.protocols import PairSampler, Teacher
from preferl.feedback.scripted import ScriptedTeacher
from preferl.online.wrappers.feedback_config import FeedbackConfig, LengthGuard, settings_of
from preferl.online.wrappers.query_worker import QueryWorker
from preferl.online.wrappers.recording import Recording
from preferl.online.wrappers.reward_computer import (
    RewardComputer,
    Rewards,
    Transform,
    WindowReward,
)
from preferl.shapes import Array, BoolArray, FloatArray, IntArray, take
from preferl.store.feedback import StoredFeedback
from preferl.training.publish import PublishedReward
from preferl.training.reward_function import RewardFunction, relabel

HAND_OVER_STEPS: Final = 200
"""Fewest steps of ended episodes that are passed to `on_episodes` together."""


@final
@dataclass
class DeferredRewards:
    """The rewards of a rollout's steps, computed in large batches until the rollout's end.

    One large batch is faster than many small ones. A reward that looks back then also encodes each
    step once, and not once for every window.

    Attributes:
        start: vector step with which the rollout began.
        episode_starts: `[V]` vector steps from `start` to the beginning of the running episodes; 0
            for episodes that began earlier.
        next_step: the first vector step without a reward in `computed`.
        reward: computes the rewards from `next_step` on; None if steps get their reward at once.
        computed: `[t, V]` rewards of the steps before `next_step`; 0 for steps that got theirs at
            once.
    """

    start: int
    episode_starts: IntArray
    next_step: int
    reward: RewardFunction | None = None
    computed: list[FloatArray] = field(default_factory=list)


@final
class FeedbackCore:
    """Records steps of `V` environments for people to compare, and gives them learned rewards.

    It does not wait for people, disks or databases. Only `refresh` and `set_reward` switch to a
    newer reward. A reward that looks back sees all steps of running episodes that are still kept.

    Spaces are those of a single environment. For other arguments and errors, see `FeedbackVecEnv`.

    Attributes:
        recording: keeps the steps.
        computer: decides which reward the steps get, and computes it.
        queries: asks in the background; None if nothing is asked.
        on_episodes: called with episodes to ask about; must return at once. It is `queries.put` if
            there are `queries`.
        returns: `[V]` sums of rewards that steps got at once, over the running episode or the one
            that has just ended.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        environments: int,
        feedback: StoredFeedback | None = None,
        rewards: Rewards = None,
        config: FeedbackConfig | None = None,
        *,
        record: bool = False,
        on_episodes: Callable[[Episodes], None] | None = None,
        sampler: PairSampler | str | None = None,
        synthetic_preferences: bool | Teacher = False,
        transform: Transform | None = None,
        transformed_space: spaces.Space[Any] | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(sampler, str):
            settings["sampler"] = sampler
            sampler = None
        self.config = settings_of(config, settings)
        _require_feedback(feedback)
        self._transform = transform
        self.computer = RewardComputer(
            self.config,
            environments,
            observation_space,
            action_space,
            transform=transform,
            transformed_space=transformed_space,
        )
        self.recording = Recording(self.computer.space, action_space, environments)
        self.queries = self._query_worker(feedback, sampler, synthetic_preferences)
        if self.queries is not None and record:
            raise ConfigError(
                "record: expected False with feedback, since recorded episodes are kept for "
                "`take`, got True. Pass feedback, or record=True, not both."
            )
        self.on_episodes = on_episodes if self.queries is None else self.queries.put
        self._record = record
        self.recording.collecting = self.collects
        self.returns = np.zeros(environments)
        self._length_guard = LengthGuard(None if record else self.config.variable_length)
        self._reward_now: FloatArray | None = None  # [V] of the running step, if computed
        self._deferred: DeferredRewards | None = None
        self._vector_steps = 0
        if isinstance(rewards, Path | str | PublishedReward):
            self.computer.follow(rewards, announce=self.queries is not None)
        elif rewards is not None:
            self.computer.set_reward(rewards)

    def _query_worker(
        self,
        feedback: StoredFeedback | None,
        sampler: PairSampler | None,
        synthetic_preferences: bool | Teacher,
    ) -> QueryWorker | None:
        """Build the worker that asks people or a script; None if nothing is asked."""
        teacher = None if isinstance(synthetic_preferences, bool) else synthetic_preferences
        if synthetic_preferences is True:
            teacher = ScriptedTeacher.oracle()
        if feedback is not None:
            computer = self.computer
            return QueryWorker(
                feedback,
                self.config,
                sampler=sampler,
                teacher=teacher,
                in_use=lambda: (computer.reward, computer.version),
            )
        if sampler is not None or teacher is not None:
            raise ConfigError(
                "feedback: expected a StoredFeedback for the queries of the given sampler or "
                "teacher, got none. Pass `StoredFeedback(store, project)`."
            )
        return None

    @property
    def collects(self) -> bool:
        """Whether episodes are kept or asked about; false while collecting is paused."""
        return self._record or self.on_episodes is not None

    # One vector step: `begin_step`, then `finish_step`, and `reset` if an episode has ended.

    def reset(
        self, observations: Any, which: BoolArray | None = None, *, states: Array | None = None
    ) -> None:
        """Begin episodes with `observations [V, *obs]` where `which [V]` is true, or everywhere."""
        environments = slice(None) if which is None else which
        self.recording.begin(self._transformed(observations), environments=which, states=states)
        self.returns[environments] = 0.0
        if self._deferred is not None:
            self._deferred.episode_starts[environments] = self.steps_deferred

    def begin_step(self, actions: Array) -> None:
        """Record the actions `[V, *act]` of the next step, and compute their rewards.

        `RewardComputer.compute` decides which reward they get. Deferred rewards are zero until
        `settle` computes them.
        """
        if not self.recording.has_begun:
            raise ConfigError("Call `reset()` before the first step.")
        self.recording.act(actions)
        deferred = self._deferred
        if deferred is not None and deferred.reward is not self.computer.deferrable:
            self._compute_deferred()  # the steps so far, by the reward that they had
            deferred.reward = self.computer.deferrable
        if deferred is None or deferred.reward is None:
            self._reward_now = self.computer.compute(self.recording.windows)
            oldest_step = self.recording.time
        else:
            self._reward_now = np.zeros(len(self.returns), np.float32)
            oldest_step = deferred.next_step
        self.recording.kept_from = oldest_step - _history_length(self.computer.reward)

    def finish_step(
        self,
        observations: Any,
        environment_rewards: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        *,
        states: Array | None = None,
        success: BoolArray | None = None,
    ) -> FloatArray:
        """Record the outcome of the actions; return their rewards as a new array `[V]`.

        The next `observations [V, *obs]` are an episode's final ones where it has ended, not those
        of the next episode; `environment_rewards [V]` are the environments' own. After an episode's
        end, steps of its environment are not recorded, and get zero, until `reset` begins the next
        one. Learned rewards are float32; the environments' own keep their precision.
        """
        step_rewards = np.array(
            environment_rewards if self._reward_now is None else self._reward_now
        )
        step_rewards = step_rewards.astype(np.result_type(step_rewards, np.float32), copy=False)
        step_rewards[self.recording.idle] = 0.0
        self.returns += step_rewards
        transformed = self._transformed(observations)
        self.recording.advance(transformed, environment_rewards, states=states, success=success)
        ended = ((terminated | truncated) & ~self.recording.idle).nonzero()[0]
        if len(ended):
            self.recording.end(ended, np.asarray(terminated)[ended], take(transformed, ended))
        if self.recording.collecting and self.on_episodes is not None:
            self._hand_over(max(HAND_OVER_STEPS, self.config.segment_length))
        self._length_guard.check(self.recording.lengths.shortest, self.recording.lengths.longest)
        self._vector_steps += 1
        interval = self.config.refresh_every
        if interval is not None and self._vector_steps % interval == 0:
            self.computer.switch_to_newest()
        return step_rewards

    def hand_over(self) -> None:
        """Pass on everything recorded so far; running episodes are cut."""
        if self.recording.collecting and self.on_episodes is not None:
            self.recording.cut()
            self._hand_over(1)

    def _hand_over(self, at_least: int) -> None:
        """Pass on ended episodes if they have `at_least` steps; cut long running ones first."""
        longest = self.config.longest_piece
        if self.recording.lengths.longest >= longest:
            self.recording.cut(self.recording.pending >= longest)
        if self.on_episodes is not None and self.recording.finished_steps >= at_least:
            episodes = self.recording.take()
            if episodes is not None:
                self.on_episodes(episodes)

    # A rollout whose rewards are computed at its end.

    @property
    def steps_deferred(self) -> int:
        """Vector steps since `defer`; 0 if steps get their rewards at once."""
        return 0 if self._deferred is None else self.recording.time - self._deferred.start

    def defer(self) -> None:
        """Give zeros at each step from now on; `settle` computes the learned rewards.

        Only a `RewardFunction` can be deferred; others are computed at once.
        """
        self.settle()
        time = self.recording.time
        self._deferred = DeferredRewards(time, np.zeros(len(self.returns), int), time)

    def settle(self) -> FloatArray:
        """Return the learned rewards since `defer`, `[T, V]`; later steps get theirs at once."""
        rewards = self._deferred_rewards()
        self.returns[:] = self._returns(rewards)
        self._deferred = None
        return rewards

    def _deferred_rewards(self) -> FloatArray:
        """Compute the rewards that `settle` would return now, `[T, V]`."""
        no_rewards = np.zeros((0, len(self.returns)), np.float32)
        if self._deferred is None:
            return no_rewards
        self._compute_deferred()
        return np.concatenate([no_rewards, *self._deferred.computed])

    def _compute_deferred(self) -> None:
        """Compute the deferred rewards of all steps so far, in the same way as relabelling does."""
        deferred = self._deferred
        if deferred is None or deferred.next_step == self.recording.time:
            return
        steps = self.recording.time - deferred.next_step
        rewards = np.zeros((steps, len(self.returns)), np.float32)
        if deferred.reward is not None:
            history_length = _history_length(deferred.reward)
            pieces, is_step = self.recording.since(deferred.next_step, history_length)  # [V, t]
            if pieces is not None:
                by_environment = np.zeros(is_step.shape, np.float32)
                by_environment[is_step] = relabel(pieces, deferred.reward).rewards
                rewards = by_environment[:, -steps:].T
        deferred.computed.append(rewards)
        deferred.next_step = self.recording.time

    def _returns(self, deferred_rewards: FloatArray) -> FloatArray:
        """Return the learned returns of the running episodes, `[V]`, including deferred rewards."""
        if self._deferred is None:
            return self.returns
        steps = np.arange(len(deferred_rewards))[:, None]
        of_episode = deferred_rewards.astype(float) * (steps >= self._deferred.episode_starts)
        return np.asarray(self.returns + of_episode.sum(axis=0))

    @property
    def deferred_episode_starts(self) -> IntArray:
        """`[V]` vector steps from `defer` to the start of the running episodes; 0 if earlier."""
        return (
            np.zeros(len(self.returns), int)
            if self._deferred is None
            else self._deferred.episode_starts
        )

    def snapshot(self) -> dict[str, Any]:
        """Return the state of recording, rewards and queries between two steps, for `restore`."""
        return {
            "recording": self.recording.snapshot(),
            "collecting": self.recording.collecting,
            "computer": self.computer.snapshot(),
            "queries": None if self.queries is None else self.queries.snapshot(),
            "vector_steps": self._vector_steps,
            "warned": self._length_guard.warned,
            "returns": self._returns(self._deferred_rewards()),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from the snapshot of another core of the same environments.

        The published reward that was in use is used again, even if newer ones were published.
        """
        self.recording.restore(snapshot["recording"])
        self.recording.collecting = bool(snapshot["collecting"]) and self.collects
        self.computer.restore(snapshot["computer"])
        self._deferred = None
        self.returns[:] = snapshot["returns"]
        self._vector_steps = int(snapshot["vector_steps"])
        self._length_guard.warned = bool(snapshot["warned"])
        if self.queries is not None and snapshot["queries"] is not None:
            self.queries.restore(snapshot["queries"])

    def close(self, seconds: float = 10.0, *closing: Callable[[], object]) -> None:
        """Pass on what is recorded, stop threads within `seconds`, and call `closing` always."""
        deadline = time.monotonic() + seconds
        queries = self.queries

        def seconds_left() -> float:  # at least a second for each call
            return max(deadline - time.monotonic(), 1.0)

        with ExitStack() as stack:  # calls the last callback first
            for close in closing:
                stack.callback(close)
            stack.callback(lambda: self.computer.close(seconds_left()))
            if queries is not None:
                stack.callback(lambda: queries.close(seconds_left()))
            self.hand_over()
            if queries is not None and self.recording.collecting and queries.counts.waiting_steps:
                queries.flush(seconds)

    def _transformed(self, observations: Any) -> Any:
        return observations if self._transform is None else self._transform(observations)


def _history_length(reward: WindowReward | None) -> int:
    """Return how many steps before the present one a reward reads."""
    return 0 if reward is None or reward.context == 1 else reward.context


def _require_feedback(feedback: object) -> None:
    """Raise `ConfigError` unless `feedback` takes queries; name the argument for other objects."""
    if feedback is None or isinstance(feedback, StoredFeedback):
        return
    fix = "Pass `StoredFeedback(store, project)`, or a teacher as `synthetic_preferences=`."
    if isinstance(feedback, FeedbackConfig):
        fix = "Pass settings by name: `config=FeedbackConfig(...)`."
    elif isinstance(feedback, WindowReward) or callable(feedback):
        fix = "Pass a reward by name: `rewards=...`."
    raise ConfigError(
        "feedback: expected a StoredFeedback, where queries go, or None, got a "
        f"{type(feedback).__name__}. {fix}"
    )
