"""What a wrapped environment does at every step, whichever library steps it."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from gymnasium import spaces

from preferl.data.episodes import Episodes
from preferl.errors import ConfigError
from preferl.feedback.protocols import PairSampler, Teacher
from preferl.feedback.scripted import ScriptedTeacher
from preferl.feedback.step_rewards import AnyReward
from preferl.online.wrappers.feedback_config import (
    BeforeFirstReward,
    FeedbackConfig,
    LengthGuard,
    settings_of,
)
from preferl.online.wrappers.query_worker import QueryWorker
from preferl.online.wrappers.recording import Recording
from preferl.online.wrappers.reward_computer import (
    RewardComputer,
    RewardInSpaces,
    Rewards,
    Transform,
    WindowReward,
    for_spaces,
    space_after,
)
from preferl.online.wrappers.state_entropy import StateEntropyBonus
from preferl.shapes import Array, BoolArray, FloatArray, take
from preferl.store.feedback import StoredFeedback
from preferl.training.publish import PublishedReward, write_spaces

RewardSource = Literal["learned", "before", "environment"]
"""Where the rewards of steps come from; "before" is what comes before the first learned one."""

HAND_OVER_STEPS = 200
"""Finished steps that are handed over together; fewer wait for more."""


@final
class FeedbackCore:
    """Records steps of `V` environments for people to compare, and gives them learned rewards.

    It waits for no person, disk or database. Rewards are of the observation before acting and of
    the action, with the history of the episode. Only `refresh` and `set_reward` switch to a newer
    reward; one that looks back sees the steps of running episodes as far as they are still kept.

    Spaces are those of one of the `V` environments. A reader of rewards that nobody watches is
    watched until this is closed. Other arguments, and errors, are those of `FeedbackVecEnv`.

    Attributes:
        queries: asks in the background; None where nothing is asked.
        on_episodes: takes what is to be asked about, and returns at once; by default `queries` do.
        version: of the learned reward in use; 0 before the first.
        reader: of published rewards, from which newer ones come; None where the reward stays.
        returns: `[V]` sums of rewards given at once in the running episodes, or just over.
        since: `[V]` vector steps from `defer` to where these began, 0 if that was earlier.
        forced: whether steps get the environment's own reward, whatever is learned.
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
        self.config = config = settings_of(config, settings)
        _require_feedback(feedback)
        teacher = None if synthetic_preferences is False else synthetic_preferences
        self.queries: QueryWorker | None = None
        if feedback is None:
            if not (sampler is None and teacher is None):
                raise ConfigError(
                    "feedback: expected where to ask, got none, and a sampler or teacher."
                )
        else:
            if record:
                raise ConfigError(
                    "record: expected nothing to ask where experience is kept, got feedback."
                )
            teacher = ScriptedTeacher.oracle() if teacher is True else teacher
            self.queries = QueryWorker(feedback, config, sampler=sampler, teacher=teacher)
            self.queries.core = self
            on_episodes = self.queries.put
        self.environments = environments
        self._spaces = observation_space, action_space
        self.space = space_after(observation_space, transform, transformed_space)
        self._transform = transform
        self.on_episodes = on_episodes
        self._record = record
        self.recording = Recording(self.space, action_space, environments)
        self.recording.collecting = self.collects
        self.computer = RewardComputer(self.recording)
        self._bonus = StateEntropyBonus(seed=config.seed)
        self._guard = LengthGuard(None if record else config.variable_length)
        self._begun = self.forced = False
        self._reward_now: FloatArray | None = None  # [V] of the running step, where known
        self._vector_steps = self._next_cut = self.version = 0
        self.returns = np.zeros(environments)
        self.since = np.zeros(environments, int)
        self.reader: PublishedReward | None = None
        self._watched: PublishedReward | None = None
        if isinstance(rewards, Path | str):
            rewards = PublishedReward(rewards)
            rewards.refresh()
        if not isinstance(rewards, PublishedReward):
            if rewards is not None:
                self.set_reward(rewards)
            return
        self.reader = rewards
        self._switch_to_newest()
        if self.queries is not None:  # whoever fits the reward need not guess
            write_spaces(rewards.synced, self.space, action_space)
        if not rewards.watched:
            self._watched = rewards.watch()  # last, so that no thread outlives a refusal

    @property
    def reward_source(self) -> RewardSource:
        """The reward of steps: learned, what comes before that, or the environment's own."""
        if not self.forced and self.computer.reward is not None:
            return "learned"
        own = self.forced or self.config.before == BeforeFirstReward.ENVIRONMENT
        return "environment" if own else "before"

    @property
    def active_version(self) -> int:
        """Of the reward that steps have now; 0 where that is not a learned one."""
        return self.version if self.reward_source == "learned" else 0

    @property
    def reward(self) -> WindowReward | None:
        """The learned reward in use, of the environment's own observations."""
        reward = self.computer.reward
        if reward is None or self._transform is None:
            return reward
        return RewardInSpaces(reward, *self._spaces, self._transform)

    def refresh(self, *, wait: bool = False) -> bool:
        """Switch to the newest reward, see `FeedbackControls`; one of other spaces is refused."""
        if self.reader is not None:
            _ = self.reader.refresh() if wait else self.reader.take()
        return self._switch_to_newest()

    def set_reward(self, reward: WindowReward | AnyReward, *, version: int | None = None) -> None:
        """Use a reward from the next step on, see `FeedbackVecEnv.set_reward`."""
        self._use(reward, self.version + 1 if version is None else version)
        self.reader = None

    def defer(self) -> None:
        """Compute learned rewards later from now on: zeros at each step, the rest at `settle`."""
        self.computer.defer()
        self.since[:] = 0

    def settle(self) -> FloatArray:
        """`[T, V]` learned rewards of the steps since `defer`; give them at once from now on."""
        self.returns[:] = self._returns()
        return self.computer.settle()

    def reset(
        self, observations: Any, which: BoolArray | None = None, *, states: Array | None = None
    ) -> None:
        """Begin episodes with `observations [V, *obs]` where `which [V]` is true, or everywhere."""
        here = slice(None) if which is None else which
        self.recording.begin(self._seen(observations), which=which, states=states)
        self.returns[here] = 0.0
        self.since[here] = self.computer.steps_deferred
        self._begun = True

    def act(self, actions: Array) -> None:
        """Record the actions `[V, *act]` of a step that begins, and compute their rewards."""
        if not self._begun:
            raise ConfigError("Call `reset()` before the first step.")
        self.recording.act(actions)
        source = self.reward_source
        if source == "learned":
            self._reward_now = self.computer.compute(actions)
            return
        if source == "environment":
            self._reward_now = None
        elif self.config.before == BeforeFirstReward.ENTROPY:
            self._reward_now = self._bonus(self.recording.present)
        else:
            self._reward_now = np.zeros(self.environments, np.float32)
        self.computer.skip()

    def outcome(
        self,
        observations: Any,
        rewards: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        *,
        states: Array | None = None,
        success: BoolArray | None = None,
    ) -> FloatArray:
        """Record what came of the actions; give their rewards, a new array `[V]`.

        Learned rewards are float32; the environments' own are as exact as they were. Next
        `observations [V, *obs]` are the last ones of episodes that are over; `rewards [V]` are the
        environments' own. Until `reset` begins the next episode there, steps are not recorded and
        their reward is zero.
        """
        given = np.array(rewards if self._reward_now is None else self._reward_now)
        given = given.astype(np.result_type(given, np.float32), copy=False)
        given[self.recording.idle] = 0.0
        self.returns += given
        seen = self._seen(observations)
        self.recording.advance(seen, rewards, states=states, success=success)
        ended = ((terminated | truncated) & ~self.recording.idle).nonzero()[0]
        if len(ended):
            self.recording.end(ended, np.asarray(terminated)[ended], take(seen, ended))
        self._vector_steps += 1
        if self.recording.collecting:
            self._hand_over(max(HAND_OVER_STEPS, self.config.segment_length))
        self._guard.check(self.recording.shortest, self.recording.longest)
        every = self.config.refresh_every
        if every is not None and self._vector_steps % every == 0:
            self.refresh()
        return given

    def hand_over(self) -> None:
        """Hand over everything recorded so far; running episodes are cut."""
        if self.recording.collecting and self.on_episodes is not None:
            self.recording.cut()
            self._hand_over(1)

    def snapshot(self) -> dict[str, Any]:
        """Recording and rewards between two steps, for `restore`."""
        return {
            "recording": self.recording.snapshot(),
            "collecting": self.recording.collecting,
            "begun": self._begun,
            "source": None if self.reader is None else self.reader.snapshot(),
            "bonus": self._bonus.snapshot(),
            "forced": self.forced,
            "vector_steps": self._vector_steps,
            "warned": self._guard.warned,
            "returns": self._returns(),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from the snapshot of another one of the same environments.

        The published reward that was in use is in use again, whatever came since.
        """
        self.recording.restore(snapshot["recording"])
        self.recording.collecting = bool(snapshot["collecting"]) and self.collects
        self.returns[:] = snapshot["returns"]
        self._begun = bool(snapshot["begun"])
        self.forced = bool(snapshot["forced"])
        self._vector_steps = int(snapshot["vector_steps"])
        self._next_cut = 0
        self._guard.warned = bool(snapshot["warned"])
        self._bonus.restore(snapshot["bonus"])
        reward = self.computer.reward
        version = self.version
        if self.reader is not None:
            self.reader.restore(snapshot["source"])
            reward = self.reader.reward
            version = self.reader.version
        self.version = 0
        self.computer = RewardComputer(self.recording)
        if reward is not None:
            self._use(reward, version)

    def close(self, seconds: float = 10.0, *closing: Callable[[], object]) -> None:
        """Hand over, stop threads in about so many seconds, and close more, whatever fails."""
        until = time.monotonic() + seconds
        watched = self._watched
        queries = self.queries

        def left() -> float:  # and a second for what has not been waited for yet
            return max(until - time.monotonic(), 1.0)

        with ExitStack() as stack:  # the last first
            for close in closing:
                stack.callback(close)
            if watched is not None:
                stack.callback(lambda: watched.close(left()))
            if queries is not None:
                stack.callback(lambda: queries.close(left()))
            self.hand_over()
            if queries is not None and self.recording.collecting and queries.counts.waiting_steps:
                queries.flush(seconds)

    @property
    def collects(self) -> bool:
        """Whether episodes are kept or asked about, unless that is paused."""
        return self._record or self.on_episodes is not None

    def _returns(self) -> FloatArray:
        """`[V]` learned returns of the running episodes, with what is deferred of them."""
        deferred = self.computer.deferred().astype(float)
        theirs = np.arange(len(deferred))[:, None] >= self.since
        return np.asarray(self.returns + (deferred * theirs).sum(axis=0))

    def _seen(self, observations: Any) -> Any:
        return observations if self._transform is None else self._transform(observations)

    def _switch_to_newest(self) -> bool:
        reader = self.reader
        current = self.computer.reward is not None
        if reader is None or reader.reward is None or (current and self.version == reader.version):
            return False
        self._use(reader.reward, reader.version)
        return True

    def _use(self, reward: WindowReward | AnyReward, version: int) -> None:
        self.computer.set_reward(for_spaces(reward, self.space, self._spaces[1]))
        self.version = version

    def _hand_over(self, at_least: int) -> None:
        """Give what has ended to whoever asks about it, if that is so many steps."""
        if self.on_episodes is None:
            return
        recording = self.recording
        longest = self.config.longest_piece
        if recording.time >= self._next_cut:  # until then no episode can have become so long
            recording.cut(recording.pending >= longest)
            self._next_cut = recording.time + longest - int(recording.pending.max())
        if recording.finished_steps >= at_least and (episodes := recording.take()) is not None:
            self.on_episodes(episodes)


def _require_feedback(feedback: object) -> None:
    """Raise `ConfigError` for something else than where queries go, and say where it belongs."""
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
