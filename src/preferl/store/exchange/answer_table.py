"""The table of answers that a store exports and imports: its columns, checks and rows.

It has a row for each answer that was ever given, including retracted and changed ones.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import case, func, insert, literal, select, update
from sqlalchemy.orm import Session

from preferl.store.clips import CLIP_ID, known_clips
from preferl.store.database import MOST_PARAMETERS, clock, rows_among
from preferl.store.exchange.tables import (
    Cell,
    Rules,
    cells_of,
    read_table,
    require_right,
    wrong_cell,
)
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

COLUMNS: Final[Mapping[str, Cell]] = {
    **dict.fromkeys(("project", "query", "purpose", "first_clip", "second_clip"), "text"),
    **dict.fromkeys(("first_episode", "first_step", "second_episode", "second_step"), "whole"),
    **dict.fromkeys(("annotator", "kind"), "text"),
    "preference": "number",
    "strength": "text",
    **dict.fromkeys(("counts", "swapped"), "flag"),
    **dict.fromkeys(("left_clip", "right_clip"), "text"),
    "response_ms": "number",
    **dict.fromkeys(("granted", "answered"), "text"),
    **dict.fromkeys(("granted_at", "answered_at"), "number"),
    "key": "text",
    "detail": "json",
    "repeat_of": "text",
    "known": "number",
    "quorum": "whole",
    **dict.fromkeys(("priority", "score"), "number"),
    "model_version": "whole",
    "asked_at": "number",
    "query_detail": "json",
}
"""Names and kinds of the columns, in order."""

OF_ANSWER: Final = tuple(name for name in COLUMNS if name in Answer.__table__.columns)
"""Columns that the store's own table of answers has, too."""

OF_QUERY: Final = (
    *(name for name in COLUMNS if name in Query.__table__.columns and name not in OF_ANSWER),
    "query_detail",
)
"""Columns with the same cell in all rows of a query."""

NEEDED: Final = {"query", "annotator"} | {
    column.name
    for table in (Query, Answer)
    for column in table.__table__.columns
    if column.name in COLUMNS and not column.nullable
}
"""Columns that may not be empty."""

PURPOSES: Final = ("ask", "known", "repeat")  # nobody answers examples
EXPORTED_AS: Final = "exported_as"
"""Key in the detail of an imported query: the query's name in its first store."""

BY: Final = "by"
"""Key in the detail of a retracted answer: the person who withdrew the answer."""

QUERY_NAME: Final = re.compile(r"[0-9]+-[0-9a-f]{8}")
LATEST_TIME: Final = 253_402_300_799.0
"""The end of the year 9999. Later dates do not exist in Python."""


class ImportReport(NamedTuple):
    """Counts of new answers, of answers imported before, and of clips, and annotators' names."""

    new: int
    known: int
    clips: int
    annotators: tuple[str, ...]


def query_name(project: Project, number: int, detail: Mapping[str, Any] | None) -> str:
    """Return a query's name, the same in every store: a number and its project's digest."""
    return str((detail or {}).get(EXPORTED_AS) or f"{number}-{_birthplace(project)}")


def _birthplace(project: Project) -> str:
    about = f"{project.slug} {project.created_at!r}".encode()
    return hashlib.blake2b(about, digest_size=4).hexdigest()


def timestamp(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601 in UTC.

    >>> timestamp(0.5)
    '1970-01-01T00:00:00.500+00:00'
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def exported_detail(answer: Answer, names: Mapping[int, str]) -> dict[str, Any] | None:
    """Return the detail of an answer for a file, with names instead of people's numbers.

    People's numbers differ between stores. Their names and the keys of answers do not.
    """
    detail = answer.detail
    if answer.kind != "retract" or detail is None:
        return detail
    return {k: names.get(v) if k == BY else v for k, v in detail.items()}


def imported_detail(row: Mapping[str, Any], people: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the detail of a row for the store, with numbers instead of people's names."""
    _, *by = people_of(row)
    return {**row["detail"], BY: people[by[0]]} if by else row["detail"]


def people_of(row: Mapping[str, Any]) -> list[str]:
    """Return the name of the annotator, and of the person who withdrew the answer, if any."""
    by = (row["detail"] or {}).get(BY) if row["kind"] == "retract" else None
    return [row["annotator"], *([] if by is None else [by])]


def checked(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a row whose cells have the right kinds and agree with each other.

    Columns that are not `NEEDED` may be missing. Unknown columns are dropped.

    Raises:
        DataError: a cell is wrong; the message names file and row (`where`) and column.
    """
    row = cells_of(raw, COLUMNS, NEEDED, where)
    detail = row["detail"] if row["kind"] == "retract" else None
    if detail and not isinstance(detail.get(BY), str):  # the number in another store
        row["detail"] = {name: value for name, value in detail.items() if name != BY}
    require_right(row, _rules(row), where)
    return row


def _rules(row: Mapping[str, Any]) -> Rules:
    """Return for each column whether the cell is right, and what a message says is expected."""
    preference = preference_of(row["kind"], row["swapped"])
    clips = row["first_clip"], row["second_clip"]
    left, right = clips[::-1] if row["swapped"] else clips
    purpose = row["purpose"]
    return {
        "query": (QUERY_NAME.fullmatch(row["query"]), "a number, a hyphen and 8 digits of hex"),
        "purpose": (purpose in PURPOSES, f"one of {', '.join(PURPOSES)}"),
        "first_clip": (CLIP_ID.fullmatch(clips[0]), "32 digits of hex"),
        "second_clip": (
            CLIP_ID.fullmatch(clips[1]) and clips[0] != clips[1],
            "32 digits of hex, of another clip than first_clip",
        ),
        "annotator": (is_name(row["annotator"]), f"a name of 1 to {LONGEST_NAME} letters"),
        "detail": (all(map(is_name, people_of(row)[1:])), f"the name of a person as `{BY}`"),
        "kind": (row["kind"] in KINDS, f"one of {', '.join(KINDS)}"),
        "preference": (
            row["preference"] == preference,
            f"{preference}, which follows from kind and swapped",
        ),
        "strength": (row["strength"] in (None, *STRENGTHS), f"one of {STRENGTHS}, or nothing"),
        "left_clip": (row["left_clip"] in (None, left), f"{left}, which follows from swapped"),
        "right_clip": (row["right_clip"] in (None, right), f"{right}, which follows from swapped"),
        "response_ms": (0 <= (row["response_ms"] or 0) <= 1e9, "0 to 1e9 milliseconds"),
        **{
            name: (0 <= (row[name] or 0) <= LATEST_TIME, "seconds since the epoch")
            for name in ("granted_at", "answered_at", "asked_at")
        },
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


def read_answers(path: Path, *, owner: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the content of each row of a file.

    Each row is checked by itself and against earlier rows. Answers in the owner's name get the name
    `owner`. Without `owner`, they are refused.
    """
    keys: set[str] = set()
    queries: dict[str, dict[str, Any]] = {}
    for number, raw in enumerate(read_table(path), 1):
        where = f"{path}, row {number}"
        row = checked(raw, where)
        name, *by = people_of(row)
        row["annotator"] = imported_name(name, owner, where)
        if by:
            row["detail"] = {**row["detail"], BY: imported_name(by[0], owner, where, "detail")}
        if row["key"] in keys:
            raise wrong_cell(where, "key", "one for each answer", f"{row['key']} again")
        keys.add(row["key"])
        before = queries.setdefault(row["query"], row)
        for name in OF_QUERY:
            if before[name] != row[name]:
                expected = f"{before[name]!r}, as in earlier rows of query {row['query']}"
                raise wrong_cell(where, name, expected, repr(row[name]))
        if row["purpose"] == "repeat" and before["annotator"] != row["annotator"]:
            raise wrong_cell(
                where, "annotator", "the person of earlier rows of this repeat", "another"
            )
        yield where, row


def imported_name(name: str, owner: str | None, where: str, column: str = "annotator") -> str:
    """Return a person's name for the store. The owner of another store becomes `owner`.

    Raises:
        DataError: the name is the owner's, and there is no `owner`.
    """
    if not looks_like_owner(name):
        return name
    if owner is None:
        fix = "Name this person: --owner NAME (owner=NAME)."
        raise wrong_cell(where, column, "a name that is not the owner's", repr(name), fix)
    return owner


def queries_of(
    session: Session, project: Project, rows: Sequence[tuple[str, dict[str, Any]]]
) -> dict[str, int]:
    """Return the numbers of the queries that rows name. Add those that are missing."""
    statement = select(Query.id, Query.detail).where(Query.project_id == project.id)
    numbers = {query_name(project, n, detail): n for n, detail in session.execute(statement)}
    fresh: dict[str, tuple[str, dict[str, Any]]] = {}
    for where, row in rows:
        if row["query"] not in numbers:
            fresh.setdefault(row["query"], (where, row))
    videos = _require_clips(session, project, fresh)
    for is_repeat in (False, True):  # repeats come last, since what they repeat has to exist
        some = {n: found for n, found in fresh.items() if bool(found[1]["repeat_of"]) == is_repeat}
        people = people_named(session, project.id, (row["annotator"] for _, row in some.values()))
        added: dict[str, Query] = {}
        for name, (where, row) in some.items():
            original = row["repeat_of"]
            if is_repeat and original not in numbers:
                raise wrong_cell(where, "repeat_of", "a query of this file or project", original)
            # the query was imported together with its answers
            settled = row["purpose"] == "ask" and row["quorum"] == 0
            columns = {column: row[column] for column in OF_QUERY if column != "query_detail"}
            columns |= {
                "repeat_of": numbers[original] if is_repeat else None,
                "for_annotator": people[row["annotator"]] if is_repeat else None,
                "swapped": row["swapped"] if is_repeat else None,
                "ready": videos[row["first_clip"]] and videos[row["second_clip"]],
                "cancelled_at": row["asked_at"] if settled else None,
                "detail": {**(row["query_detail"] or {}), EXPORTED_AS: name},
            }
            added[name] = Query(project_id=project.id, **columns)
        session.add_all(added.values())
        session.flush()
        numbers |= {name: query.id for name, query in added.items()}
    return numbers


def _require_clips(
    session: Session, project: Project, queries: Mapping[str, tuple[str, dict[str, Any]]]
) -> dict[str, bool]:
    """Return which clips of new queries have videos; raise `DataError` for a missing clip."""
    clips = [row[side] for _, row in queries.values() for side in ("first_clip", "second_clip")]
    videos = known_clips(session, project.id, clips)
    for name, (where, row) in queries.items():
        if name.endswith(_birthplace(project)):
            raise wrong_cell(
                where, "query", "a query of this project, since its name says so", name
            )
        for side in ("first_clip", "second_clip"):
            if row[side] not in videos:
                fix = "Export the clips from the store of the answers, and import them, too."
                raise wrong_cell(where, side, "a clip of this project", row[side], fix)
    return videos


def known_answers(session: Session, keys: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return the keys that are already used, each with the project and the kind of its answer."""
    statement = select(Answer.key, Answer.project_id, Answer.kind)
    rows = rows_among(session, statement, Answer.key, keys)
    return {key: (project_id, kind) for key, project_id, kind in rows}


def people_named(session: Session, project_id: int, names: Iterable[str]) -> dict[str, int]:
    """Return the numbers of people by name. New people are added, without a link to sign in."""
    statement = select(Annotator.name, Annotator.id).where(Annotator.project_id == project_id)
    people = dict(session.execute(statement).all())
    at = clock(session)
    for name in dict.fromkeys(names):
        if name not in people:
            nobody = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
            about = {"project_id": project_id, "name": name, "role": "annotator"}
            person = Annotator(**about, secret_hash=nobody, created_at=at)
            session.add(person)
            session.flush()
            people[name] = person.id
    return people


def add_answers(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows of answers with all their columns, in this order.

    Each query then needs as many answers as its quorum, minus the people who have settled it.
    """
    if not rows:
        return
    session.execute(insert(Answer), rows)
    counted = (
        select(func.count(Answer.id))
        .where(Answer.query_id == Query.id, Answer.kind.in_(COUNTED), LATEST)
        .correlate(Query)
        .scalar_subquery()
    )
    left = Query.quorum - counted
    counting = update(Query).values(needed=case((left > 0, left), else_=literal(0)))
    counting = counting.execution_options(synchronize_session=False)
    numbers = sorted({row["query_id"] for row in rows})
    for start in range(0, len(numbers), MOST_PARAMETERS):
        some = Query.id.in_(numbers[start : start + MOST_PARAMETERS])
        session.execute(counting.where(some, Query.purpose == "ask"))
