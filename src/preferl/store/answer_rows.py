"""Rows of a table of answers as rows of a store: read and checked, their queries found or made."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from preferl.errors import DataError
from preferl.store.answer_table import EXPORTED_AS, OF_QUERY, birthplace, checked, query_name
from preferl.store.bulk import add_queries, known_clips, people_named
from preferl.store.names import looks_like_owner
from preferl.store.schema import Project, Query
from preferl.store.tables import read_table


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
        "project_id": project_id,
        "first_clip": row["first_clip"],
        "second_clip": row["second_clip"],
        "purpose": row["purpose"],
        "priority": row["priority"],
        "score": row["score"],
        "model_version": row["model_version"],
        "known": row["known"],
        "repeat_of": there[again] if repeats else None,
        "for_annotator": people[row["annotator"]] if repeats else None,
        "swapped": row["swapped"] if repeats else None,
        "quorum": row["quorum"],
        "needed": 0,
        "ready": videos[row["first_clip"]] and videos[row["second_clip"]],
        "asked_at": row["asked_at"],
        "cancelled_at": row["asked_at"] if settled else None,
        "detail": {**(row["query_detail"] or {}), EXPORTED_AS: name},
    }


def answer_row(
    project_id: int, query: int, annotator: int, row: Mapping[str, Any]
) -> dict[str, Any]:
    """The columns of an answer that was read."""
    said = ("key", "kind", "preference", "strength", "swapped", "response_ms")
    when = ("granted_at", "answered_at", "detail")
    return {
        "project_id": project_id,
        "query_id": query,
        "annotator_id": annotator,
        **{name: row[name] for name in (*said, *when)},
    }


def wrong_cell(where: str, column: str, expected: object, got: object, fix: str = "") -> DataError:
    """An error that names file, row and column."""
    return DataError.mismatch(f"{where}, column {column}", expected=expected, got=got, fix=fix)
