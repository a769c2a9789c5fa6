"""The queue's SQL statements; each is built once instead of for each answer.

Parameters: `project_id`, `annotator_id`, `query_id`; `at`, the time of the database; and `undrawn`,
whether queries without videos count.
"""

from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    Boolean,
    ColumnElement,
    Select,
    bindparam,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
)
from sqlalchemy.orm import aliased

from preferl.store.database import SLACK_SECONDS
from preferl.store.schema import COUNTED, DECIDING, Annotator, Answer, Clip, Lease, Query

PROJECT: Final[BindParameter[int]] = bindparam("project_id")
PERSON: Final[BindParameter[int]] = bindparam("annotator_id")
QUERY: Final[BindParameter[int]] = bindparam("query_id")
AT: Final[BindParameter[float]] = bindparam("at")
LIMIT: Final[BindParameter[int]] = bindparam("limit")

_later = aliased(Answer)
LATEST: Final = ~exists().where(
    _later.query_id == Answer.query_id,
    _later.annotator_id == Answer.annotator_id,
    _later.id > Answer.id,
)
"""SQL condition: the answer is the latest one of its person to its query."""

ACTIVE: Final = (Lease.expires_at > AT, Lease.renewed_at < AT + SLACK_SECONDS)
"""SQL condition: the lease is valid; one from the future is not, as the clock was set back."""

_ASKED: Final = (Query.project_id == PROJECT, Query.purpose == "ask")
_NOT_CANCELLED: Final = Query.cancelled_at.is_(None)
URGENT: Final = (Query.priority.desc(), Query.turn, Query.id)
"""The order of queries: most urgent first."""

ASKABLE: Final = (*_ASKED, _NOT_CANCELLED, Query.needed > literal_column("0"))
"""SQL condition: the query needs answers.

The zero is literal, since PostgreSQL cannot match the index of open queries with a parameter of a
prepared statement.
"""

KNOWN: Final = (Query.project_id == PROJECT, Query.purpose == "known", _NOT_CANCELLED)
HELD: Final = exists().where(Lease.query_id == Query.id, Lease.annotator_id == PERSON)
"""SQL condition: the person has a lease on the query, perhaps an expired one."""

_COUNTS: Final = (Answer.kind.in_(COUNTED), LATEST)
_DECIDES: Final = (Answer.kind.in_(DECIDING), LATEST)


def _answered(*kinds: str) -> ColumnElement[bool]:
    """SQL condition: the person's latest answer to the query is of one of these kinds."""
    return exists().where(
        Answer.query_id == Query.id, Answer.annotator_id == PERSON, Answer.kind.in_(kinds), LATEST
    )


def _open(
    seen: ColumnElement[bool], *shown: ColumnElement[bool], order: tuple[Any, ...] = ()
) -> Select[Query]:
    """SQL: the most urgent query that needs more answers than others hold it for; it is locked."""
    out = select(func.count()).where(Lease.query_id == Query.id, *ACTIVE).scalar_subquery()
    return (
        select(Query)
        .where(*ASKABLE, *shown, seen, ~HELD, out < Query.needed)
        .order_by(*order, *URGENT)
        .limit(1)
        .with_for_update(skip_locked=True, of=Query)
    )


ALONE: Final = select(Annotator.id).where(Annotator.id == PERSON).with_for_update()
"""Makes other requests of a person wait until this transaction is over."""

OPEN: Final = _open(~_answered("skip", *COUNTED), Query.ready.is_(True))
_latest = (
    select(func.max(Answer.id))
    .where(Answer.query_id == Query.id, Answer.annotator_id == PERSON)
    .scalar_subquery()
)
OPEN_SKIPPED: Final = _open(_answered("skip"), Query.ready.is_(True), order=(_latest,))
"""Pairs that were skipped longest ago come first, so that all of them return."""
OPEN_UNDRAWN: Final = _open(~_answered("skip", *COUNTED))
"""Open queries, with or without videos, for programs that answer by the numbers."""
ANSWERED: Final = (
    select(Query)
    .where(*_ASKED, Query.needed < Query.quorum, ~_answered("skip", *COUNTED), ~HELD)
    .order_by(Query.id)
    .limit(1)
)
"""The oldest query that others have answered and this person has not."""
LOCKED: Final = select(literal(1)).where(Query.id == QUERY).with_for_update(skip_locked=True)
"""1 if the query's row is locked; no row while another request chooses or answers the query."""
OUT: Final = select(func.count()).where(
    Lease.query_id == QUERY, Lease.annotator_id != PERSON, *ACTIVE
)
"""How many other people hold a query."""

HOLDING: Final = (
    select(Lease, Query)
    .join(Query)
    .where(Lease.annotator_id == PERSON, Query.project_id == PROJECT)
    .order_by(Lease.granted_at, Lease.query_id)
)
UNSEEN_KNOWN: Final = (
    select(Query)
    .where(*KNOWN, Query.ready.is_(True), ~_answered("skip", *COUNTED), ~HELD)
    .order_by(Query.id)
    .limit(1)
)
KNOWN_PAIRS: Final = select(func.count(Query.id)).where(*KNOWN)
KNOWN_HAD: Final = select(func.count(Query.id)).where(
    Query.project_id == PROJECT, Query.purpose == "known", _answered(*COUNTED) | HELD
)
KNOWN_ANSWERED: Final = (
    select(Answer.preference, Query.known)
    .join(Query)
    .where(Answer.annotator_id == PERSON, Query.purpose == "known", *_COUNTS)
    .order_by(Answer.id)
    .limit(LIMIT)
)
SEEN: Final = select(
    select(func.count(Answer.id)).where(Answer.annotator_id == PERSON).scalar_subquery()
    + select(func.count()).where(Lease.annotator_id == PERSON).scalar_subquery()
)
"""How many queries a person has had; random choices depend on it."""

_again = aliased(Query)
REPEATABLE: Final = (
    select(Answer.query_id, Answer.swapped)
    .join(Query)
    .where(Answer.annotator_id == PERSON, Answer.project_id == PROJECT)
    .where(Query.purpose == "ask", *_DECIDES)
    .where(or_(Query.ready, bindparam("undrawn", type_=Boolean())))
    .where(~exists().where(_again.repeat_of == Answer.query_id, _again.for_annotator == PERSON))
    .order_by(Answer.id.desc())
    .offset(LIMIT)
    .limit(100)
)
"""Answers that may be asked for again, without the newest `limit`."""


def _sum(column: Any, *where: ColumnElement[bool]) -> ColumnElement[Any]:
    total: Any = func.sum(column)
    return func.coalesce(total.filter(*where) if where else total, 0)


TOTALS: Final = select(
    _sum(Query.quorum - Query.needed).label("given"),
    _sum(Query.quorum, _NOT_CANCELLED).label("wanted"),
    func.count().filter(_NOT_CANCELLED, Query.needed > 0).label("open"),
).where(*_ASKED)
"""Answers that count, answers that queries need, and open queries, counted in one pass."""

DECIDED: Final = (
    select(func.count(func.distinct(Answer.query_id)))
    .join(Query)
    .where(Answer.project_id == PROJECT, Query.purpose == "ask", *_DECIDES)
)
UNDRAWN: Final = select(func.count(Query.id)).where(
    Query.project_id == PROJECT, Query.ready.is_(False), _NOT_CANCELLED
)
IMPORTED: Final = (
    select(func.count(Answer.id)).join(Query).where(*_ASKED, Query.quorum == 0, *_COUNTS)
)
"""Count the answers that were imported with their queries."""

FAILED: Final = select(func.count()).where(Clip.project_id == PROJECT, Clip.video == "failed")
ACTIVE_PEOPLE: Final = (
    select(Lease.annotator_id)
    .distinct()
    .join(Query)
    .where(Query.project_id == PROJECT, Lease.renewed_at > AT)
)
REVISION: Final = select(func.count(Answer.id)).where(
    Answer.project_id == PROJECT, Answer.kind != "skip"
)
"""Count the answers of all kinds except skips."""

UNSHOWN: Final = select(func.count(Query.id)).where(*ASKABLE, Query.ready.is_(False))

AGENT: Final[BindParameter[str]] = bindparam("agent")
PRIORITY: Final[BindParameter[float]] = bindparam("priority")
_ASKED_SO = (*_ASKED, Query.priority == PRIORITY)
LAST_TURN: Final = (
    select(Query.turn)
    .where(*_ASKED_SO, Query.agent.is_not_distinct_from(AGENT))
    .order_by(Query.turn.desc())
    .limit(1)
)
"""The last turn of an agent's queries."""

TURN_NOW: Final = (
    select(Query.turn)
    .where(*_ASKED_SO, Query.needed < Query.quorum)
    .order_by(Query.turn.desc())
    .limit(1)
)
"""The latest turn with an answered query."""

OF_AGENT: Final = select(func.count(Query.id)).where(*ASKABLE, Query.agent == AGENT)
"""How many queries of an agent still need answers."""

BY_TOKEN: Final = select(Lease).where(
    Lease.token == bindparam("token"), Lease.annotator_id == PERSON
)
SETTLED: Final = select(func.count()).where(Answer.query_id == QUERY, *_COUNTS)
"""How many people have settled a query for themselves."""

MINE: Final = select(func.count(Answer.id)).where(Answer.annotator_id == PERSON, *_COUNTS)
MINE_SINCE: Final = select(func.count(Answer.id), func.min(Answer.answered_at)).where(
    Answer.annotator_id == PERSON, Answer.answered_at > AT, *_COUNTS
)
LAST_ANSWER: Final = (
    select(Answer)
    .where(Answer.annotator_id == PERSON, Answer.kind != "retract", LATEST)
    .where(Answer.granted_at.is_not(None))
    .order_by(Answer.id.desc())
    .limit(1)
)
"""The answer that a person can undo: the latest to a query that the queue gave them.

Corrections and imported answers cannot be undone, but the page of answers can withdraw them.
"""
