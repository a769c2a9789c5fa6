"""Feedback by people: programs write queries into the store and read answers from it."""

import shlex
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, final

import numpy as np

from preferl.configs import without_password
from preferl.data.comparisons import Comparisons
from preferl.data.segments import Segments
from preferl.errors import ConfigError, FeedbackError, require_in, require_one_of
from preferl.feedback.instant import check_pairs
from preferl.printing import get_logger
from preferl.shapes import IntArray
from preferl.store.people import LONGEST_NAME, is_name
from preferl.store.progress import Totals
from preferl.store.quality.aggregation import CombineMethod, combine_answers
from preferl.store.quality.votes import Votes
from preferl.store.queries import named_pairs
from preferl.store.store import Store

LOGGER = get_logger(__name__)

AnnotatorKind = Literal["all", "people", "models"]
"""Whose answers count: those of everybody, or of one kind of annotator."""

POLL_SECONDS = 0.5


class Answered(NamedTuple):
    """All answers so far.

    Attributes:
        queries: `[P]`, the number of each comparison's query.
        comparisons: the answers.
        names: the annotators' names, by row of `comparisons.annotator`; empty if that is None.
    """

    queries: IntArray
    comparisons: Comparisons
    names: tuple[str, ...] = ()


@final
class StoredFeedback:
    """Asks people through a store, by the same protocol as `InstantFeedback`.

    Args:
        store: the store of queries and answers.
        project: number or name of the store's project; not needed if there is only one.
        combine: how several answers to one query become one preference and weight. `mean` averages
            them, and their number is the weight. `each` gives one comparison per answer with its
            annotator, as `RewardTrainerConfig.trust` needs.
        annotators: whose answers count: those of `"all"`, of `"people"` or of `"models"`.
        patience: seconds that `ask` waits for its queries to be answered. 0, the default, does not
            wait. Infinity waits for all answers, for loops that have no other experience. When the
            project's budget of answers is used up, `ask` does not wait, since nobody is asked.
        open_queries: queries that may still be open when a waiting `ask` returns. People then
            always have some queries while an agent learns, and these answers arrive in later
            rounds. When the queries need as many answers as the project's budget has, `ask` waits
            for all of them.
        on_wait: called about twice a second during a wait, with the number of missing answers. By
            default, the first wait logs how to open the annotation page.
        on_wait_end: called with that number at the end of such a wait.
        model_version: version of the reward that chooses queries; it is stored with each query, and
            may be changed.
        agent: name of the program that asks, if several programs ask in one project. People answer
            the programs in turn. Each program waits for its own queries and counts only those. A
            program that resumes keeps its name.

    Raises:
        ConfigError: `patience` or `open_queries` is negative, or `agent` is not a valid name.

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
        annotators: AnnotatorKind = "all",
        patience: float = 0.0,
        open_queries: int = 0,
        on_wait: Callable[[int], None] | None = None,
        on_wait_end: Callable[[int], None] | None = None,
        model_version: int | None = None,
        agent: str | None = None,
    ) -> None:
        if not (agent is None or is_name(agent)):
            raise ConfigError(
                f"agent: expected 1 to {LONGEST_NAME} letters that can be printed, got {agent!r}."
            )
        require_in("patience", patience, 0, float("inf"))
        self.store = store
        self.project = store.projects.only() if project is None else store.projects.get(project)
        self.combine = combine
        require_one_of("annotators", annotators, AnnotatorKind)
        self.annotators = annotators
        require_in("open_queries", open_queries, 0, float("inf"))
        self.patience = patience
        self.open_queries = open_queries
        self.on_wait = on_wait
        self.on_wait_end = on_wait_end
        self.model_version = model_version
        self.agent = agent
        self._cached: tuple[int, Answered] | None = None
        self._announced = False

    @property
    def revision(self) -> int:
        """Return the number of answers without skips, which is cheap to read."""
        return self.store.reports.revision(self.project.id)

    @property
    def pending(self) -> int:
        """Number of queries that still need answers."""
        return self.store.reports.open(self.project.id, self.agent)

    @property
    def newest_query(self) -> int:
        """Number of the latest query; 0 before the first one."""
        return max((query[0] for query in self.query_clips()), default=0)

    def query_clips(self) -> list[tuple[int, str, str]]:
        """Return number, first and second clip of all queries of this program, oldest first."""
        return self.store.queries.query_clips(self.project.id, self.agent)

    def count_asked(self, *, all_agents: bool = False) -> int:
        """Return how many queries this program has asked, or all programs of the project."""
        return self.store.queries.count(self.project.id, None if all_agents else self.agent)

    def ask(self, segments: Segments, pairs: IntArray) -> None:
        """Ask about pairs of segments: write their clips to disk, then store the queries.

        The `pairs` are `[P, 2]` rows of `segments`. A pair of two windows with the same steps is
        skipped, since its answer would mean nothing. People get queries with a higher
        `model_version` first, since these show what the agent does now. If agents have names, their
        queries take turns instead. `store.queries.ask(project.id, ...)` also takes scores,
        priorities and details. It raises an error if two windows have the same steps.

        Raises:
            FeedbackError: pairs are not rows of `segments`. Nothing is asked then.
            StorageError: the store cannot be written to. Nothing is asked then.
        """
        self.ask_within(None, segments, pairs)

    def ask_within(self, max_queries: int | None, segments: Segments, pairs: IntArray) -> int:
        """Ask like `ask`, up to `max_queries` in the project; return how many were asked.

        The limit counts the queries of all programs, which may ask at the same time. For errors,
        see `ask`.
        """
        count = self._store_queries(max_queries, segments, check_pairs(pairs, len(segments)))
        if self.patience and count:
            self.wait(self.patience, open_at_most=self._left_open())
        return count

    def _store_queries(self, max_queries: int | None, segments: Segments, pairs: IntArray) -> int:
        """Ask about the pairs whose clips differ, without waiting; return how many were asked."""
        is_distinct = np.array(
            [first != second for first, second in named_pairs(segments, pairs)], bool
        )
        # one row twice is left to `queries.ask`, which refuses it
        is_distinct |= pairs[:, 0] == pairs[:, 1]
        version = self.model_version
        # Newer rewards come first, unless other agents ask, which would then wait for ever.
        priority = float(version or 0) if self.agent is None else 0.0
        query_ids = self.store.queries.ask(
            self.project.id,
            segments,
            pairs[is_distinct],
            priority=priority,
            model_version=version,
            most=max_queries,
            agent=self.agent,
        )
        return len(query_ids)

    def ask_rest(self, segments: Segments, pairs: IntArray, *, since: int) -> None:
        """Ask the rest of a round's queries after a kill, then wait as `ask` does.

        Pairs that this round asked before the kill are not asked again. If the resumed program
        samples other pairs, it asks only as many as were missing. `since` is the number of the last
        query before this round. For errors, see `ask`.
        """
        pairs = check_pairs(pairs, len(segments))
        clips_asked = [
            (first, second) for number, first, second in self.query_clips() if number > since
        ]
        if clips_asked:
            is_missing = [pair not in clips_asked for pair in named_pairs(segments, pairs)]
            pairs = pairs[np.array(is_missing, bool)][: max(0, len(pairs) - len(clips_asked))]
        count = self._store_queries(None, segments, pairs)
        if (count or clips_asked) and self.patience:
            self.wait(self.patience, open_at_most=self._left_open())

    def wait(self, seconds: float, *, open_at_most: int = 0) -> int:
        """Wait until at most `open_at_most` queries are pending; return how many are pending.

        The wait ends after `seconds`. It also ends when the project's budget of answers is used up,
        since nobody is asked any more.
        """
        deadline = time.monotonic() + seconds
        waited = False
        while (pending := self.pending) > open_at_most and time.monotonic() < deadline:
            if self._totals().given >= self._budget():
                break
            waited = True
            (self.on_wait or self._announce)(pending)
            time.sleep(min(POLL_SECONDS, max(deadline - time.monotonic(), 0)))
        if waited and self.on_wait_end:
            self.on_wait_end(pending)
        return pending

    def _announce(self, _: int) -> None:
        """Log once that queries wait for people, and how to open the annotation page."""
        if self._announced:
            return
        self._announced = True
        database = self.store.database
        files = str(self.store.synced)
        location = [files] if database.is_sqlite else [str(database.url), "--files", files]
        command_line = (
            "preferl",
            "annotate",
            "serve",
            "--store",
            *location,
            "--project",
            self.project.slug,
        )
        command = without_password(shlex.join(command_line))
        LOGGER.warning("Queries wait for people. Open their page: %s", command)

    def _left_open(self) -> int:
        """Return how many queries a wait may leave open; 0 when the whole budget has been asked."""
        return 0 if self._totals().wanted >= self._budget() else self.open_queries

    def _budget(self) -> float:
        """Return the project's budget of answers.

        It is read again, since an admin may change it.
        """
        budget = self.store.projects.get(self.project.id).budget
        return float("inf") if budget is None else budget

    def _totals(self) -> Totals:
        return self.store.reports.totals(self.project.id)

    def comparisons(self) -> Comparisons:
        """Return all answers so far, oldest first; raise `FeedbackError` if there are none yet."""
        return self.answers().comparisons

    def answers(self) -> Answered:
        """Return all answers so far with their queries.

        The store is read only after new answers.
        """
        revision = self.revision
        if self._cached is None or self._cached[0] != revision:
            self._cached = (revision, self._read())
        return self._cached[1]

    @property
    def declined(self) -> int:
        """Return how many queries were answered only by people who could not tell."""
        votes = self._votes()
        _, preference, _ = combine_answers(votes, "mean")
        return int(np.isnan(preference).sum())

    def widget(self, name: str = "owner") -> Any:
        """Return a notebook widget in which the person `name` answers queries of this store.

        If the extra `notebook` is not installed, `MissingExtraError` is raised.
        """
        from preferl.store.widget import NotebookQueue, queue_widget

        return queue_widget(NotebookQueue(self.store, self.project, name))

    def _votes(self) -> Votes:
        """Return the answers to learn from."""
        votes = self.store.queries.votes(self.project.id, purposes=["ask"])
        if self.annotators == "all":
            return votes
        return votes[votes.by_model == (self.annotators == "models")]

    def _read(self) -> Answered:
        votes = self._votes()
        queries, preference, weight = combine_answers(votes, self.combine)
        decided = ~np.isnan(preference)
        one_per_answer = self.combine == "each"
        annotator = votes.annotator[~votes.is_repeat][decided] if one_per_answer else None
        queries = queries[decided]
        preference = preference[decided]
        weight = weight[decided]
        if not len(queries):
            raise FeedbackError(
                f"There are no answers yet: {self.declined} queries were declined and "
                f"{self.pending} wait for people. Open the page with `preferl annotate serve`."
            )
        # Comparisons are ordered by the first counted answer of their query, the oldest first.
        query_ids, first_answer = np.unique(votes.query, return_index=True)
        order = np.argsort(first_answer[np.searchsorted(query_ids, queries)], kind="stable")
        clip_ids = self.store.queries.pairs(self.project.id, queries[order].tolist())
        clips, rows = np.unique(np.array(clip_ids), return_inverse=True)
        comparisons = Comparisons(
            self.store.clips.segments(self.project.id, clips.tolist()),
            rows.reshape(-1, 2),
            preference[order],
            weight[order],
            None if annotator is None else annotator[order],
        )
        return Answered(queries[order], comparisons, votes.names if one_per_answer else ())
