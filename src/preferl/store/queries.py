"""Queries: which clips people compare, for what purpose, and how they answered."""

from collections.abc import Sequence
from math import inf, nan
from typing import Any, Final, TypedDict, Unpack, final

import numpy as np
from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from preferl.data.episodes import Episodes
from preferl.data.segment_sampling import sample_segments
from preferl.data.segments import Segments
from preferl.errors import DataError, FeedbackError, require_in
from preferl.feedback.instant import check_pairs
from preferl.feedback.ranked_lists import RankedLists, shared_evenly
from preferl.shapes import FloatArray, IntArray
from preferl.store.clips import ClipStore, clip_ids, known_clips, locked_project
from preferl.store.database import Database, clock, now, rows_among
from preferl.store.quality.votes import Votes
from preferl.store.schema import COUNTED, Annotator, Answer, Clip, Project, Purpose, Query
from preferl.store.statements import KNOWN_PAIRS, LAST_TURN, LATEST, TURN_NOW

GREATEST_SPEED: Final = 2.0  # fastest playback on the page, as a multiple of the clips' own speed

# windows sampled for a known pair, of which the best and the worst are taken
WINDOWS_PER_PAIR: Final = 20


class QueryDetails(TypedDict, total=False):
    """Optional details of the pairs that a program asks about."""

    purpose: Purpose  # "ask" by default; "known" and "example" need `known`
    priority: float  # higher priorities come first, then older queries; 0 by default
    scores: FloatArray | None  # [P] scores by which the sampler chose the pairs, for the record
    # who asks; agents of one priority take turns, and unnamed ones count as one agent
    agent: str | None
    model_version: int | None  # version of the reward that chose the pairs; `cancel` needs it
    known: FloatArray | None  # [P] the right answers: probabilities that the first is preferred
    details: Sequence[dict[str, Any]] | None  # [P] further information about each pair
    most: int | None  # limit of the project's `"ask"` queries; pairs beyond it are left out


@final
class Queries:
    """Adds queries to a store, and reads them with their answers."""

    def __init__(self, database: Database, clips: ClipStore) -> None:
        self._database = database
        self._clips = clips

    def ask(
        self, project_id: int, segments: Segments, pairs: IntArray, **details: Unpack[QueryDetails]
    ) -> list[int]:
        """Store the clips of these pairs, then queries about them; return the queries' numbers.

        The `pairs` are `[P, 2]` rows of `segments`; `QueryDetails` lists the optional arguments.

        Raises:
            FeedbackError: a pair is not two rows of `segments` or compares a clip with itself, or
                arguments contradict each other. Nothing is stored then.
        """
        pairs = check_pairs(pairs, len(segments))
        clip_pairs = named_pairs(segments, pairs)
        _check(clip_pairs, **details)
        if clip_pairs:
            self._clips.put(project_id, segments.select(np.unique(pairs)))
        return self._ask(project_id, clip_pairs, **details)

    def ask_stored(
        self, project_id: int, pairs: Sequence[tuple[str, str]], **details: Unpack[QueryDetails]
    ) -> list[int]:
        """Store queries about clips that are already stored, given by name.

        See `ask` for the rest.
        """
        _check(pairs, **details)
        return self._ask(project_id, pairs, **details)

    def _ask(
        self, project_id: int, pairs: Sequence[tuple[str, str]], **details: Unpack[QueryDetails]
    ) -> list[int]:
        if not pairs:
            return []
        with self._database.write() as session:
            return _add(session, locked_project(session, project_id), pairs, **details)

    def cancel(self, project_id: int, *, before_version: int) -> int:
        """Cancel unanswered queries that older rewards chose; return how many."""
        is_answered = select(Answer.id).where(Answer.query_id == Query.id).exists()
        cancelled = (
            update(Query)
            .where(Query.project_id == project_id, Query.purpose == "ask")
            .where(Query.cancelled_at.is_(None), ~is_answered)
            .where(Query.model_version < before_version)
            .values(cancelled_at=now())
            .returning(Query.id)
            .execution_options(synchronize_session=False)
        )
        with self._database.write() as session:
            return len(session.execute(cancelled).all())

    def examples(self, project_id: int) -> list[Query]:
        """Return the example pairs of the instructions whose videos are ready."""
        examples = select(Query).where(Query.project_id == project_id, Query.purpose == "example")
        shown = examples.where(Query.cancelled_at.is_(None), Query.ready.is_(True))
        return self._database.all(shown.order_by(Query.id))

    def pairs(self, project_id: int, ids: Sequence[int]) -> list[tuple[str, str]]:
        """Return the first and second clip of each query, in the order of `ids`."""
        ids = [int(number) for number in ids]
        clips = select(Query.id, Query.first_clip, Query.second_clip)
        with self._database.read() as session:
            rows = rows_among(session, clips.where(Query.project_id == project_id), Query.id, ids)
            pairs = {number: (first, second) for number, first, second in rows}
        return [pairs[number] for number in ids]

    def query_clips(self, project_id: int, agent: str | None = None) -> list[tuple[int, str, str]]:
        """Return number, first and second clip of all queries to learn from, oldest first.

        With an `agent`, only that agent's queries are returned.
        """
        columns = select(Query.id, Query.first_clip, Query.second_clip)
        queries = columns.where(*_is_learned_from(project_id, agent)).order_by(Query.id)
        return [(number, first, second) for number, first, second in self._database.rows(queries)]

    def count(self, project_id: int, agent: str | None = None) -> int:
        """Return how many queries `query_clips` returns."""
        count = select(func.count(Query.id)).where(*_is_learned_from(project_id, agent))
        return int(self._database.first(count) or 0)

    def count_known(self, project_id: int) -> int:
        """Count the pairs with a known answer, which check the annotators."""
        return int(self._database.first(KNOWN_PAIRS, project_id=project_id) or 0)

    def votes(
        self, project_id: int, *, purposes: Sequence[Purpose] = ("ask", "known", "repeat")
    ) -> Votes:
        """Return the answers that count, oldest first: each person's latest answer to each query.

        A reward learns only from queries with the purpose `"ask"`.
        """
        people = select(Annotator).where(Annotator.project_id == project_id).order_by(Annotator.id)
        with self._database.read() as session:
            rows = session.execute(_counted(project_id, purposes)).all()
            # Names are read after the answers, so that everybody who has answered is among them.
            annotators = session.scalars(people).all()
            fps = session.get_one(Project, project_id).fps
        columns = np.array([*map(tuple, rows)], np.float64).reshape(-1, 9).T  # None is NaN
        query, annotator, preference, swapped, response, answered, known, repeat_of, steps = columns
        return Votes.of(
            query,
            np.searchsorted([person.id for person in annotators], annotator),
            preference,
            names=[person.name for person in annotators],
            is_model=[person.is_model for person in annotators],
            swapped=swapped,
            response_ms=response,
            answered_at=answered,
            known=known,
            repeat_of=np.nan_to_num(repeat_of, nan=-1),
            least_ms=1000 * (steps - 1) / (fps * GREATEST_SPEED),
        )


def _counted(project_id: int, purposes: Sequence[str]) -> Select[*tuple[Any, ...]]:
    """SQL: the answers that count, oldest first."""
    earlier_answer = aliased(Answer)
    first_clip = aliased(Clip)
    second_clip = aliased(Clip)
    has_earlier = exists().where(
        earlier_answer.query_id == Answer.query_id,
        earlier_answer.annotator_id == Answer.annotator_id,
        earlier_answer.id < Answer.id,
    )
    is_familiar = or_(
        has_earlier, Query.repeat_of.is_not(None)
    )  # the page does not ask to look again
    longest_steps = case(
        (first_clip.steps > second_clip.steps, first_clip.steps), else_=second_clip.steps
    )
    return (
        select(
            Answer.query_id,
            Answer.annotator_id,
            Answer.preference,
            Answer.swapped,
            Answer.response_ms,
            Answer.answered_at,
            Query.known,
            Query.repeat_of,
            case((is_familiar, None), else_=longest_steps),
        )
        .join(Query, Query.id == Answer.query_id)
        .join(
            first_clip, and_(first_clip.project_id == project_id, first_clip.id == Query.first_clip)
        )
        .join(
            second_clip,
            and_(second_clip.project_id == project_id, second_clip.id == Query.second_clip),
        )
        .where(Answer.project_id == project_id, Answer.kind.in_(COUNTED))
        .where(Query.purpose.in_(list(purposes)), LATEST)
        .order_by(Answer.id)
    )


def _is_learned_from(project_id: int, agent: str | None) -> list[ColumnElement[bool]]:
    """SQL conditions: the query is to learn from, and asked by `agent` if it is given."""
    asked = [Query.project_id == project_id, Query.purpose == "ask"]
    return asked if agent is None else [*asked, Query.agent == agent]


@final
class RankedQueries:
    """Queries that sort clips into lists. A list asks a query when its last one is settled.

    The next query depends only on the clips of a list and the current answers to its queries. Any
    program may therefore ask it, undone and corrected answers are respected, and only clips and
    queries are stored. See `preferl.feedback.ranked_lists`.
    """

    def __init__(self, database: Database, clips: ClipStore) -> None:
        self._database = database
        self._clips = clips
        self._lists: dict[int, tuple[list[str], IntArray, IntArray]] = {}

    def create(self, project_id: int, segments: Segments, rows: IntArray, queries: int) -> int:
        """Begin lists of clips, `[M, K]` rows of segments; return how many queries are asked now.

        `queries` is the number of queries that all lists may ask together.

        Raises:
            ConfigError: there are fewer queries than lists, or none.
            StorageError: the store cannot be written to.
        """
        shares = shared_evenly(queries, len(rows))
        self._lists.pop(project_id, None)
        for number, (clips, share) in enumerate(zip(rows, shares.tolist(), strict=True)):
            detail = {"list": number, "queries": share}
            self._clips.put(project_id, segments.select(clips), detail=detail)
        return self.extend(project_id)

    def extend(self, project_id: int) -> int:
        """Ask the next queries of lists whose earlier queries are settled; return how many."""
        names, rows, shares = self._listed_clips(project_id)
        if not names:
            return 0
        with self._database.write() as session:
            project = locked_project(session, project_id)
            answers: dict[tuple[str, str], float | None] = {}
            for first, second, is_open, mean in session.execute(_settled(project_id)):
                if is_open:
                    answers[first, second] = answers[second, first] = None
                else:
                    answer = nan if mean is None else float(mean)
                    answers[first, second] = answer
                    answers[second, first] = 1 - answer
            lists = RankedLists(rows, shares)
            new_pairs = list[tuple[str, str]]()
            while len(pairs := lists.pairs()):
                clip_pairs = [(names[first], names[second]) for first, second in pairs]
                new_pairs += [pair for pair in clip_pairs if pair not in answers]
                given_answers = [answers.get(pair) for pair in clip_pairs]
                settled = np.array([answer is not None for answer in given_answers])
                lists.add(np.array(given_answers, np.float64), settled)
            return len(_add(session, project, new_pairs))

    def _listed_clips(self, project_id: int) -> tuple[list[str], IntArray, IntArray]:
        """Return names of listed clips, `[M, K]` indices into them, and `[M]` queries per list."""
        if project_id not in self._lists:  # lists never change
            listed = select(Clip.id, Clip.detail, Clip.row).where(Clip.project_id == project_id)
            clips = sorted(
                (detail["list"], row, name, detail["queries"])
                for name, detail, row in self._database.rows(listed)
                if detail and "list" in detail
            )
            names = [name for _, _, name, _ in clips]
            number = np.array([number for number, *_ in clips], np.int64)
            share = np.array([share for *_, share in clips], np.int64)
            _, first, sizes = np.unique(number, return_index=True, return_counts=True)
            rows = first[:, None] + np.arange(sizes.min(initial=len(clips)))
            self._lists[project_id] = names, rows, share[first]
        return self._lists[project_id]


def _settled(project_id: int) -> Select[*tuple[Any, ...]]:
    """SQL: each query to learn from, with its clips, whether it is open, and its mean answer."""
    is_counted = and_(Answer.query_id == Query.id, Answer.kind.in_(COUNTED), LATEST)
    is_open = and_(Query.needed > 0, Query.cancelled_at.is_(None))
    return (
        select(Query.first_clip, Query.second_clip, is_open, func.avg(Answer.preference))
        .outerjoin(Answer, is_counted)
        .where(Query.project_id == project_id, Query.purpose == "ask")
        .group_by(Query.id)
    )


def _add(
    session: Session,
    project: Project,
    pairs: Sequence[tuple[str, str]],
    **details: Unpack[QueryDetails],
) -> list[int]:
    """Add queries to a project that this transaction has locked; return their numbers."""
    purpose = details.get("purpose", "ask")
    if (max_queries := details.get("most")) is not None:  # other programs may ask, too
        query_count = session.scalar(
            select(func.count(Query.id)).where(*_is_learned_from(project.id, None))
        )
        pairs = pairs[: max(max_queries - (query_count or 0), 0)]
    priority = details.get("priority", 0.0)
    agent = details.get("agent")
    turn = _next_turn(session, project.id, priority, agent) if purpose == "ask" else 0
    has_videos = known_clips(session, project.id, {name for pair in pairs for name in pair})
    quorum = project.quorum if purpose == "ask" else 0
    asked_at = clock(session)
    scores = details.get("scores")
    known = details.get("known")
    pair_details = details.get("details")
    queries = [
        Query(
            project_id=project.id,
            first_clip=first,
            second_clip=second,
            purpose=purpose,
            priority=priority,
            agent=agent,
            turn=turn + row,
            score=None if scores is None else float(scores[row]),
            model_version=details.get("model_version"),
            known=None if known is None else float(known[row]),
            quorum=quorum,
            needed=quorum,
            ready=has_videos.get(first, False) and has_videos.get(second, False),
            asked_at=asked_at,
            detail=None if pair_details is None else pair_details[row],
        )
        for row, (first, second) in enumerate(pairs)
    ]
    session.add_all(queries)
    session.flush()
    return [query.id for query in queries]


def _next_turn(session: Session, project_id: int, priority: float, agent: str | None) -> int:
    """Return the turn of the first of an agent's new queries.

    It follows the agent's last turn, and is never before the turn that people have reached. This is
    start-time fair queueing (Goyal, Vin and Cheng, 1996) with queries of equal length.
    """
    values = {"project_id": project_id, "priority": priority, "agent": agent}
    last_turn = session.scalar(LAST_TURN, values)
    present_turn = session.scalar(TURN_NOW, values)
    return max(0 if last_turn is None else last_turn + 1, present_turn or 0)


def named_pairs(segments: Segments, pairs: IntArray) -> list[tuple[str, str]]:
    """Return the names of the clips of each pair, which follow from their content."""
    rows, index_of_row = np.unique(pairs, return_inverse=True)
    names = clip_ids(segments.select(rows)) if len(rows) else []
    return [(names[first], names[second]) for first, second in index_of_row.reshape(pairs.shape)]


def _check(pairs: Sequence[tuple[str, str]], **details: Unpack[QueryDetails]) -> None:
    """Raise `FeedbackError` if details contradict each other or do not match the pairs."""
    purpose = details.get("purpose", "ask")
    known = details.get("known")
    if purpose not in ("ask", "known", "example"):
        raise FeedbackError(
            f"purpose: expected ask, known or example, got {purpose!r}. Repeats are planned by the "
            "queue."
        )
    if (known is None) != (purpose == "ask"):
        raise FeedbackError(
            "known answers: expected if the purpose is known or example, and only then, got "
            f"{'none' if known is None else 'some'} for {purpose}."
        )
    for name in ("known", "scores", "details"):
        column: Any = details.get(name)
        if column is not None and len(column) != len(pairs):
            raise FeedbackError(f"{name}: expected {len(pairs)}, one per pair, got {len(column)}.")
    if known is not None and not np.isin(known, (0.0, 0.5, 1.0)).all():
        raise FeedbackError(f"known answers: expected 0, 0.5 or 1, got {known}.")
    for first, second in pairs:
        if first == second:
            raise FeedbackError(
                f"pairs: expected two clips each, got clip {first} with itself. Windows with the "
                "same steps are one clip: pair those of `distinct_clips`."
            )


def known_pairs(
    episodes: Episodes, count: int, length: int, rng: np.random.Generator
) -> tuple[Segments, IntArray, FloatArray]:
    """Draw pairs of a window with a high return and one with a low return, in random order.

    The pairs check whether people understand the question. This works only if the recorded reward
    measures what the question asks for, so look at the pairs before you use them.

    Clips have `length` steps. The episodes hold the environment's rewards.

    Returns:
        `(segments, pairs [P, 2], known [P])`. `known` is 1 if the first clip is better, else 0.

    Raises:
        ConfigError: `count` is negative.
        DataError: no episode is long enough, or all returns are the same.

    >>> episodes = Episodes(np.zeros((9, 1)), np.zeros((9, 1)), np.arange(9.0), np.zeros(9, bool),
    ...                     np.zeros((1, 1)), np.array([9]))
    >>> segments, pairs, known = known_pairs(episodes, 1, 2, np.random.default_rng(0))
    >>> bool((segments.returns(pairs)[0, 0] > segments.returns(pairs)[0, 1]) == known[0])
    True
    """
    require_in("known pairs", count, 0, inf)
    segments = sample_segments(episodes, max(WINDOWS_PER_PAIR * count, 2), length, rng)
    returns = segments.returns()
    order = np.argsort(returns, kind="stable")
    worse = rng.permutation(order[:count])
    better = rng.permutation(order[len(order) - count :])
    if (returns[worse] >= returns[better]).any():
        raise DataError(
            "recorded rewards: expected clips with clearly different returns, for pairs with a "
            f"known answer, got returns from {returns.min():g} to {returns.max():g}. Ask without "
            "known pairs."
        )
    better_first = rng.random(count) < 0.5
    pairs = np.where(
        better_first[:, None], np.stack([better, worse], 1), np.stack([worse, better], 1)
    )
    return segments, pairs, better_first.astype(np.float64)
