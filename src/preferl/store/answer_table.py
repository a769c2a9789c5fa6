"""The table of answers as it leaves a store and comes back: columns, checks, and rows of a store.

One row for each answer that was ever given, also those that were taken back or changed since.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from sqlalchemy import case, func, insert, literal, select, update
from sqlalchemy.orm import Session

from preferl.store.clips import CLIP_ID, known_clips
from preferl.store.database import MOST_PARAMETERS, now, rows_among
from preferl.store.people import LONGEST_NAME, is_name, looks_like_owner
from preferl.store.schema import (
    COUNTED,
    KINDS,
    STRENGTHS,
    Annotator,
    Answer,
    Project,
    Query,
    preference_of,
)
from preferl.store.statements import LATEST
from preferl.store.tables import Cell, cell_of, read_table, wrong_cell

COLUMNS: Final[Mapping[str, Cell]] = {
    "project": "text",
    "query": "text",
    "purpose": "text",
    "first_clip": "text",
    "second_clip": "text",
    "first_episode": "whole",
    "first_step": "whole",
    "second_episode": "whole",
    "second_step": "whole",
    "annotator": "text",
    "kind": "text",
    "preference": "number",
    "strength": "text",
    "counts": "flag",
    "swapped": "flag",
    "left_clip": "text",
    "right_clip": "text",
    "response_ms": "number",
    "granted": "text",
    "answered": "text",
    "granted_at": "number",
    "answered_at": "number",
    "key": "text",
    "detail": "json",
    "repeat_of": "text",
    "known": "number",
    "quorum": "whole",
    "priority": "number",
    "score": "number",
    "model_version": "whole",
    "asked_at": "number",
    "query_detail": "json",
}
"""Names and what they hold, in order."""

NEEDED: Final = (
    *("query", "purpose", "first_clip", "second_clip", "annotator", "kind", "swapped"),
    *("answered_at", "key", "quorum", "priority", "asked_at"),
)
"""Columns without which a row says nothing."""

OF_QUERY: Final = (
    *("purpose", "first_clip", "second_clip", "repeat_of", "known", "quorum", "priority", "score"),
    *("model_version", "asked_at", "query_detail"),
)
"""Columns that are the same in all rows of a query."""

OF_ANSWER: Final = (
    *("key", "kind", "preference", "strength", "swapped", "response_ms"),
    *("granted_at", "answered_at", "detail"),
)
"""Columns of an answer as they are in the store."""

EXPORTED_AS: Final = "exported_as"
"""Where the detail of a query that came from elsewhere keeps the name it had there."""

ASKED: Final = ("ask", "known", "repeat")
QUERY_NAME: Final = re.compile(r"[0-9]+-[0-9a-f]{8}")
LATEST_TIME: Final = 253_402_300_799.0
"""The end of the year 9999, after which there are no dates."""


def query_name(project: Project, number: int, detail: Mapping[str, Any] | None) -> str:
    """A name that a query keeps in every store it is carried to: its number and where it began."""
    carried = (detail or {}).get(EXPORTED_AS)
    return str(carried) if carried else f"{number}-{birthplace(project)}"


def birthplace(project: Project) -> str:
    """Tells queries of this project from those that were carried here."""
    told = f"{project.slug} {project.created_at!r}".encode()
    return blake2b(told, digest_size=4).hexdigest()


def timestamp(seconds: float | None) -> str | None:
    """Seconds since the epoch in words, as ISO 8601 has it, in UTC.

    >>> timestamp(0.5)
    '1970-01-01T00:00:00.500+00:00'
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def checked(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A row that was read, with every cell of its kind and the cells going together.

    Args:
        raw: as it was read; columns that are not needed may be missing, others are left out.
        where: file and row, for errors.

    Raises:
        DataError: naming file, row and column.
    """
    row = {name: cell_of(raw, name, kind, where) for name, kind in COLUMNS.items()}
    for name in NEEDED:
        if row[name] is None:
            raise wrong_cell(where, name, "a value", "none")
    preference = preference_of(row["kind"], row["swapped"])
    sides = row["first_clip"], row["second_clip"]
    left, right = sides[::-1] if row["swapped"] else sides
    purpose = row["purpose"]
    rules = {
        "query": (QUERY_NAME.fullmatch(row["query"]), "a number, a hyphen and 8 digits of hex"),
        "purpose": (purpose in ASKED, f"one of {', '.join(ASKED)}"),
        "first_clip": (CLIP_ID.fullmatch(sides[0]), "32 digits of hex"),
        "second_clip": (CLIP_ID.fullmatch(sides[1]), "32 digits of hex"),
        "annotator": (is_name(row["annotator"]), f"a name of 1 to {LONGEST_NAME} letters"),
        "kind": (row["kind"] in KINDS, f"one of {', '.join(KINDS)}"),
        "preference": (row["preference"] == preference, f"{preference}, by kind and swapped"),
        "strength": (row["strength"] in (None, *STRENGTHS), f"one of {STRENGTHS}, or nothing"),
        "left_clip": (row["left_clip"] in (None, left), f"{left}, by swapped"),
        "right_clip": (row["right_clip"] in (None, right), f"{right}, by swapped"),
        "response_ms": (_within(row["response_ms"], 1e9), "0 to 1e9 milliseconds"),
        "granted_at": (_within(row["granted_at"], LATEST_TIME), "seconds since the epoch"),
        "answered_at": (_within(row["answered_at"], LATEST_TIME), "seconds since the epoch"),
        "asked_at": (_within(row["asked_at"], LATEST_TIME), "seconds since the epoch"),
        "key": (8 <= len(row["key"]) <= 100, "8 to 100 letters"),
        "repeat_of": (
            (row["repeat_of"] is None) == (purpose != "repeat"),
            "the name of a query for repeats, and only for them",
        ),
        "known": (
            row["known"] in ((0.0, 0.5, 1.0) if purpose == "known" else (None,)),
            "0, 0.5 or 1 for purpose known, and nothing for others",
        ),
        "quorum": (0 <= row["quorum"] <= 10_000, "0 to 10000"),
    }
    for name, (right_so, expected) in rules.items():
        if not right_so:
            raise wrong_cell(where, name, expected, repr(row[name]))
    return row


def _within(value: float | None, most: float) -> bool:
    return value is None or 0 <= value <= most


def read_answers(
    path: Path, wanted: str | None, *, owner: str | None = None, without_same: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows with where they are, each right by itself and agreeing with those before.

    Args:
        path: the table.
        wanted: its format, if not the one that `path` ends in.
        owner: name for answers in the owner's name, which are refused without one.
        without_same: leave out answers about a clip and itself, which are refused otherwise.
    """
    keys: set[str] = set()
    queries: dict[str, dict[str, Any]] = {}
    for number, raw in enumerate(read_table(path, wanted), 1):
        where = f"{path}, row {number}"
        row = checked(raw, where)
        if row["first_clip"] == row["second_clip"]:
            if without_same:
                continue
            fix = "Such answers say nothing: leave them out, --without-same (without_same=True)."
            raise wrong_cell(where, "second_clip", "another clip than first_clip", "the same", fix)
        if looks_like_owner(row["annotator"]):
            if owner is None:
                fix = "Name whose answers they are: --owner NAME (owner=NAME)."
                expected = "a name that is not the owner's"
                raise wrong_cell(where, "annotator", expected, repr(row["annotator"]), fix)
            row["annotator"] = owner
        if row["key"] in keys:
            raise wrong_cell(where, "key", "one for each answer", f"{row['key']} again")
        keys.add(row["key"])
        before = queries.setdefault(row["query"], row)
        for name in OF_QUERY:
            if before[name] != row[name]:
                expected = f"{before[name]!r}, as before for query {row['query']}"
                raise wrong_cell(where, name, expected, repr(row[name]))
        if row["purpose"] == "repeat" and before["annotator"] != row["annotator"]:
            raise wrong_cell(where, "annotator", "the one person whom a repeat is for", "another")
        yield where, row


def queries_of(
    session: Session, project: Project, rows: Sequence[tuple[str, dict[str, Any]]]
) -> dict[str, int]:
    """Numbers of the queries that rows name; those that are not there yet are added."""
    there = {
        query_name(project, number, detail): number
        for number, detail in session.execute(
            select(Query.id, Query.detail).where(Query.project_id == project.id)
        )
    }
    wanted: dict[str, tuple[str, dict[str, Any]]] = {}
    for where, row in rows:
        if row["query"] not in there:
            wanted.setdefault(row["query"], (where, row))
    for name, (where, _) in wanted.items():
        if name.endswith(birthplace(project)):
            raise wrong_cell(where, "query", "one that is in this project, where it began", name)
    videos = _videos(session, project.id, wanted.values())
    for repeats in (False, True):  # what is repeated has to be there first
        some = {
            n: told for n, told in wanted.items() if (told[1]["purpose"] == "repeat") == repeats
        }
        people = people_named(session, project.id, (r["annotator"] for _, r in some.values()))
        added = [
            _query(project.id, name, row, videos, people, there, where)
            for name, (where, row) in some.items()
        ]
        there |= dict(zip(some, add_queries(session, added), strict=True))
    return there


def _videos(
    session: Session, project_id: int, rows: Iterable[tuple[str, dict[str, Any]]]
) -> dict[str, bool]:
    rows = list(rows)
    sides = ("first_clip", "second_clip")
    videos = known_clips(session, project_id, [row[side] for _, row in rows for side in sides])
    for where, row in rows:
        for side in sides:
            if row[side] not in videos:
                fix = "Export the clips from where the answers come, and import them, too."
                raise wrong_cell(where, side, "a clip of this project", row[side], fix)
    return videos


def _query(
    project_id: int,
    name: str,
    row: Mapping[str, Any],
    videos: Mapping[str, bool],
    people: Mapping[str, int],
    there: Mapping[str, int],
    where: str,
) -> dict[str, Any]:
    again = row["repeat_of"]
    if again is not None and again not in there:
        raise wrong_cell(where, "repeat_of", "a query of this file or project", again)
    repeats = again is not None
    settled = row["purpose"] == "ask" and row["quorum"] == 0  # it was imported with its answers
    return {
        **{column: row[column] for column in OF_QUERY if column != "query_detail"},
        "project_id": project_id,
        "repeat_of": there[again] if repeats else None,
        "for_annotator": people[row["annotator"]] if repeats else None,
        "swapped": row["swapped"] if repeats else None,
        "needed": 0,
        "ready": videos[row["first_clip"]] and videos[row["second_clip"]],
        "cancelled_at": row["asked_at"] if settled else None,
        "detail": {**(row["query_detail"] or {}), EXPORTED_AS: name},
    }


def answer_row(
    project_id: int, query: int, annotator: int, row: Mapping[str, Any]
) -> dict[str, Any]:
    """The columns of an answer that was read."""
    about = {"project_id": project_id, "query_id": query, "annotator_id": annotator}
    return about | {name: row[name] for name in OF_ANSWER}


def known_answers(session: Session, keys: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Which of these keys are taken: the project and the kind of their answers."""
    chosen = select(Answer.key, Answer.project_id, Answer.kind)
    return {
        key: (project_id, kind)
        for key, project_id, kind in rows_among(session, chosen, Answer.key, keys)
    }


def people_named(session: Session, project_id: int, names: Iterable[str]) -> dict[str, int]:
    """Numbers of these people; who is new has no link until they are invited."""
    chosen = select(Annotator.name, Annotator.id).where(Annotator.project_id == project_id)
    people = dict(session.execute(chosen).all())
    at = session.scalar(select(now()))
    for name in dict.fromkeys(names):
        if name not in people:
            nobody = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
            about = {"project_id": project_id, "name": name, "role": "annotator"}
            person = Annotator(**about, secret_hash=nobody, created_at=at)
            session.add(person)
            session.flush()
            people[name] = person.id
    return people


def add_queries(session: Session, rows: Sequence[dict[str, Any]]) -> list[int]:
    """Add rows of queries with all their columns; their numbers, in this order."""
    if not rows:
        return []
    added = insert(Query).returning(Query.id, sort_by_parameter_order=True)
    return list(session.scalars(added, rows))


def add_answers(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows of answers with all their columns, in this order."""
    if rows:
        session.execute(insert(Answer), rows)


def recount(session: Session, queries: Iterable[int]) -> None:
    """Set how many answers these queries still need by the latest word of each person."""
    standing = (
        select(func.count(Answer.id))
        .where(Answer.query_id == Query.id, Answer.kind.in_(COUNTED), LATEST)
        .correlate(Query)
        .scalar_subquery()
    )
    left = Query.quorum - standing
    numbers = sorted(set(queries))
    for start in range(0, len(numbers), MOST_PARAMETERS):
        session.execute(
            update(Query)
            .where(Query.id.in_(numbers[start : start + MOST_PARAMETERS]), Query.purpose == "ask")
            .values(needed=case((left > 0, left), else_=literal(0)))
            .execution_options(synchronize_session=False)
        )
