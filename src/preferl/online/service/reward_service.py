"""The reward service: a program that waits for answers, fits a reward and publishes it."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, final

import numpy as np

from preferl.data.validation import TRAIN, validation_split
from preferl.errors import FeedbackError, PreferlError, StorageError
from preferl.evaluation.reward_report import predicted_preferences
from preferl.online.service.heartbeat import Heartbeat
from preferl.online.service.ongoing_fit import Fitted, OngoingFit, Spaces, spaces_of
from preferl.online.service.service_config import ServiceConfig
from preferl.printing import get_logger
from preferl.reporting import MetricSink, open_sinks, require_places
from preferl.runs.versioned import version_name, versions
from preferl.statistics import share_in_words
from preferl.store.feedback import Answered, StoredFeedback
from preferl.store.status import REWARD_SERVICE, FitMetrics, from_json, to_json
from preferl.store.store import Store
from preferl.threads import torch_threads
from preferl.training.publish import Publisher, read_spaces, read_version
from preferl.training.reward_function import RewardFunction

LOGGER = get_logger(__name__)

RETRIES: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds to wait after the first failure in a row, the second, and so on; then always the last."""

OnVersion = Callable[[int, dict[str, Any]], None]
"""Called with each published version and its metrics."""


def serve_reward(
    config: ServiceConfig,
    store: Store,
    project: int | str | None = None,
    *,
    stop: threading.Event | None = None,
    on_version: OnVersion | None = None,
    report_to: Sequence[str] = (),
) -> int:
    """Fit a reward to people's answers as they arrive and publish each version, until stopped.

    The service may be killed at any time: answers are in the store, and each version is complete
    and holds the trainer's state. If a disk is full or a database locked, the service reports this
    with its heartbeats and tries again. `project` is a number or a name; it may be left out if
    there is only one project. When `stop` is set, the service ends within an epoch. It returns the
    number of the latest version, or 0.

    Metrics of each version go to `report_to`, some of `jsonl`, `tensorboard` and `wandb`, in the
    folder of the rewards. Their step is the number of answers.

    Raises:
        ConfigError: `report_to` names an unknown place, or there is no such project.
        StorageError: another service publishes into the folder, or it cannot be written to.
    """
    require_places(report_to)
    feedback = StoredFeedback(store, project, combine=config.combine)
    stop = stop or threading.Event()
    times = {"every": config.beat_seconds, "stuck_after": config.stuck_after}
    beats = Heartbeat(store, feedback.project.id, REWARD_SERVICE, **times)
    publishing = Publisher(config.out, keep=config.keep)
    with torch_threads(config.fit_threads), publishing as publisher, beats:
        with closing(open_sinks(report_to, publisher.folder)) as sink:
            service = _Service(config, feedback, publisher, beats, stop, on_version, sink)
            try:
                service.run()
            except _StoppedError:
                LOGGER.info("Stopped during a fit; the next start of the service repeats it.")
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
    sink: MetricSink

    def __post_init__(self) -> None:
        self._project = self.feedback.project.id
        self._reports = self.feedback.store.reports
        self._ongoing_fit = OngoingFit(self.config, self._on_epoch)
        self._unpublished: Fitted | None = None
        self._announced = False
        self._predicted: dict[int, float] = {}  # for each query's number, from the last fit
        self._waits_since: float | None = None
        self.version = 0
        self._metrics = FitMetrics()
        self._spaces: Spaces | None = None
        self._resume()
        self._last_revision = self._metrics.revision

    def _resume(self) -> None:
        """Continue from the newest version that can be read."""
        folder = self.publisher.synced
        self._newest_at_start = max(
            versions(folder), default=0
        )  # it counts even if it cannot be read
        for number in reversed(versions(folder)):
            try:
                version = read_version(folder, number)
            except PreferlError as error:
                LOGGER.warning("Version %d is passed over: %s", number, error)
                continue
            self.version = version.number
            self._metrics = from_json(FitMetrics, version.metrics)
            self._spaces = spaces_of(version.reward)
            self._ongoing_fit.saved = (version.reward, folder.fetch(version_name(number)))
            LOGGER.info("Goes on from version %d in %s.", self.version, folder)
            return

    def run(self) -> None:
        """Look for answers, fit and publish until stopped."""
        failures = 0
        while not self.stop.is_set():
            try:
                self._check_and_fit()
                failures = 0
                wait = self.config.poll_seconds
            except PreferlError as error:
                wait = RETRIES[min(failures, len(RETRIES) - 1)]
                failures += 1
                LOGGER.warning("%s It is tried again in %g s.", error, wait)
                self.beats.report("failed", problem=str(error))
            self.stop.wait(wait)

    def _check_and_fit(self) -> None:
        """Publish or announce an unfinished version, and fit if there are enough new answers."""
        if self._unpublished is not None:
            self._publish(*self._unpublished)
        elif self.version and not self._announced:
            self._announce()
        # Count before reading the revision, so that the revision includes every counted answer.
        has_enough = self.version or self._reports.decided(self._project) >= self.config.min_answers
        revision = self.feedback.revision
        self._report_waiting(revision)
        agent = read_spaces(self.publisher.synced)
        spaces_differ = agent is not None and self._spaces is not None and agent != self._spaces
        if not spaces_differ:
            if revision == self._last_revision:
                return
            self._waits_since = self._waits_since or time.monotonic()
            has_few_new = abs(revision - self._metrics.revision) < self.config.min_new_answers
            if has_few_new and time.monotonic() - self._waits_since < self.config.max_wait:
                return
        if not has_enough:
            return
        self.beats.report("fitting")
        self._unpublished = self._fit_to_answers(revision, agent, spaces_differ=spaces_differ)
        self._last_revision = revision
        self._waits_since = None
        if self._unpublished is not None:
            self._publish(*self._unpublished)

    def _report_waiting(self, revision: int, **fit: Any) -> None:
        """Report the number of answers, or the revision, at which the next fit begins."""
        due_revision = self._metrics.revision + self.config.min_new_answers
        self.beats.report(
            "waiting",
            version=self.version,
            problem=None,
            behind=abs(revision - self._metrics.revision),
            looked_at=self._last_revision,
            first_at=self.config.min_answers,
            next_at=max(due_revision, self._last_revision + 1),
            **fit,
        )

    def _fit_to_answers(
        self, revision: int, agent: Spaces | None, *, spaces_differ: bool
    ) -> Fitted | None:
        """Fit to all answers; return None if there are too few, or no new ones since the last fit.

        With `spaces_differ`, the same answers are fitted again, with the agent's spaces.
        """
        try:
            answered = self.feedback.answers()
        except FeedbackError:
            return None
        digest = _digest(answered)
        if digest == self._metrics.data and not spaces_differ:
            return None
        if not self.version and len(answered.queries) < self.config.min_answers:
            return None
        # The split depends on all queries ever asked, so new answers cannot change it.
        queries = self.feedback.store.queries.query_clips(self._project)
        numbers = np.array([number for number, _, _ in queries], np.int64)
        split = validation_split(
            ((first, second) for _, first, second in queries), self.config.validation
        )
        answer_sets = np.array(split, np.int64)[np.searchsorted(numbers, answered.queries)]
        if not (answer_sets == TRAIN).any():
            return None
        reward, metrics = self._ongoing_fit.fit(answered, answer_sets, agent)
        probabilities = predicted_preferences(reward, answered.comparisons)
        self._predicted = dict(zip(answered.queries.tolist(), probabilities.tolist(), strict=True))
        return reward, replace(metrics, revision=revision, data=digest)

    def _publish(self, reward: RewardFunction, metrics: FitMetrics) -> None:
        """Publish a reward under a number that is new to folder and store, and announce it."""
        announced = (row.version for row in self._reports.rewards(self._project))
        in_folder = versions(self.publisher.synced)
        last_own = max(self._newest_at_start, self.version)
        newest_in_folder = max(in_folder, default=0)
        if newest_in_folder > last_own:
            raise StorageError(
                f"{self.publisher.synced}: expected version {last_own}, the last of this service, "
                f"as the newest, got version {newest_in_folder} of another service. Stop one of "
                "the two."
            )
        number = max([*announced, *in_folder], default=0) + 1
        published = to_json(metrics)
        self.publisher.publish(
            reward, version=number, metrics=published, write_extra=self._ongoing_fit.save
        )
        self.version = number
        self._metrics = metrics
        self._spaces = spaces_of(reward)
        self._unpublished = None
        self._announced = False
        held_out = "too few answers are held out to validate it"
        if metrics.accuracy is not None:
            interval = (metrics.low or 0.0, metrics.high or 1.0)
            share_text = share_in_words(
                metrics.accuracy, interval, metrics.decided, "validation answers"
            )
            held_out = f"accuracy {share_text}"
        LOGGER.info("Version %d from %d answers: %s.", number, metrics.answers, held_out)
        if self.on_version:
            self.on_version(self.version, published)
        self._announce()
        try:
            self.sink.log(_numbers(metrics) | {"reward/version": number}, metrics.answers)
        except OSError as error:  # such as a full disk; the version is published anyway
            LOGGER.warning("The metrics of version %d were not written: %s.", number, error)

    def _announce(self) -> None:
        """Announce the version in the store, once, and cancel queries of old rewards."""
        metrics = self._metrics
        if self.version not in {row.version for row in self._reports.rewards(self._project)}:
            low = metrics.low
            high = metrics.high
            self._reports.announce_reward(
                self._project,
                self.version,
                answers=metrics.answers,
                accuracy=metrics.accuracy,
                interval=None if low is None or high is None else (low, high),
                detail=to_json(metrics),
                predicted=self._predicted,
            )
        if self.config.cancel_after is not None:
            oldest = self.version - self.config.cancel_after
            queries = self.feedback.store.queries
            if cancelled := queries.cancel(self._project, before_version=oldest):
                LOGGER.info("Cancelled %d queries of rewards that are out of date.", cancelled)
        self._announced = True
        shown_metrics = ("answers", "accuracy", "decided", "seconds")
        fit = {name: getattr(metrics, name) for name in shown_metrics}
        self._report_waiting(self.feedback.revision, **fit)

    def _on_epoch(self) -> None:
        self.beats.pulse()
        if self.stop.is_set():
            raise _StoppedError


def _numbers(metrics: FitMetrics) -> dict[str, float]:
    """Return the known numbers of a fit, for a metric sink."""
    named = {
        "train_loss": metrics.train_loss,
        "train_accuracy": metrics.train_accuracy,
        "validation_loss": metrics.loss,
        "validation_accuracy": metrics.accuracy,
        "validation_accuracy_low": metrics.low,
        "validation_accuracy_high": metrics.high,
        "validation_answers": metrics.decided,
        "seconds": metrics.seconds,
    }
    return {f"reward/{name}": value for name, value in named.items() if value is not None}


def _digest(answered: Answered) -> str:
    """Return a digest of the answers that does not depend on their order."""
    order = np.argsort(answered.queries)
    columns = (answered.queries, answered.comparisons.preference, answered.comparisons.weight)
    content = b"".join(np.ascontiguousarray(column[order]).tobytes() for column in columns)
    return blake2b(content, digest_size=16).hexdigest()
