"""Whose turn: hands queries to people, takes their answers, and never the same twice.

A query is leased to a person for a while and comes back if they leave. Every step is one
transaction: two people never hold more of a query than it needs, an answer is on disk before it is
acknowledged, and the same answer sent twice is one answer.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from preferl.errors import FeedbackError
from preferl.store import statements
from preferl.store.database import Database, clock
from preferl.store.schema import COUNTED, Answer, Lease, Project, Query
from preferl.store.turn import State, Turn, active_at

MOST_AT_ONCE: Final = 8
"""Questions that one person may hold: the one on screen and what is fetched ahead."""

STRENGTHS: Final = ("slight", "clear")
SAID: Final = (*COUNTED, "skip")


PREFERENCE: Final = {"left": 1.0, "right": 0.0, "equal": 0.5}


def preference_of(kind: str, swapped: bool) -> float | None:
    """The preference for the first clip that an answer about what was seen comes to.

    >>> preference_of("left", swapped=True), preference_of("skip", swapped=False)
    (0.0, None)
    """
    seen = PREFERENCE.get(kind)
    return seen if seen is None or not swapped else 1 - seen


class Question(NamedTuple):
    """A query with a person: what to show where, and the token to answer it with."""

    token: str
    query_id: int
    left: str
    right: str
    swapped: bool
    granted_at: float
    expires_at: float


@final
@dataclass(frozen=True)
class Claim:
    """What a person gets when they ask for work.

    Attributes:
        state: `"ready"` with questions; without any: `"waiting"` for more, `"done"`, `"paused"`
            by an admin, or `"unqualified"` by the answers to known pairs.
        questions: the ones they hold, oldest first.
    """

    state: State
    questions: tuple[Question, ...] = ()


class Recorded(NamedTuple):
    """An answer that is on disk; `new` is false if it had been there already."""

    answer_id: int
    new: bool


@final
class Queue:
    """Leases and answers of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(
        self, project_id: int, annotator_id: int, count: int = 2, *, undrawn: bool = False
    ) -> Claim:
        """The questions this person holds, filled up to `count`.

        Asking again returns the same ones with the same sides, so that a page can be reloaded.

        Args:
            project_id: where.
            annotator_id: who.
            count: at most so many.
            undrawn: also those without videos, for programs that answer by the numbers.

        Raises:
            FeedbackError: somebody who may not answer here, or a count out of range.
        """
        if not 1 <= count <= MOST_AT_ONCE:
            raise FeedbackError.mismatch("count", expected=f"1 to {MOST_AT_ONCE}", got=count)
        with self._database.write(durable=False) as session:
            turn = Turn.of(session, project_id, annotator_id)
            if turn.project.paused:
                return Claim("paused")
            held = turn.renewed()
            if not turn.qualified():
                return Claim("unqualified")
            while len(held) < count and (lease := turn.next(undrawn=undrawn)) is not None:
                held.append(lease)
            questions = tuple(_question(lease, query) for lease, query in held)
            return Claim("ready", questions) if questions else Claim(turn.idle())

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
    ) -> Recorded:
        """Record an answer; when this returns it is on disk.

        Args:
            annotator_id: who answers.
            token: of the question, as claimed. It may have expired meanwhile: work that is done
                is never thrown away.
            key: chosen by the sender for this answer; sending it again changes nothing.
            kind: `"left"`, `"right"`, `"equal"`, `"cannot_tell"` or `"skip"`, as seen on screen.
            strength: `"slight"` or `"clear"`, or None.
            response_ms: from the first picture to the answer.
            detail: anything else to remember, as JSON.

        Raises:
            FeedbackError: a token that is not this person's or was answered, or a kind that
                does not exist; nothing is written then.
        """
        _check(kind, key, strength, response_ms)
        try:
            with self._database.write() as session:
                _alone(session, annotator_id)
                known = _by_key(session, key, annotator_id)
                if known is not None:
                    return Recorded(known.id, False)
                about = {"token": token, "annotator_id": annotator_id}
                lease = session.scalar(statements.BY_TOKEN, about)
                if lease is None:
                    raise FeedbackError.mismatch(
                        "question",
                        expected="one that is with you",
                        got="one that you have answered already, or somebody else's",
                        fix="Go on with the next.",
                    )
                query = _locked(session, lease.query_id)
                answer = Answer(
                    project_id=query.project_id,
                    query_id=query.id,
                    annotator_id=annotator_id,
                    key=key,
                    kind=kind,
                    preference=preference_of(kind, lease.swapped),
                    strength=strength,
                    swapped=lease.swapped,
                    response_ms=response_ms,
                    granted_at=lease.granted_at,
                    answered_at=clock(session),
                    detail=detail,
                )
                session.add(answer)
                session.delete(lease)
                session.flush()
                _recount(session, query)
            return Recorded(answer.id, True)
        except IntegrityError:  # somebody else used this key at the same moment, and was first
            self._refuse_taken(key, annotator_id)
            raise

    def undo(self, annotator_id: int, key: str) -> Question | None:
        """Take back this person's latest answer that stands and hand the question to them again.

        Answers before it can be taken back in turn. Returns None when there is nothing to undo.

        Args:
            annotator_id: who.
            key: chosen by the sender; sending it again returns the same question.
        """
        _check_key(key)
        try:
            return self._undo(annotator_id, key)
        except IntegrityError:  # as above
            self._refuse_taken(key, annotator_id)
            raise

    def _undo(self, annotator_id: int, key: str) -> Question | None:
        with self._database.write() as session:
            _alone(session, annotator_id)
            known = _by_key(session, key, annotator_id)
            if known is not None:
                lease = session.get(Lease, (known.query_id, annotator_id))
                query = session.get_one(Query, known.query_id)
                return None if lease is None else _question(lease, query)
            latest = session.scalar(statements.LAST_SAID, {"annotator_id": annotator_id})
            if latest is None:
                return None
            query = _locked(session, latest.query_id)
            seconds = session.get_one(Project, query.project_id).lease_seconds
            at = clock(session)
            session.add(
                Answer(
                    project_id=query.project_id,
                    query_id=query.id,
                    annotator_id=annotator_id,
                    key=key,
                    kind="retract",
                    swapped=latest.swapped,
                    granted_at=latest.granted_at,
                    answered_at=at,
                )
            )
            lease = session.get(Lease, (query.id, annotator_id))
            if lease is None:
                lease = Lease(query_id=query.id, annotator_id=annotator_id)
                lease.token = secrets.token_urlsafe(16)
                session.add(lease)
            lease.swapped = latest.swapped
            # It goes before whatever else they hold, as it did when they first had it.
            lease.granted_at = at if latest.granted_at is None else latest.granted_at
            lease.renewed_at, lease.expires_at = at, at + seconds
            session.flush()
            _recount(session, query)
            return _question(lease, query)

    def heartbeat(self, annotator_id: int, tokens: Sequence[str]) -> float | None:
        """Keep questions for longer; returns when they expire now, None where none is left."""
        with self._database.write(durable=False) as session:
            _alone(session, annotator_id)
            at = clock(session)
            kept = None
            for lease in _leases(session, annotator_id, tokens):
                if active_at(lease, at):
                    query = session.get_one(Query, lease.query_id)
                    seconds = session.get_one(Project, query.project_id).lease_seconds
                    lease.renewed_at, lease.expires_at = at, at + seconds
                    kept = lease.expires_at
            return kept

    def release(self, annotator_id: int, tokens: Sequence[str]) -> int:
        """Let others have these questions at once, as when a page is closed; returns how many."""
        with self._database.write(durable=False) as session:
            _alone(session, annotator_id)
            at = clock(session)
            found = _leases(session, annotator_id, tokens)
            for lease in found:
                lease.expires_at = at
            return len(found)

    def _refuse_taken(self, key: str, annotator_id: int) -> None:
        with self._database.read() as session:
            _by_key(session, key, annotator_id)


def _alone(session: Session, annotator_id: int) -> None:
    """Other requests of this person wait until this one is over, so that none is done twice."""
    session.scalar(statements.ALONE, {"annotator_id": annotator_id})


def _question(lease: Lease, query: Query) -> Question:
    first, second = query.first_clip, query.second_clip
    left, right = (second, first) if lease.swapped else (first, second)
    return Question(
        lease.token, query.id, left, right, lease.swapped, lease.granted_at, lease.expires_at
    )


def _leases(session: Session, annotator_id: int, tokens: Sequence[str]) -> Sequence[Lease]:
    chosen = select(Lease).where(
        Lease.annotator_id == annotator_id, Lease.token.in_(list(tokens)[: 2 * MOST_AT_ONCE])
    )
    return session.scalars(chosen).all()


def _locked(session: Session, query_id: int) -> Query:
    return session.get_one(Query, query_id, with_for_update=True)


def _by_key(session: Session, key: str, annotator_id: int) -> Answer | None:
    found = session.scalar(statements.BY_KEY, {"key": key})
    if found is not None and found.annotator_id != annotator_id:
        raise FeedbackError.mismatch("key", expected="one of your own", got="somebody else's")
    return found


def _recount(session: Session, query: Query) -> None:
    """Set how many answers a query still needs by the latest word of each person."""
    if query.purpose != "ask":
        return
    standing = session.scalar(statements.STANDING, {"query_id": query.id})
    query.needed = max(query.quorum - int(standing or 0), 0)
    session.flush()


def _check(kind: str, key: str, strength: str | None, response_ms: float | None) -> None:
    if kind not in SAID:
        raise FeedbackError.mismatch("answer", expected=f"one of {SAID}", got=repr(kind))
    _check_key(key)
    if strength is not None and strength not in STRENGTHS:
        raise FeedbackError.mismatch("strength", expected=f"one of {STRENGTHS}", got=strength)
    if response_ms is not None and not 0 <= response_ms < 1e9:
        raise FeedbackError.mismatch("response_ms", expected="milliseconds", got=response_ms)


def _check_key(key: str) -> None:
    if not 8 <= len(key) <= 100:
        raise FeedbackError.mismatch("key", expected="8 to 100 letters", got=len(key))
