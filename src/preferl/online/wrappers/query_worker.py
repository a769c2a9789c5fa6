"""A background thread turns experience into queries."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Final, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes, join
from preferl.data.segment_sampling import cut, sample_segments
from preferl.data.segments import Segments
from preferl.errors import StorageError
from preferl.feedback.likelihood import likelihood_of
from preferl.feedback.pair_sampling import segments_wanted
from preferl.feedback.protocols import PairSampler, Teacher
from preferl.feedback.step_rewards import Reward
from preferl.online.service.heartbeat import Heartbeat
from preferl.online.service.scripted_answers import ScriptedAnswers
from preferl.online.wrappers.feedback_config import (
    FeedbackConfig,
    QueryConfig,
    RepetitionGuard,
)
from preferl.printing import get_logger
from preferl.registry import ACQUISITIONS, SAMPLERS
from preferl.shapes import FloatArray, leaves
from preferl.store.clips import distinct_clips
from preferl.store.feedback import StoredFeedback
from preferl.store.status import agent_program
from preferl.training.reward_function import RewardFunction

LOGGER = get_logger(__name__)

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at how many queries are pending."""

LONGEST_PAUSE: Final = 30.0
"""Longest pause in seconds between two tries to reach the store; each failure doubles it."""

TOO_SHORT_AFTER: Final = 20
"""How many clip lengths of steps to wait before warning that every episode is too short."""

EPISODE_MEGABYTES: Final = 8.0
"""Size of a shown episode in megabytes; of a larger episode, only its end is shown."""


@final
class ExperienceBuffer:
    """The latest experience; one thread puts it in, and another draws from it.

    The buffer drops its oldest arrivals when it holds more steps or megabytes than it may. It never
    drops the latest arrival. `steps` counts the steps in the buffer, `steps_in` all that ever came.
    """

    def __init__(self, most_steps: int, megabytes: float, segment_length: int) -> None:
        self._most_steps = most_steps
        self._most_megabytes = megabytes
        self._length = segment_length
        self._arrivals: deque[Episodes] = deque()
        self._unused = 0  # the latest arrivals, from which no query was drawn
        self._megabytes = 0.0
        self._lock = threading.Lock()
        self.steps = self.steps_in = self.dropped_episodes = self.dropped_segments = 0

    def put(self, episodes: Episodes) -> None:
        """Add episodes, and drop the oldest ones that do not fit."""
        megabytes = _megabytes(episodes)
        with self._lock:
            self._arrivals.append(episodes)
            self._unused += 1
            self.steps_in += episodes.steps
            self.steps += episodes.steps
            self._megabytes += megabytes
            while len(self._arrivals) > 1 and (
                self.steps > self._most_steps or self._megabytes > self._most_megabytes
            ):
                oldest = self._arrivals.popleft()
                self.steps -= oldest.steps
                self._megabytes -= _megabytes(oldest)
                if len(self._arrivals) < self._unused:
                    self._unused -= 1
                    self.dropped_episodes += len(oldest)
                    self.dropped_segments += int((oldest.lengths // self._length).sum())

    def look(self) -> Episodes | None:
        """Return all experience of the buffer, and mark it as used; None if there is none."""
        with self._lock:
            arrivals = list(self._arrivals)
            self._unused = 0
        return join(arrivals) if arrivals else None

    def snapshot(self) -> dict[str, Any]:
        """Return what the buffer holds and its counts, for `restore`."""
        with self._lock:
            used = len(self._arrivals) - self._unused
            return {
                "waiting": [(episodes, row < used) for row, episodes in enumerate(self._arrivals)],
                "steps_in": self.steps_in,
                "dropped": [self.dropped_episodes, self.dropped_segments],
            }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Fill this buffer with what another one of the same settings held."""
        for episodes, _ in snapshot["waiting"]:
            self.put(episodes)
        self._unused = sum(not was_used for _, was_used in snapshot["waiting"])
        self.steps_in = int(snapshot["steps_in"])
        self.dropped_episodes, self.dropped_segments = map(int, snapshot["dropped"])


def _megabytes(episodes: Episodes) -> float:
    parts = episodes.actions, episodes.rewards, episodes.states
    arrays = [array for array in (*leaves(episodes.observations), *parts) if array is not None]
    return float(sum(array.nbytes for array in arrays)) / 2**20


@final
@dataclass(frozen=True)
class QueryCounts:
    """Counts of experience and queries so far.

    Attributes:
        asked: queries that this program asked, over all copies of the environment.
        answered: answers of a script in this program; people answer on the annotation page. The
            script also answers queries of other programs in the same project, and queries that the
            project repeats (`repeat_share`, one in twenty), so there can be more than `asked`.
        dropped_episodes: episodes that left the buffer before any query could be drawn from them.
        dropped_segments: how many clips fit end to end into the dropped episodes.
        waiting_steps: steps in the buffer.
        problem: why nothing can be asked now; None if all is well.
    """

    asked: int
    answered: int
    dropped_episodes: int
    dropped_segments: int
    waiting_steps: int
    problem: str | None


RewardInUse = Callable[[], tuple[Any, int]]
"""Returns the reward in use, None before the first one, and its version."""


@final
class ProjectQueries:
    """Asks a project's people: samples segments from experience, pairs them, and sends queries.

    Attributes:
        buffer: experience that clips are cut from.
        script: answers instead of people; None if people answer.
        asked: queries that this run asked, including those before it was resumed.
        feedback: where queries go.
        in_use: returns the reward in use and its version.
    """

    def __init__(
        self,
        feedback: StoredFeedback,
        config: FeedbackConfig,
        sampler: PairSampler | None,
        teacher: Teacher | None,
        in_use: RewardInUse,
    ) -> None:
        asking, answering = np.random.default_rng(config.seed).spawn(2)
        self.buffer = ExperienceBuffer(
            config.buffer_steps, config.buffer_megabytes, config.segment_length
        )
        self.script = None if teacher is None else ScriptedAnswers(feedback, teacher, answering)
        self.asked = 0
        self.feedback = feedback
        self.in_use = in_use
        self._config = config
        self._sampler = sampler or build_sampler(config, lambda: in_use()[0], feedback.comparisons)
        self._rng = asking
        self._repetitions = RepetitionGuard(config)
        self._asked_by_others: int | None = None  # the first round counts again
        self._restored = False
        self._has_counted = False
        with suppress(StorageError):  # if the store is away, the first round counts
            self._asked_by_others = feedback.count_asked()

    def ask(self) -> str | None:
        """Ask all queries that are due; return the reason if the experience does not allow any."""
        due = self._queries_due()
        if due <= 0:
            return None
        config = self._config
        length = config.segment_length
        episodes = self.buffer.look()
        steps = self.buffer.steps_in
        if episodes is None or (config.short == "drop" and episodes.lengths.max() < length):
            if steps < TOO_SHORT_AFTER * length:
                return None
            return (
                f"episodes: expected some of at least {length} steps (segment_length), got only "
                'shorter ones. Choose shorter clips, or pass short="pad".'
            )
        self._repetitions.check(episodes, due, asked=self.asked + due, steps=steps)
        candidates = max(ceil(2 * due * config.oversampling), segments_wanted(self._sampler, due))
        sampled = sample_segments(episodes, candidates, length, self._rng, short=config.short)
        segments = distinct_clips(sampled)  # an agent that stands still repeats clips
        count = min(due, len(segments) * (len(segments) - 1) // 2)  # no pair twice
        if count:
            self.feedback.model_version = self.in_use()[1]
            # a sampler of the user's may return more
            pairs = self._sampler(segments, count, self._rng)[:count]
            newly_asked = self.feedback.ask_within(config.max_queries, segments, pairs)
            self.asked += newly_asked
            LOGGER.info("Asked %d queries, %d by now.", newly_asked, self.asked)
        return None

    def snapshot(self) -> dict[str, Any]:
        """Return the counts and generators after a round; queries and answers are in the store."""
        script = self.script
        return {
            "asked": self.asked,
            "asked_by_others": self._asked_by_others,
            "rng": deepcopy(self._rng),
            "answering": None if script is None else deepcopy(script.rng),
            "given": 0 if script is None else script.given,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from the snapshot of an earlier run of the same settings."""
        self.asked = int(snapshot["asked"])
        self._rng = snapshot["rng"]
        asked_by_others = snapshot["asked_by_others"]
        self._restored = asked_by_others is not None
        self._asked_by_others = asked_by_others
        if self.script is not None and snapshot["answering"] is not None:
            self.script.rng = snapshot["answering"]
            self.script.given = int(snapshot["given"])

    def count(self) -> None:
        """Count the project's queries, at the first call only.

        In a resumed run, queries that came after the snapshot count as this run's.
        """
        if self._has_counted:
            return
        in_all = self.feedback.count_asked()
        if self._restored and self._asked_by_others is not None:
            self.asked = max(self.asked, in_all - self._asked_by_others)
        self._asked_by_others = in_all - self.asked
        self._has_counted = True

    def _queries_due(self) -> int:
        """Return how many queries to ask now."""
        config = self._config
        affordable = self.buffer.steps_in // (config.ask_every or 2 * config.segment_length)
        due = affordable - self.asked
        if due > 0 and config.max_queries is not None:  # other programs may have asked meanwhile
            due = min(due, config.max_queries - self.feedback.count_asked(all_agents=True))
        return due if due <= 0 else min(due, config.max_pending - self.feedback.pending)


@final
class EpisodeDisplay:
    """Writes a whole episode into the store now and then, for the annotation page.

    Attributes:
        showing: whether to show episodes; false while a random policy acts.
    """

    def __init__(self, feedback: StoredFeedback, every: float | None) -> None:
        self.showing = True
        self._feedback = feedback
        self._interval = every
        self._next_episode: Episodes | None = None
        self._shown_at = -np.inf

    def see(self, episodes: Episodes) -> None:
        """Keep the last of these episodes as the one to show next."""
        if self.showing:
            self._next_episode = episodes[-1:]

    def show(self, *, steps: int, version: int) -> None:
        """Write the latest episode and the agent's step count into the store, if one is due."""
        episode = self._next_episode
        too_early = self._interval is None or time.monotonic() - self._shown_at < self._interval
        if episode is None or too_early:
            return
        columns = [
            *leaves(episode.observations),
            *([] if episode.states is None else [episode.states]),
        ]
        width = sum(leaf[0].nbytes for leaf in columns)
        length = min(episode.steps, max(int(EPISODE_MEGABYTES * 2**20 / max(width, 1)), 1))
        self._feedback.store.clips.put(
            self._feedback.project.id,
            cut(episode, np.array([episode.steps - length]), length),
            kind="episode",
            detail={"env_steps": steps, "reward_version": version},
        )
        self._shown_at = time.monotonic()
        if self._next_episode is episode:  # no newer one came meanwhile
            self._next_episode = None


@final
class QueryWorker:
    """A thread between an agent that acts and people who answer, with a bounded buffer.

    Whenever fewer queries are pending than wanted, the thread samples segments from the buffer,
    pairs them and asks. A full buffer drops its oldest experience and counts what it drops. While
    the store is locked or away, the agent acts on. The thread tries again, less and less often.

    Attributes:
        paused: while true, the thread takes in no experience and asks nothing.
    """

    def __init__(
        self,
        feedback: StoredFeedback,
        config: FeedbackConfig | None = None,
        *,
        sampler: PairSampler | None = None,
        teacher: Teacher | None = None,
        in_use: RewardInUse = lambda: (None, 0),
    ) -> None:
        config = config or FeedbackConfig()
        self.paused = False
        self._queries = ProjectQueries(feedback, config, sampler, teacher, in_use)
        self._display = EpisodeDisplay(feedback, config.episode_every)
        self._problem: str | None = None
        self._wake = threading.Condition()
        self._stopping = False
        self._rounds = 0
        self._hurry = 0  # rounds to make without a pause
        self._thread = threading.Thread(target=self._run, name="query-worker", daemon=True)
        # After the latest round without an error: its snapshot, the steps it saw, why it asked
        # nothing.
        self._after_round = self._queries.snapshot()
        self._steps_seen = 0
        self._lack: str | None = None

    @property
    def counts(self) -> QueryCounts:
        """Counts of experience and queries so far."""
        buffer = self._queries.buffer
        script = self._queries.script
        return QueryCounts(
            asked=self._queries.asked,
            answered=0 if script is None else script.given,
            dropped_episodes=buffer.dropped_episodes,
            dropped_segments=buffer.dropped_segments,
            waiting_steps=buffer.steps,
            problem=self._problem,
        )

    def put(self, episodes: Episodes) -> None:
        """Add experience; return at once."""
        if not self.paused:
            self._queries.buffer.put(episodes)
            self._display.see(episodes)
            self._start()

    @contextmanager
    def not_shown(self) -> Iterator[None]:
        """Ask about the experience of a block, but show none of its episodes."""
        self._display.showing = False
        try:
            yield
        finally:
            self._display.showing = True

    def snapshot(self) -> dict[str, Any]:
        """Return the buffer, and counts and generators after the latest round, for `restore`."""
        with self._wake:
            return {
                "buffer": self._queries.buffer.snapshot(),
                "paused": self.paused,
                **self._after_round,
            }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from the snapshot of an earlier run of the same settings.

        Call this before the first `put`. Queries that reached the project after the snapshot count
        as this run's. The run collects the experience after the snapshot again, and does not ask
        about it a second time.
        """
        self._queries.buffer.restore(snapshot["buffer"])
        self._queries.restore(snapshot)
        self.paused = bool(snapshot["paused"])
        self._after_round = self._queries.snapshot()

    def flush(self, seconds: float = 10.0) -> bool:
        """Ask all queries that are due; return whether they were on disk within `seconds`.

        Answers need no flush: they are on disk before they are acknowledged.
        """
        self._start()
        with self._wake:
            # the current round may have begun too early
            target_round = self._hurry = self._rounds + 2
            self._wake.notify_all()
            if not self._wake.wait_for(
                lambda: self._rounds >= target_round or self._stopping, seconds
            ):
                return False
            is_flushed = (
                self._rounds >= target_round or self._steps_seen == self._queries.buffer.steps_in
            )
        return is_flushed and self._problem in (None, self._lack)

    def close(self, seconds: float = 10.0) -> bool:
        """Stop asking, and return whether the thread has ended within `seconds`."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _start(self) -> None:
        if self._thread.ident is None and not self._stopping:
            self._thread.start()

    def _run(self) -> None:
        feedback = self._queries.feedback
        program = agent_program(feedback.agent)
        pause = LOOK_SECONDS
        with Heartbeat(feedback.store, feedback.project.id, program) as beats:
            while not self._stopping:
                pause = LOOK_SECONDS if self._try_round() else min(2 * pause, LONGEST_PAUSE)
                state = "healthy"
                if self._problem:
                    state = "failed"
                elif self.paused:
                    state = "paused"
                steps = self._queries.buffer.steps_in
                version = self._queries.in_use()[1]
                beats.report(state, **asdict(self.counts), steps=steps, reward_version=version)
                with self._wake:
                    self._rounds += 1
                    self._wake.notify_all()
                    if not self._stopping and self._rounds >= self._hurry:
                        self._wake.wait(pause)

    def _try_round(self) -> bool:
        """Make a round and return whether it had no error. The thread logs errors and goes on."""
        steps = self._queries.buffer.steps_in
        lack = None
        try:
            self._queries.count()
            if not self.paused:
                self._display.show(steps=steps, version=self._queries.in_use()[1])
                lack = self._queries.ask()
            if self._queries.script is not None:
                self._queries.script.answer()
        except Exception as error:  # a user's sampler or teacher may raise anything
            trace = not isinstance(error, StorageError)
            self._log(str(error) or type(error).__name__, exc_info=trace)
            return False
        self._log(lack)
        with self._wake:
            self._after_round = self._queries.snapshot()
            self._steps_seen = steps
            self._lack = lack
        return True

    def _log(self, problem: str | None, *, exc_info: bool = False) -> None:
        """Log once why nothing can be asked, and once when that is over."""
        if problem is not None and problem != self._problem:
            LOGGER.warning("No queries for now: %s", problem, exc_info=exc_info)
        if problem is None and self._problem is not None:
            LOGGER.warning("Queries are asked again.")
        self._problem = problem


def build_sampler(
    config: QueryConfig,
    in_use: Callable[[], Any],
    asked: Callable[[], Comparisons | None] | None = None,
) -> PairSampler:
    """Build the sampler that a config names.

    The sampler takes `scores` and `likelihood` of the reward in use. `asked` returns the earlier
    comparisons, from which a sampler may keep its distance.
    """

    def scores(segments: Segments) -> FloatArray | None:
        reward = in_use()
        # a single reward cannot disagree with itself
        several = isinstance(reward, Reward) and reward.members > 1
        is_usable = several or isinstance(reward, RewardFunction)
        return reward.scores(segments) if is_usable else None

    sampler: PairSampler = SAMPLERS.build(
        config.sampler,
        scorer=scores,
        acquisition=ACQUISITIONS.load(config.acquisition),
        oversampling=config.oversampling,
        likelihood=lambda: likelihood_of(in_use()),
        asked=asked,
    )
    return sampler
