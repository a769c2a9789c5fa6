"""Many rows at once: people, queries and answers that come from files rather than from a page."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import case, func, insert, literal, select, update
from sqlalchemy.orm import Session

from preferl.store.clips import MOST_PARAMETERS
from preferl.store.database import now
from preferl.store.schema import COUNTED, Annotator, Answer, Clip, Query
from preferl.store.statements import LATEST

AT_ONCE: Final = 2_000
"""Rows per statement that adds them."""


class Known(NamedTuple):
    """An answer that is in the store already."""

    project_id: int
    kind: str


def known_answers(session: Session, keys: Sequence[str]) -> dict[str, Known]:
    """Which of these keys are taken, by what."""
    found: dict[str, Known] = {}
    for some in _parts(keys, MOST_PARAMETERS):
        chosen = select(Answer.key, Answer.project_id, Answer.kind).where(Answer.key.in_(some))
        found |= {key: Known(project_id, kind) for key, project_id, kind in session.execute(chosen)}
    return found


def known_clips(session: Session, project_id: int, names: Iterable[str]) -> dict[str, bool]:
    """Which of these clips are stored, and whether each has a video."""
    found: dict[str, bool] = {}
    for some in _parts(sorted(set(names)), MOST_PARAMETERS):
        chosen = select(Clip.id, Clip.video).where(Clip.project_id == project_id, Clip.id.in_(some))
        found |= {name: video == "ready" for name, video in session.execute(chosen)}
    return found


def people_named(session: Session, project_id: int, names: Iterable[str]) -> dict[str, int]:
    """Numbers of these people; who is new has no link until they are invited."""
    chosen = select(Annotator.name, Annotator.id).where(Annotator.project_id == project_id)
    people = dict(session.execute(chosen).all())
    at = session.scalar(select(now()))
    for name in dict.fromkeys(names):
        if name not in people:
            nobody = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
            person = Annotator(
                project_id=project_id,
                name=name,
                role="annotator",
                secret_hash=nobody,
                created_at=at,
            )
            session.add(person)
            session.flush()
            people[name] = person.id
    return people


def add_queries(session: Session, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Add rows of queries with all their columns; their numbers, in this order."""
    numbers: list[int] = []
    for some in _parts(rows, AT_ONCE):
        added = insert(Query).returning(Query.id, sort_by_parameter_order=True)
        numbers += session.scalars(added, [dict(row) for row in some])
    return numbers


def add_answers(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows of answers with all their columns, in this order."""
    for some in _parts(rows, AT_ONCE):
        session.execute(insert(Answer), [dict(row) for row in some])


def recount(session: Session, queries: Iterable[int]) -> None:
    """Set how many answers these queries still need by the latest word of each person."""
    standing = (
        select(func.count(Answer.id))
        .where(Answer.query_id == Query.id, Answer.kind.in_(COUNTED), LATEST)
        .correlate(Query)
        .scalar_subquery()
    )
    left = Query.quorum - standing
    for some in _parts(sorted(set(queries)), MOST_PARAMETERS):
        session.execute(
            update(Query)
            .where(Query.id.in_(some), Query.purpose == "ask")
            .values(needed=case((left > 0, left), else_=literal(0)))
            .execution_options(synchronize_session=False)
        )


def _parts(rows: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
