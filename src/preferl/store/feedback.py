"""Feedback by people: questions go into the store, answers come out of it when they are there."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.segments import Segments
from preferl.errors import ConfigError, FeedbackError
from preferl.feedback.instant import check_pairs
from preferl.shapes import BoolArray, FloatArray, IntArray
from preferl.store.clips import clip_ids
from preferl.store.combine import CombineMethod, combine_answers
from preferl.store.store import Store

POLL_SECONDS = 0.5


class Answered(NamedTuple):
    """What people have said so far; `queries` is `[P]`, the number of each comparison's query."""

    queries: IntArray
    comparisons: Comparisons


@final
class StoredFeedback:
    """Asks people through a store; the same seam as `InstantFeedback`.

    Args:
        store: where queries and answers live.
        project: number or name of its project; may be left out where there is only one.
        combine: how several answers to one query become one preference and weight; `mean` keeps
            all that was said.
        patience: seconds that `ask` waits for its questions to be answered; 0, the default, asks
            and goes on, infinity waits for all of them, as a loop without other experience does.
        on_wait: told how many answers are still missing, about twice a second while waiting.
        model_version: of the reward that chooses questions, written beside them; may be changed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store.open(folder) as store:
    ...     project = store.projects.create("dots")
    ...     feedback = StoredFeedback(store, "dots")
    ...     block = np.arange(4.0)[:, None]
    ...     segments = Segments(block, block, np.zeros(4), np.array([0, 2]), np.array([2, 2]), 2)
    ...     feedback.ask(segments, np.array([[0, 1]]))
    ...     feedback.pending
    1
    """

    def __init__(
        self,
        store: Store,
        project: int | str | None = None,
        *,
        combine: CombineMethod = "mean",
        patience: float = 0.0,
        on_wait: Callable[[int], None] | None = None,
        model_version: int | None = None,
    ) -> None:
        if not patience >= 0:
            raise ConfigError.mismatch("patience", expected="at least 0 seconds", got=patience)
        self.store = store
        self.project = store.projects.only() if project is None else store.projects.get(project)
        self.combine = combine
        self.patience = patience
        self.on_wait = on_wait
        self.model_version = model_version
        self._known: tuple[int, Answered] | None = None

    @property
    def revision(self) -> int:
        """Grows with everything that anybody says; cheap to look at."""
        return self.store.live.revision(self.project.id)

    @property
    def pending(self) -> int:
        """Queries that still need answers."""
        return self.store.live.open(self.project.id)

    @property
    def newest(self) -> int:
        """Number of the query that was put last; 0 before the first."""
        return max((number for number, _, _ in self._asked()), default=0)

    def ask(
        self,
        segments: Segments,
        pairs: IntArray,
        *,
        scores: FloatArray | None = None,
        priority: float | None = None,
        details: list[dict[str, Any]] | None = None,
    ) -> None:
        """Put questions into the queue; their clips are on disk before.

        Two windows with the same steps are not compared: whatever people say says nothing.

        Args:
            segments: candidates.
            pairs: `[P, 2]` rows of `segments`.
            scores: `[P]` what made the sampler choose them.
            priority: higher ones come first. None goes by `model_version`: what a newer reward
                chose shows what the agent does now, and comes before what older ones left.
            details: `[P]` anything else to remember.

        Raises:
            FeedbackError: pairs that are not rows of `segments`; nothing is asked then.
            StorageError: the store cannot be written to; nothing is asked then.
        """
        pairs = check_pairs(pairs, len(segments))
        differ = _differ(segments, pairs)
        if not differ.all():
            pairs = pairs[differ]
            scores = None if scores is None else np.asarray(scores)[differ]
            details = details and [told for told, kept in zip(details, differ, strict=True) if kept]
        self.store.questions.ask(
            self.project.id,
            segments,
            pairs,
            priority=float(self.model_version or 0) if priority is None else priority,
            scores=scores,
            model_version=self.model_version,
            details=details,
        )
        if self.patience and len(pairs):
            self.wait(self.patience)

    def ask_rest(self, segments: Segments, pairs: IntArray, *, since: int) -> None:
        """Put those questions that were not put since a query; wait for all as `ask` does.

        A program that was killed and comes to the same questions again does not put them twice.
        Where it comes to others, it puts only as many as are missing.

        Args:
            segments: candidates.
            pairs: `[P, 2]` rows of `segments`.
            since: number of the newest query when the first of these were put.

        Raises:
            FeedbackError: pairs that are not rows of `segments`; nothing is asked then.
            StorageError: the store cannot be written to; nothing is asked then.
        """
        pairs = check_pairs(pairs, len(segments))
        put = [(first, second) for number, first, second in self._asked() if number > since]
        if not put:
            self.ask(segments, pairs)
            return
        known = set(put)
        fresh = np.array([pair not in known for pair in _named(segments, pairs)], bool)
        self.ask(segments, pairs[fresh][: max(0, len(pairs) - len(put))])
        if self.patience:
            self.wait(self.patience)

    def wait(self, seconds: float) -> int:
        """Wait until nothing is pending, at most so long; returns how many queries still are."""
        until = time.monotonic() + seconds
        while (pending := self.pending) and time.monotonic() < until:
            if self.on_wait is not None:
                self.on_wait(pending)
            time.sleep(min(POLL_SECONDS, max(until - time.monotonic(), 0)))
        return pending

    def comparisons(self) -> Comparisons:
        """Everything answered so far, oldest first; put together again only after new answers.

        Raises:
            FeedbackError: nothing has been answered yet.
        """
        return self.answered().comparisons

    def answered(self) -> Answered:
        """The same, with the number of each comparison's query; raises the same."""
        revision = self.revision
        if self._known is None or self._known[0] != revision:
            self._known = (revision, self._read())
        return self._known[1]

    def widget(self, name: str = "owner") -> Any:
        """The queue as a cell of a notebook, on this store: what people answer there counts here.

        Args:
            name: who answers.

        Raises:
            MissingExtraError: the extra `notebook` is not installed.
        """
        from preferl.store.widget import NotebookQueue, queue_widget

        return queue_widget(NotebookQueue(self.store, self.project, name))

    def _asked(self) -> list[tuple[int, str, str]]:
        return self.store.questions.asked(self.project.id)

    def _read(self) -> Answered:
        votes = self.store.questions.votes(self.project.id, purposes=["ask"])
        queries, preference, weight = combine_answers(votes, self.combine)
        decided = ~np.isnan(preference)
        queries, preference, weight = queries[decided], preference[decided], weight[decided]
        if not len(queries):
            raise FeedbackError(
                f"There are no answers yet: {len(np.unique(votes.query))} questions were declined "
                f"and {self.pending} wait for people. Open the page with `preferl annotate serve`."
            )
        # Oldest first: by the first answer that counts.
        asked, first = np.unique(votes.query, return_index=True)
        order = np.argsort(first[np.searchsorted(asked, queries)], kind="stable")
        named = self.store.questions.pairs(self.project.id, queries[order].tolist())
        clips = sorted({clip for pair in named for clip in pair})
        row = {clip: place for place, clip in enumerate(clips)}
        comparisons = Comparisons(
            self.store.clips.segments(self.project.id, clips),
            np.array([[row[first], row[second]] for first, second in named], np.int64),
            preference[order],
            weight[order],
        )
        return Answered(queries[order], comparisons)


def _named(segments: Segments, pairs: IntArray) -> list[tuple[str, str]]:
    """Names of the clips of each pair, by their content."""
    used, place = np.unique(pairs, return_inverse=True)
    names = clip_ids(segments.select(used))
    return [(names[first], names[second]) for first, second in place.reshape(pairs.shape)]


def _differ(segments: Segments, pairs: IntArray) -> BoolArray:
    """`[P]` where windows hold different steps; one beside itself is left for others to refuse."""
    differ = np.array([first != second for first, second in _named(segments, pairs)], bool)
    return np.asarray(differ | (pairs[:, 0] == pairs[:, 1]))
