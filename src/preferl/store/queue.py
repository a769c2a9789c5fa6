"""The queue: hands queries to people, takes their answers, and never takes an answer twice.

A query is leased to a person for a while, and returns to the queue if they leave. Every step is one
transaction. A query never has more leases than it needs answers. An answer is on disk before it is
acknowledged. The same answer sent twice is one answer.

Random choices (sides, repeats, known pairs) depend only on the query and the person, not on a
generator. A reloaded page therefore shows the same.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple, TypeVar, final

from sqlalchemy import Row, Select, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from preferl.errors import FeedbackError
from preferl.store import statements
from preferl.store.database import SLACK_SECONDS, Database, clock
from preferl.store.queries import RankedQueries
from preferl.store.schema import (
    ANSWERS,
    STRENGTHS,
    TASK,
    Annotator,
    Answer,
    Lease,
    Project,
    Query,
    Rating,
    preference_of,
)

AnswerOrRating = TypeVar("AnswerOrRating", Answer, Rating)

State = Literal["ready", "waiting", "done", "paused", "unqualified"]

MAX_LEASES: Final = 8  # most queries that a person holds: the one on screen and those fetched ahead
# answers before a query may be repeated, so that people do not remember it
REPEAT_AFTER: Final = 10
LEASE_SPACING: Final = (
    1e-6  # seconds between leases of a claim: the resolution of times since the epoch
)
LEASE_TRIES: Final = 5  # how often to choose again if somebody else took the query in between


class LeasedQuery(NamedTuple):
    """A query that a person holds: the clip on each side, and the token for the answer.

    `task` describes the task of both clips; "" if it is not known.
    """

    token: str
    query_id: int
    left: str
    right: str
    swapped: bool
    expires_at: float
    task: str


class Claim(NamedTuple):
    """The queries that a person holds, oldest first, or why there are none.

    The state is `"ready"` if there are queries. Otherwise it is `"waiting"` for more, `"done"`,
    `"paused"` by an admin, or `"unqualified"` because of the answers to known pairs. `ratings` is
    whether the project lets people rate the clips of these queries.
    """

    state: State
    queries: tuple[LeasedQuery, ...] = ()
    ratings: bool = False


class RecordedAnswer(NamedTuple):
    """An answer that is on disk; `new` is false if the answer was recorded before."""

    answer_id: int
    new: bool


@final
class Queue:
    """Leases queries and records answers. After an answer, `ranked` asks a list's next query."""

    def __init__(self, database: Database, ranked: RankedQueries) -> None:
        self._database = database
        self._ranked = ranked

    def claim(
        self,
        project_id: int,
        annotator_id: int,
        count: int = 2,
        *,
        undrawn: bool = False,
        answered: bool = False,
    ) -> Claim:
        """Lease queries to a person until they hold `count`, and return all that they hold.

        If a person claims again, they get the same queries with the same sides, so that a page can
        be reloaded. With `undrawn`, queries without videos are leased, too, for programs that
        answer by the numbers. With `answered`, the person gets queries that others have answered,
        even if these need no more answers, so that another annotator can be compared with them.
        `FeedbackError` is raised for a count out of range, or a person who may not answer.
        """
        if not 1 <= count <= MAX_LEASES:
            raise FeedbackError(f"count: expected 1 to {MAX_LEASES}, got {count}.")
        with self._database.write(durable=False) as session:
            choice = _Choice(session, project_id, annotator_id)
            if choice.project.paused:
                return Claim("paused")
            leases = choice.renewed()
            if not choice.qualified():
                return Claim("unqualified")
            while len(leases) < count:
                lease = choice.next(undrawn=undrawn, answered=answered)
                if lease is None:
                    break
                leases.append(lease)
            queries = tuple(_leased_query(lease, query) for lease, query in leases)
            if not queries:
                return Claim(choice.idle())
            return Claim("ready", queries, choice.project.ratings)

    def answer(
        self,
        annotator_id: int,
        token: str,
        key: str,
        kind: str,
        *,
        strength: str | None = None,
        response_ms: float | None = None,
        detail: dict[str, Any] | None = None,
    ) -> RecordedAnswer:
        """Record an answer; it is on disk when this returns.

        Args:
            annotator_id: who answers.
            token: token of the claimed query. It may have expired: an answer is never thrown away.
            key: names this answer, and is chosen by the sender. Sending it again changes nothing.
            kind: `"left"`, `"right"`, `"equal"`, `"cannot_tell"` or `"skip"`, as seen on screen.
            strength: `"slight"` or `"clear"`, or None.
            response_ms: milliseconds from the first picture to the answer.
            detail: further information, as JSON.

        Raises:
            FeedbackError: the token belongs to another person or was answered already, or the kind
                is unknown. Nothing is written then.
        """
        _check_answer(kind, strength, response_ms)
        with recording(self._database, Answer, annotator_id, key) as (session, earlier_answer):
            if (answer := earlier_answer) is None:
                lease = session.scalar(
                    statements.BY_TOKEN, {"token": token, "annotator_id": annotator_id}
                )
                if lease is None:
                    raise FeedbackError(
                        "query: expected a query that you hold, got one that you have answered "
                        "already, or somebody else's. Go on with the next."
                    )
                query = session.get_one(Query, lease.query_id, with_for_update=True)
                session.delete(lease)
                answer = record_answer(
                    session,
                    query,
                    lease,
                    key=key,
                    kind=kind,
                    preference=preference_of(kind, lease.swapped),
                    strength=strength,
                    response_ms=response_ms,
                    answered_at=clock(session),
                    detail=detail,
                )
        # Even if the answer is sent again: the first request may have been killed before this.
        self._ranked.extend(answer.project_id)
        return RecordedAnswer(answer.id, earlier_answer is None)

    def undo(self, annotator_id: int, key: str) -> LeasedQuery | None:
        """Undo a person's latest answer that counts, and lease them its query again.

        Earlier answers can then be undone one by one. Sending the same `key` again returns the same
        query. If there is nothing to undo, or if the person did not qualify, None is returned.
        """
        with recording(self._database, Answer, annotator_id, key) as (session, earlier_answer):
            if earlier_answer is not None:
                lease = session.get(Lease, (earlier_answer.query_id, annotator_id))
                query = session.get_one(Query, earlier_answer.query_id)
                return None if lease is None else _leased_query(lease, query)
            last_answer = session.scalar(statements.LAST_ANSWER, {"annotator_id": annotator_id})
            if (
                last_answer is None
                or not _Choice(session, last_answer.project_id, annotator_id).qualified()
            ):
                return None
            query = session.get_one(Query, last_answer.query_id, with_for_update=True)
            time = clock(session)
            seconds = session.get_one(Project, query.project_id).lease_seconds
            lease = session.get(Lease, (query.id, annotator_id)) or Lease(
                query_id=query.id, annotator_id=annotator_id, token=secrets.token_urlsafe(16)
            )
            # This query comes before all others that the person holds, as it did the first time.
            lease.granted_at = last_answer.granted_at or time
            lease.swapped = last_answer.swapped
            lease.renewed_at = time
            lease.expires_at = time + seconds
            session.add(lease)
            record_answer(session, query, last_answer, key=key, kind="retract", answered_at=time)
            return _leased_query(lease, query)

    def heartbeat(self, annotator_id: int, tokens: Sequence[str]) -> float | None:
        """Extend a person's leases; return when they expire now, or None if no lease is left."""
        expires_at = None
        with self._held_leases(annotator_id, tokens) as (time, leases):
            for lease, seconds in leases:
                if active_at(lease, time):
                    lease.renewed_at = time
                    lease.expires_at = time + seconds
                    expires_at = lease.expires_at
        return expires_at

    def release(self, annotator_id: int, tokens: Sequence[str]) -> int:
        """End these leases at once, for example when a page closes; return how many."""
        with self._held_leases(annotator_id, tokens) as (time, leases):
            for lease, _ in leases:
                lease.expires_at = time
        return len(leases)

    @contextmanager
    def _held_leases(
        self, annotator_id: int, tokens: Sequence[str]
    ) -> Iterator[tuple[float, list[tuple[Lease, float]]]]:
        """Open a transaction.

        Yield the time, and a person's leases with the seconds that each lasts.
        """
        leases = (
            select(Lease, Project.lease_seconds)
            .join(Query, Query.id == Lease.query_id)
            .join(Project, Project.id == Query.project_id)
            .where(Lease.annotator_id == annotator_id)
            .where(Lease.token.in_(list(tokens)[: 2 * MAX_LEASES]))
        )
        with self._database.write(durable=False) as session:
            session.scalar(statements.ALONE, {"annotator_id": annotator_id})
            yield clock(session), [(row[0], row[1]) for row in session.execute(leases)]


@contextmanager
def recording(
    database: Database, table: type[AnswerOrRating], annotator_id: int, key: str
) -> Iterator[tuple[Session, AnswerOrRating | None]]:
    """Open a transaction of one person; yield it and the row that already has this key, if any.

    Raises:
        FeedbackError: the key is too short, too long, or somebody else's.
    """
    if not 8 <= len(key) <= 100:
        raise FeedbackError(f"key: expected 8 to 100 letters, got {len(key)}.")
    try:
        with database.write() as session:
            session.scalar(statements.ALONE, {"annotator_id": annotator_id})
            yield session, _by_key(session, table, key, annotator_id)
    except IntegrityError:  # another request used this key at the same moment
        with database.read() as session:
            _by_key(session, table, key, annotator_id)
        raise


class _Choice:
    """Chooses, within a transaction, which queries a person keeps and gets next."""

    def __init__(self, session: Session, project_id: int, annotator_id: int) -> None:
        self.session = session
        self.annotator = annotator = answering_person(session, project_id, annotator_id)
        self.project = session.get_one(Project, project_id)
        self.at = clock(session)
        self._values = {"project_id": project_id, "annotator_id": annotator_id, "at": self.at}
        self._leased = 0
        settled = annotator.qualified_at is not None or annotator.role == "admin"
        self._qualifying = bool(self.project.qualification) and not settled

    def renewed(self) -> list[tuple[Lease, Query]]:
        """Renew the person's leases, oldest first, even expired ones that nobody else needs."""
        renewed_leases = []
        for lease, query in self.session.execute(statements.HOLDING, self._values).all():
            is_kept = active_at(lease, self.at) or query.purpose != "ask" or self._can_go_on(query)
            if query.cancelled_at is not None or not is_kept:
                self.session.delete(lease)
                continue
            lease.renewed_at = self.at
            lease.expires_at = self.at + self.project.lease_seconds
            renewed_leases.append((lease, query))
        self.session.flush()
        return renewed_leases

    def qualified(self) -> bool:
        """Whether the person may continue: admins always, others by answers to known pairs."""
        if not self._qualifying:
            return True
        required = self.project.qualification
        values = self._values | {"limit": required}
        known_answers = self.session.execute(statements.KNOWN_ANSWERED, values).all()
        if len(known_answers) < min(required, self._count(statements.KNOWN_PAIRS)):
            return True
        right_answers = sum(
            answer is not None and expected is not None and abs(answer - expected) < 0.5
            for answer, expected in known_answers
        )
        if right_answers < self.project.pass_share * len(known_answers):
            return False
        self.annotator.qualified_at = self.at
        self._qualifying = False
        self.session.flush()
        return True

    def next(self, *, undrawn: bool = False, answered: bool = False) -> tuple[Lease, Query] | None:
        """Lease another query and return it; None if there is none for this person now."""
        if self._qualifying:
            needs_known_pairs = self._count(statements.KNOWN_HAD) < self.project.qualification
            query = self._query(statements.UNSEEN_KNOWN) if needs_known_pairs else None
            return None if query is None else self._lease(query)
        if answered:
            query = self._query(statements.ANSWERED)
            return None if query is None else self._lease(query)
        for _ in range(LEASE_TRIES):
            query = (
                self._query(statements.OPEN_UNDRAWN)
                if undrawn
                else self._query(statements.OPEN) or self._query(statements.OPEN_SKIPPED)
            )
            if query is None or self._spent:
                return None
            query = self._known_or_repeat(undrawn=undrawn) or query
            if query.purpose != "ask" or self._has_room(query):
                return self._lease(query)
        return None

    def idle(self) -> State:
        """Return why there is no query: the project is done, or more queries will come."""
        budget = self.project.budget
        is_fully_asked = budget is not None and self._totals.wanted >= budget
        if self._spent or (is_fully_asked and not self._count(statements.UNSHOWN)):
            return "done"
        return "waiting"

    @property
    def _spent(self) -> bool:
        budget = self.project.budget
        return budget is not None and self._totals.given >= budget

    @cached_property
    def _totals(self) -> Row[int, int, int]:
        return self.session.execute(statements.TOTALS, self._values).one()

    def _count(self, statement: Select[Any], **more: Any) -> int:
        return int(self.session.scalar(statement, self._values | more) or 0)

    def _query(self, statement: Select[Query]) -> Query | None:
        return self.session.scalar(statement, self._values)

    def _has_room(self, query: Query) -> bool:
        """Whether a query needs more answers than others have leases on it; its row is locked."""
        return query.needed > self._count(statements.OUT, query_id=query.id)

    def _can_go_on(self, query: Query) -> bool:
        """Whether a person whose lease has expired may keep the query."""
        return bool(self._count(statements.LOCKED, query_id=query.id)) and self._has_room(query)

    def _known_or_repeat(self, *, undrawn: bool) -> Query | None:
        """Return a known pair or a repeat instead of the next query, if it is time.

        Otherwise None.
        """
        known_share = self.project.known_share
        repeat_share = self.project.repeat_share
        if not known_share and not repeat_share:
            return None
        occasion = (self.project.slug, self.annotator.id, self._count(statements.SEEN))
        number = draw(*occasion, "why")
        if number < known_share:
            return self._query(statements.UNSEEN_KNOWN)
        return self._repeat(occasion, undrawn) if number < known_share + repeat_share else None

    def _repeat(self, occasion: tuple[object, ...], undrawn: bool) -> Query | None:
        """Return a new query that repeats one of the person's own, perhaps with swapped sides."""
        values = self._values | {"limit": REPEAT_AFTER, "undrawn": undrawn}
        repeatable = self.session.execute(statements.REPEATABLE, values).all()
        if not repeatable:
            return None
        query_id, swapped = repeatable[int(draw(*occasion, "which") * len(repeatable))]
        original = self.session.get_one(Query, query_id)
        query = Query(
            project_id=self.project.id,
            first_clip=original.first_clip,
            second_clip=original.second_clip,
            purpose="repeat",
            repeat_of=original.id,
            for_annotator=self.annotator.id,
            swapped=swapped ^ (draw(*occasion, "sides") < self.project.swap_share),
            ready=True,
            asked_at=self.at,
            detail={TASK: original.task} if original.task else None,
        )
        self.session.add(query)
        self.session.flush()
        return query

    def _lease(self, query: Query) -> tuple[Lease, Query]:
        number = draw(self.project.slug, query.id, self.annotator.id, "sides")
        lease = Lease(
            query_id=query.id,
            annotator_id=self.annotator.id,
            token=secrets.token_urlsafe(16),
            swapped=number < 0.5 if query.swapped is None else query.swapped,
            # Lease times rise, so that a claim lists queries in the order of their leases. A more
            # urgent query never replaces the one on screen.
            granted_at=self.at + LEASE_SPACING * self._leased,
            renewed_at=self.at,
            expires_at=self.at + self.project.lease_seconds,
        )
        self._leased += 1
        self.session.add(lease)
        self.session.flush()
        return lease, query


def draw(*seed: object) -> float:
    """Return a number in [0, 1) that depends only on the seed, so that choices do not change."""
    digest = blake2b(repr(seed).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / 2**56


def active_at(lease: Lease, at: float) -> bool:
    """Whether a lease is valid; a lease from the future is not, as the clock was set back."""
    return lease.expires_at > at and lease.renewed_at < at + SLACK_SECONDS


def _check_answer(kind: str, strength: str | None, response_ms: float | None) -> None:
    """Raise `FeedbackError` for an unknown kind or strength, or an impossible response time."""
    if kind not in ANSWERS:
        raise FeedbackError(f"answer: expected one of {ANSWERS}, got {kind!r}.")
    if strength not in (None, *STRENGTHS):
        raise FeedbackError(f"strength: expected one of {STRENGTHS}, got {strength}.")
    if not 0 <= (response_ms or 0) < 1e9:
        raise FeedbackError(f"response_ms: expected milliseconds, got {response_ms}.")


def answering_person(session: Session, project_id: int, annotator_id: int) -> Annotator:
    """Lock and return a person's row; raise `FeedbackError` if they may not answer here."""
    annotator = session.get(Annotator, annotator_id, with_for_update=True)
    if annotator is None or annotator.project_id != project_id:
        raise _may_not_answer("nobody of this project")
    if annotator.disabled_at is not None:
        raise _may_not_answer("somebody whose access has ended")
    if annotator.role == "spectator":
        raise _may_not_answer("a spectator")
    return annotator


def _may_not_answer(person: str) -> FeedbackError:
    return FeedbackError(f"annotator: expected somebody who may answer here, got {person}.")


def _leased_query(lease: Lease, query: Query) -> LeasedQuery:
    left, right = query.sides(lease.swapped)
    return LeasedQuery(
        token=lease.token,
        query_id=query.id,
        left=left,
        right=right,
        swapped=lease.swapped,
        expires_at=lease.expires_at,
        task=query.task,
    )


def _by_key(
    session: Session, table: type[AnswerOrRating], key: str, annotator_id: int
) -> AnswerOrRating | None:
    row = session.scalar(select(table).where(table.key == key))
    if row is not None and row.annotator_id != annotator_id:
        raise FeedbackError("key: expected a key of yours, got somebody else's.")
    return row


def record_answer(
    session: Session, query: Query, shown_row: Lease | Answer, **columns: Any
) -> Answer:
    """Add an answer about the sides on screen, and update how many answers the query needs."""
    shared_columns = {
        "project_id": query.project_id,
        "query_id": query.id,
        "annotator_id": shown_row.annotator_id,
        "swapped": shown_row.swapped,
        "granted_at": shown_row.granted_at,
    }
    answer = Answer(**shared_columns | columns)
    session.add(answer)
    session.flush()
    if query.purpose == "ask":
        settled_answers = session.scalar(statements.SETTLED, {"query_id": query.id})
        query.needed = max(query.quorum - int(settled_answers or 0), 0)
        session.flush()
    return answer
