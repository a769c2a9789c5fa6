"""Wait for answers, fit, publish: the program that turns what people say into rewards."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from preferl.errors import FeedbackError, PreferlError
from preferl.online.heartbeat import Heartbeat
from preferl.online.ongoing_fit import Fitted, OngoingFit, Spaces
from preferl.online.service_config import ServiceConfig
from preferl.online.sides import TRAIN, sides
from preferl.shapes import IntArray
from preferl.store.feedback import Answered, StoredFeedback
from preferl.store.status import REWARD_SERVICE, FitMetrics, from_json, to_json
from preferl.store.store import Store
from preferl.threads import torch_threads
from preferl.training.publish import Publisher, Version, read_spaces, read_version
from preferl.training.reward_function import RewardFunction
from preferl.versioned import version_folder, versions

LOGGER = logging.getLogger(__name__)

RETRIES: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds to wait after the first, second, ... failure in a row; the last one stays."""

OnVersion = Callable[[int, dict[str, Any]], None]
"""Told of each version that is published, and its metrics."""


def serve_reward(
    config: ServiceConfig,
    store: Store,
    project: int | str | None = None,
    *,
    stop: threading.Event | None = None,
    on_version: OnVersion | None = None,
) -> int:
    """Fit a reward to people's answers as they arrive and publish each version, until stopped.

    It may be killed at any time: answers are in the store, and a version lies with all that it
    takes to go on from it, whole or not at all. What cannot be done now, because a disk is full
    or a database locked, is reported with its heartbeats and tried again.

    Args:
        config: what to fit, when, and where to publish.
        store: of the answers; stays open.
        project: number or name; may be left out where there is only one.
        stop: ends the service within an epoch once it is set; None serves until Ctrl-C.
        on_version: told of each version.

    Returns:
        The number of the latest version, 0 without any.

    Raises:
        StorageError: another service publishes into the folder, or it cannot be written to.
        FeedbackError: no such project.
    """
    feedback = StoredFeedback(store, project, combine=config.combine)
    stop = stop or threading.Event()
    about, stuck_after = (store, feedback.project.id, REWARD_SERVICE), config.stuck_after
    beats = Heartbeat(*about, every=config.beat_seconds, stuck_after=stuck_after)
    publishing = Publisher(config.out, keep=config.keep)
    with torch_threads(config.fit_threads), publishing as publisher, beats:
        service = _Service(config, feedback, publisher, beats, stop, on_version)
        try:
            service.run()
        except _StoppedError:
            LOGGER.info("Stopped during a fit, which the next start makes again.")
        return service.version


class _StoppedError(Exception):
    """The service was stopped during a fit."""


@final
@dataclass
class _Service:
    config: ServiceConfig
    feedback: StoredFeedback
    publisher: Publisher
    beats: Heartbeat
    stop: threading.Event
    on_version: OnVersion | None

    def __post_init__(self) -> None:
        self._project, self._reports = self.feedback.project.id, self.feedback.store.reports
        self._fit = OngoingFit(self.config, self._on_epoch)
        self._unpublished: Fitted | None = None
        self._announced = False
        self._failures = 0
        self._waits_since: float | None = None
        newest = _newest(self.config.out)
        self.version = 0 if newest is None else newest.number
        self._metrics = from_json(FitMetrics, {} if newest is None else newest.metrics)
        self._spaces = None if newest is None else _spaces_of(newest.reward)
        self._looked_at = self._metrics.revision
        if newest is not None:
            self._fit.resume(newest, version_folder(self.config.out, newest.number))
            LOGGER.info("Goes on from version %d in %s.", self.version, self.config.out)

    def run(self) -> None:
        """Take turns until stopped."""
        while not self.stop.is_set():
            try:
                self._turn()
                self._failures, wait = 0, self.config.poll_seconds
            except PreferlError as error:
                wait = RETRIES[min(self._failures, len(RETRIES) - 1)]
                self._failures += 1
                LOGGER.warning("%s It is tried again in %g s.", error, wait)
                self.beats.say("failed", problem=str(error))
            self.stop.wait(wait)

    def _turn(self) -> None:
        """Do what there is to do, the oldest first."""
        if self._unpublished is not None:
            self._publish(self._unpublished)
        if self.version and not self._announced:
            self._announce()
        revision = self.feedback.revision
        behind = self._behind(revision)
        self.beats.say("waiting", version=self.version, problem=None, **self._plans(behind))
        told = read_spaces(self.config.out)
        other = told is not None and self._spaces is not None and told != self._spaces
        if not other and (revision == self._looked_at or not self._is_due(behind)):
            return
        if not self.version and self._too_few():
            return
        self.beats.say("fitting")
        fitted = self._fitted(revision, told, again=other)
        self._looked_at, self._waits_since = revision, None
        if fitted is not None:
            self._unpublished = fitted
            self._publish(fitted)
            self._announce()

    def _behind(self, revision: int) -> int:
        return abs(revision - self._metrics.revision)

    def _plans(self, behind: int) -> dict[str, int]:
        """When it learns, for those who wait: after how many answers, at which revision."""
        due = self._metrics.revision + self.config.min_new_answers
        return {
            "behind": behind,
            "looked_at": self._looked_at,
            "first_at": self.config.min_answers,
            "next_at": max(due, self._looked_at + 1),
        }

    def _is_due(self, behind: int) -> bool:
        """Whether there are enough new answers, or some have waited for long enough."""
        if self._waits_since is None:
            self._waits_since = time.monotonic()
        waited = time.monotonic() - self._waits_since
        return behind >= self.config.min_new_answers or waited >= self.config.max_wait

    def _too_few(self) -> bool:
        return self.feedback.store.progress(self._project).answered < self.config.min_answers

    def _fitted(self, revision: int, told: Spaces | None, *, again: bool) -> Fitted | None:
        """A reward from all answers, or None where they are too few, or those of the last one.

        It is fitted `again` where an agent has since said that its spaces are others.
        """
        try:
            answered = self.feedback.answered()
        except FeedbackError:
            return None
        digest = _digest(answered)
        if digest == self._metrics.data and not again:
            return None
        if not self.version and len(answered.queries) < self.config.min_answers:
            return None
        side = self._sides(answered)
        if not (side == TRAIN).any():
            return None
        fitted = self._fit.fit(answered, side, told)
        return Fitted(fitted.reward, replace(fitted.metrics, revision=revision, data=digest))

    def _sides(self, answered: Answered) -> IntArray:
        """`[P]` decided by everything that was ever asked, so that answers cannot change it."""
        asked = self.feedback.store.questions.asked(self._project)
        numbers = np.array([number for number, _, _ in asked], np.int64)
        side = sides(((first, second) for _, first, second in asked), self.config.validation)
        return np.array(side, np.int64)[np.searchsorted(numbers, answered.queries)]

    def _publish(self, fitted: Fitted) -> None:
        """Publish under a number that neither the folder nor the store has seen."""
        numbers = [row.version for row in self._reports.rewards(self._project)]
        number = max([*numbers, *versions(self.config.out)], default=0) + 1
        metrics = to_json(fitted.metrics)
        self.version = self.publisher.publish(
            fitted.reward, version=number, metrics=metrics, beside=self._fit.save
        )
        self._metrics, self._unpublished, self._announced = fitted.metrics, None, False
        self._spaces = _spaces_of(fitted.reward)
        LOGGER.info("%s", worded(self.version, fitted.metrics))
        if self.on_version:
            self.on_version(self.version, metrics)

    def _announce(self) -> None:
        """Tell people of the version, unless that was done; and ask no more what is out of date."""
        metrics = self._metrics
        if self.version not in {row.version for row in self._reports.rewards(self._project)}:
            low, high = metrics.low, metrics.high
            self._reports.publish_reward(
                self._project,
                self.version,
                answers=metrics.answers,
                accuracy=metrics.accuracy,
                interval=None if low is None or high is None else (low, high),
                detail=to_json(metrics),
            )
        if self.config.cancel_after is not None:
            oldest = self.version - self.config.cancel_after
            cancelled = self.feedback.store.questions.cancel(self._project, before_version=oldest)
            if cancelled:
                LOGGER.info("%d questions of old rewards are asked no more.", cancelled)
        self._announced = True
        self.beats.say(
            "waiting",
            version=self.version,
            problem=None,
            answers=metrics.answers,
            accuracy=metrics.accuracy,
            judged=metrics.judged,
            seconds=metrics.seconds,
            **self._plans(self._behind(self.feedback.revision)),
        )

    def _on_epoch(self) -> None:
        self.beats.pulse()
        if self.stop.is_set():
            raise _StoppedError


def worded(version: int, metrics: FitMetrics) -> str:
    """One line about a version.

    >>> worded(3, FitMetrics(answers=57, accuracy=0.8, low=0.49, high=0.94, judged=10))
    'Version 3 from 57 answers: 80% right on 10 that were left out (49 to 94%).'
    """
    line = f"Version {version} from {metrics.answers} answers"
    if metrics.accuracy is None or metrics.low is None or metrics.high is None:
        return f"{line}; too few were left out to judge it."
    shown = f"{metrics.accuracy:.0%} right on {metrics.judged} that were left out"
    return f"{line}: {shown} ({100 * metrics.low:.0f} to {metrics.high:.0%})."


def _spaces_of(reward: RewardFunction) -> Spaces:
    return reward.observation_space, reward.action_space


def _newest(folder: Path) -> Version | None:
    """The newest version that can be read."""
    for number in reversed(versions(folder)):
        try:
            return read_version(folder, number)
        except PreferlError as error:
            LOGGER.warning("Version %d is passed over: %s", number, error)
    return None


def _digest(answered: Answered) -> str:
    """Tells one set of answers from another, in whatever order."""
    order = np.argsort(answered.queries)
    columns = (answered.queries, answered.comparisons.preference, answered.comparisons.weight)
    content = b"".join(np.ascontiguousarray(column[order]).tobytes() for column in columns)
    return blake2b(content, digest_size=16).hexdigest()
