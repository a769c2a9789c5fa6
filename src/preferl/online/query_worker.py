"""Finished experience becomes queries, in a thread that holds nobody up."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Final, final

import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.segments import cut, sample_segments
from preferl.errors import StorageError, mismatch
from preferl.feedback.likelihood import Likelihood, likelihood_of
from preferl.feedback.protocols import PairSampler, Teacher
from preferl.feedback.sampling import (
    MaybeScorer,
    segments_wanted,
)
from preferl.online.experience_buffer import ExperienceBuffer
from preferl.online.feedback_config import FeedbackConfig, QueryConfig
from preferl.online.feedback_core import FeedbackCore
from preferl.online.heartbeat import Heartbeat
from preferl.online.scripted_answers import ScriptedAnswers
from preferl.registry import ACQUISITIONS, SAMPLERS
from preferl.shapes import leaves
from preferl.store.clips import distinct_clips
from preferl.store.feedback import StoredFeedback

LOGGER = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""Between two looks at how many questions are open."""

LONGEST_PAUSE: Final = 30.0
"""Seconds between two tries while the store cannot be reached; each failure doubles the pause."""

TOO_SHORT_AFTER: Final = 20
"""Clips' worth of steps after which it is said that no episode is long enough for one."""

EPISODE_MEGABYTES: Final = 8.0
"""Of an episode that is shown as a whole; of a larger one, its end."""


@final
@dataclass(frozen=True)
class QueryCounts:
    """What became of experience so far.

    Attributes:
        asked: questions by this program.
        answered: answers that a script gave in this program, repeats included; people answer on the
            page.
        dropped_episodes: that left the buffer before any question was drawn with them in it.
        dropped_segments: whole clips in those.
        waiting_steps: steps in the buffer.
        problem: why nothing can be asked now; None if all is well.
    """

    asked: int
    answered: int
    dropped_episodes: int
    dropped_segments: int
    waiting_steps: int
    problem: str | None


@final
class QueryWorker:
    """A bounded buffer and one thread, between an agent that acts and people who answer.

    Whenever fewer questions are open than wanted, segments are sampled from the buffer, paired and
    asked. Experience may be left out: the oldest goes first when the buffer is full, and is
    counted. Answers never are. While the store is locked or away the agent goes on, and questions
    are tried again, less and less often.

    Args:
        feedback: where questions go.
        config: how many, of what.
        sampler: chooses pairs instead of the config's `sampler`.
        teacher: answers in people's place; None leaves that to people.
    """

    def __init__(
        self,
        feedback: StoredFeedback,
        config: FeedbackConfig | None = None,
        *,
        sampler: PairSampler | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        self.config = config or FeedbackConfig()
        self._feedback = feedback
        self._reward: FeedbackCore | None = None
        self._rng, answering = np.random.default_rng(self.config.seed).spawn(2)
        self._sampler = sampler or build_sampler(
            self.config,
            lambda segments: None if self._reward is None else self._reward.scores(segments),
            lambda: likelihood_of(self._reward),
        )
        self._script = None if teacher is None else ScriptedAnswers(feedback, teacher, answering)
        self._buffer = ExperienceBuffer(
            self.config.buffer_steps, self.config.buffer_megabytes, self.config.segment_length
        )
        self._asked = 0
        self._asked_before: int | None = None  # by earlier runs; not yet known
        self._latest: Episodes | None = None
        self._showing = True
        self._asked_in_all: int | None = None  # of the project, when a run that goes on was saved
        self._known_before = self._count_before()  # what is saved before the first round counts
        self._shown_at = -np.inf
        self._problem: str | None = None
        self._lack: str | None = None  # why nothing can be asked though all went well
        self._steps_seen = 0  # by the latest round
        self._paused = self._stopping = False
        self._wake = threading.Condition()
        self._rounds = self._hurry = 0
        self._thread: threading.Thread | None = None
        self._known = self._drawing()  # after the latest round

    def follow(self, reward: FeedbackCore) -> None:
        """Sample by this reward, and note with each question which version of it was in use."""
        self._reward = reward

    @property
    def counts(self) -> QueryCounts:
        """What became of experience so far."""
        return QueryCounts(
            asked=self._asked,
            answered=0 if self._script is None else self._script.given,
            dropped_episodes=self._buffer.dropped_episodes,
            dropped_segments=self._buffer.dropped_segments,
            waiting_steps=self._buffer.steps,
            problem=self._problem,
        )

    def put(self, episodes: Episodes) -> None:
        """Take in experience; returns at once."""
        if not self._paused:
            self._buffer.put(episodes)
            if self._showing:
                self._latest = episodes[-1:]
            self._start()

    @contextmanager
    def not_shown(self) -> Iterator[None]:
        """Ask about what is handed over inside the block, and show no episode of it to people."""
        self._showing = False
        try:
            yield
        finally:
            self._showing = True

    def pause(self) -> None:
        """Take in nothing and ask nothing new."""
        self._paused = True

    def resume(self) -> None:
        """Go on."""
        self._paused = False

    def snapshot(self) -> dict[str, Any]:
        """What waits, and where the latest round left its draws, for `restore`.

        Questions and answers are not in it: they are in the store.
        """
        with self._wake:
            return {"room": self._buffer.snapshot(), "paused": self._paused, **self._known}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from where an earlier run of the same settings stood; before the first `put`.

        What the project was asked after the snapshot counts as asked, so that experience which is
        lived through again is not asked about again.
        """
        self._buffer.restore(snapshot["room"])
        self._paused, self._asked = bool(snapshot["paused"]), int(snapshot["asked"])
        before = snapshot["asked_before"]
        self._known_before = None if before is None else int(before)
        self._asked_in_all = None if before is None else int(before) + self._asked
        self._rng = snapshot["rng"]
        if self._script is not None and snapshot["answering"] is not None:
            self._script.rng, self._script.given = snapshot["answering"], int(snapshot["given"])
        self._known = self._drawing()

    def flush(self, seconds: float = 10.0) -> bool:
        """Ask now what there is to ask; returns whether all of that was on disk in time.

        Answers need no such care: they are on disk before they are acknowledged.
        """
        self._start()
        until = time.monotonic() + seconds
        with self._wake:
            wanted = self._hurry = self._rounds + 2  # the round under way may have begun before
            self._wake.notify_all()
            while self._rounds < wanted and not self._stopping:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._wake.wait(left)
            done = self._rounds >= wanted or self._steps_seen == self._buffer.steps_in
        return done and self._problem in (None, self._lack)

    def close(self, seconds: float = 10.0) -> bool:
        """Stop asking, within so many seconds; returns whether the thread has ended by then."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _start(self) -> None:
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(target=self._run, name="query-worker", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        store, project = self._feedback.store, self._feedback.project.id
        pause = LOOK_SECONDS
        with Heartbeat(store, project, "agent") as beats:
            while not self._stopping:
                failed = not self._try_round()
                pause = min(2 * pause, LONGEST_PAUSE) if failed else LOOK_SECONDS
                beats.say(self._state(), **self._told())
                with self._wake:
                    self._rounds += 1
                    self._wake.notify_all()
                    if not self._stopping and self._rounds >= self._hurry:
                        self._wake.wait(pause)

    def _try_round(self) -> bool:
        """A round; whether it went well. Whatever goes wrong, the thread lives on and says so."""
        steps = self._buffer.steps_in
        try:
            self._round()
        except Exception as error:  # a sampler or teacher of one's own may raise anything
            known = isinstance(error, StorageError)
            self._say(str(error) or type(error).__name__, exc_info=not known)
            return False
        self._say(self._lack)
        with self._wake:
            self._known, self._steps_seen = self._drawing(), steps
        return True

    def _say(self, problem: str | None, *, exc_info: bool = False) -> None:
        """Say why nothing can be asked, and when that is over, once each."""
        if problem is not None and problem != self._problem:
            LOGGER.warning("No questions for now: %s", problem, exc_info=exc_info)
        if problem is None and self._problem is not None:
            LOGGER.warning("Questions are asked again.")
        self._problem = problem

    def _drawing(self) -> dict[str, Any]:
        """Where draws and counts stand between two rounds."""
        script = self._script
        return {
            "asked": self._asked,
            "asked_before": self._known_before
            if self._asked_before is None
            else self._asked_before,
            "rng": deepcopy(self._rng),
            "answering": None if script is None else deepcopy(script.rng),
            "given": 0 if script is None else script.given,
        }

    def _round(self) -> None:
        self._lack = None
        if self._asked_before is None:
            self._count_asked()
        if not self._paused:
            self._show_episode()
            wanted = self._wanted()
            if wanted > 0:
                self._ask(wanted)
        if self._script is not None:
            self._script.answer()

    def _count_asked(self) -> None:
        """Learn from the store what the project was asked by others than this program."""
        in_all = self._count_all()
        if self._asked_in_all is not None:
            self._asked += max(in_all - self._asked_in_all, 0)
        self._asked_before = in_all - self._asked

    def _count_all(self) -> int:
        return len(self._feedback.store.questions.asked(self._feedback.project.id))

    def _count_before(self) -> int | None:
        try:
            return self._count_all()
        except StorageError:  # the first round counts
            return None

    def _told(self) -> dict[str, Any]:
        """What people may want to know of the agent."""
        version = 0 if self._reward is None else self._reward.version
        return asdict(self.counts) | {"steps": self._buffer.steps_in, "reward_version": version}

    def _state(self) -> str:
        return "failed" if self._problem else "paused" if self._paused else "healthy"

    def _wanted(self) -> int:
        """How many questions to ask now."""
        config, feedback = self.config, self._feedback
        affordable = self._buffer.steps_in // (config.ask_every or 2 * config.segment_length)
        if config.max_questions is not None:
            before = self._asked_before or 0
            affordable = min(affordable, config.max_questions - before)
        wanted = affordable - self._asked
        return wanted if wanted <= 0 else min(wanted, config.max_pending - feedback.pending)

    def _ask(self, count: int) -> None:
        episodes = self._buffer.look()
        config = self.config
        if episodes is None or (
            config.short == "drop" and episodes.lengths.max() < config.segment_length
        ):
            if self._buffer.steps_in >= TOO_SHORT_AFTER * config.segment_length:
                self._lack = mismatch(
                    "episodes",
                    expected=f"some of at least {config.segment_length} steps (segment_length)",
                    got="shorter ones alone",
                    fix='Choose shorter clips, or pass short="pad".',
                )
            return
        drawn = sample_segments(
            episodes,
            max(
                ceil(2 * count * config.oversampling),  # of which some clips may be alike
                segments_wanted(self._sampler, count),
            ),
            config.segment_length,
            self._rng,
            short=config.short,
        )
        segments = distinct_clips(drawn)  # an agent that stands still does the same again
        count = min(count, len(segments) * (len(segments) - 1) // 2)  # no pair twice
        if count:
            self._feedback.model_version = None if self._reward is None else self._reward.version
            self._feedback.ask(segments, self._sampler(segments, count, self._rng))
            self._asked += count
            LOGGER.info("Asked %d questions, %d by now.", count, self._asked)

    def _show_episode(self) -> None:
        """Keep the latest episode whole now and then, for the page."""
        every, latest = self.config.episode_every, self._latest
        if every is None or latest is None or time.monotonic() - self._shown_at < every:
            return
        width = sum(leaf[0].nbytes for leaf in leaves(latest.observations))
        length = min(latest.steps, max(int(EPISODE_MEGABYTES * 2**20 / max(width, 1)), 1))
        self._feedback.store.clips.put(
            self._feedback.project.id,
            cut(latest, np.array([latest.steps - length]), length),
            kind="episode",
            detail={
                "env_steps": self._buffer.steps_in,
                "reward_version": 0 if self._reward is None else self._reward.version,
            },
        )
        self._shown_at, self._latest = time.monotonic(), None


def build_sampler(
    config: QueryConfig, scores: MaybeScorer, likelihood: Callable[[], Likelihood]
) -> PairSampler:
    """The sampler that a config names.

    Args:
        config: of what is asked about.
        scores: of segments by the reward in use; None before the first.
        likelihood: of that reward.
    """
    sampler: PairSampler = SAMPLERS.build(
        config.sampler,
        scorer=scores,
        acquisition=ACQUISITIONS.load(config.acquisition),
        oversampling=config.oversampling,
        likelihood=likelihood,
    )
    return sampler


Handover, HandoverCounts = QueryWorker, QueryCounts  # former names
