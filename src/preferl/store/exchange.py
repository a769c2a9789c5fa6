"""Answers out of a store into one table, and back into any store."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Select, case, select
from sqlalchemy.orm import aliased

from preferl.data.arrays import load_segments
from preferl.errors import DataError
from preferl.shapes import IntArray
from preferl.store.answer_table import (
    COLUMNS,
    EXPORTED_AS,
    add_answers,
    answer_row,
    known_answers,
    people_named,
    queries_of,
    query_name,
    read_answers,
    recount,
    timestamp,
)
from preferl.store.clip_folder import import_segments
from preferl.store.people import require_name
from preferl.store.schema import COUNTED, Answer, Clip, Project, Query
from preferl.store.statements import LATEST
from preferl.store.store import Store
from preferl.store.tables import BATCH, writing_table, wrong_cell

Origin = tuple[int | None, int | None]
"""The episode and the first step of a clip, where they are known."""


class ImportedAnswers(NamedTuple):
    """How many answers an import added, and how many had been there already."""

    new: int
    known: int


def export_answers(
    store: Store,
    project_id: int,
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002 (what everybody calls it)
    anonymous: bool = False,
) -> int:
    """Write every answer of a project that was ever given, oldest first; returns how many.

    Skipped, retracted and changed answers are there, too; those with `counts` are what people say
    now. `docs/annotate/data.md` explains every column.

    Args:
        store: where they are.
        project_id: whose.
        path: the file, replaced if it exists.
        format: `"jsonl"`, `"csv"` or `"parquet"`; by the end of the file's name if None.
        anonymous: write a digest instead of each name, the same in every export of this store.

    Raises:
        ConfigError: an unknown format or project.
        MissingExtraError: Parquet without the extra `parquet`.
        StorageError: the file cannot be written.
    """
    project = store.projects.get(project_id)
    origin = _origins(store.files / "clips" / str(project_id))
    count = 0
    with (
        writing_table(Path(path), COLUMNS, format) as write,
        store.database.read() as session,
    ):
        found = session.execute(_answers(project_id), execution_options={"yield_per": BATCH})
        names = _names(store, project, anonymous=anonymous)  # now that no answer can be added
        for batch in found.partitions():
            write([_row(project, names, origin, *told) for told in batch])
            count += len(batch)
    return count


def _answers(project_id: int) -> Select[*tuple[Any, ...]]:
    """Answers, their queries, the queries those repeat, where clips lie, and what counts."""
    original, first, second = aliased(Query), aliased(Clip), aliased(Clip)
    return (
        select(
            Answer,
            Query,
            original.id,
            original.detail,
            *(first.shard, first.row, second.shard, second.row),
            case((LATEST, Answer.kind.in_(COUNTED)), else_=False),
        )
        .join(Query, Query.id == Answer.query_id)
        .outerjoin(original, original.id == Query.repeat_of)
        .join(first, (first.project_id == project_id) & (first.id == Query.first_clip))
        .join(second, (second.project_id == project_id) & (second.id == Query.second_clip))
        .where(Answer.project_id == project_id)
        .order_by(Answer.id)
    )


def _row(
    project: Project,
    names: Mapping[int, str],
    origin: Callable[[str, int], Origin],
    answer: Answer,
    query: Query,
    original: int | None,
    original_detail: dict[str, Any] | None,
    *told: Any,
) -> tuple[Any, ...]:
    """What is written of an answer, in the order of `COLUMNS`."""
    first, first_row, second, second_row, counts = told
    sides = query.first_clip, query.second_clip
    detail = {k: v for k, v in (query.detail or {}).items() if k != EXPORTED_AS}
    again = None if original is None else query_name(project, original, original_detail)
    score = query.score if query.score is not None and isfinite(query.score) else None
    return (
        project.slug,
        query_name(project, query.id, query.detail),
        query.purpose,
        *sides,
        *origin(first, first_row),
        *origin(second, second_row),
        names[answer.annotator_id],
        *(answer.kind, answer.preference, answer.strength, bool(counts), answer.swapped),
        *(sides[::-1] if answer.swapped else sides),
        answer.response_ms,
        *(timestamp(answer.granted_at), timestamp(answer.answered_at)),
        *(answer.granted_at, answer.answered_at, answer.key),
        _sorted(answer.detail),
        *(again, query.known, query.quorum, query.priority),
        *(score, query.model_version, query.asked_at),
        _sorted(detail or None),
    )


def _sorted(detail: dict[str, Any] | None) -> dict[str, Any] | None:
    """With keys in order, so that equal details are written alike."""
    ordered: dict[str, Any] | None = json.loads(json.dumps(detail, sort_keys=True))
    return ordered


def _names(store: Store, project: Project, *, anonymous: bool) -> dict[int, str]:
    people = store.people.all(project.id)
    if not anonymous:
        return {person.id: person.name for person in people}
    salt = hashlib.sha256(store.key()).digest()
    return {
        person.id: "person-"
        + hashlib.blake2b(
            f"{project.slug} {person.name}".encode(), key=salt, digest_size=8
        ).hexdigest()
        for person in people
    }


def _origins(folder: Path) -> Callable[[str, int], Origin]:
    """Looks up where the clip in a row of a shard was cut."""

    @lru_cache(maxsize=4096)
    def of_shard(shard: str) -> IntArray | None:
        try:
            return load_segments(folder / shard).origin
        except DataError:  # labels are worth having without the arrays they are about
            return None

    def look_up(shard: str, row: int) -> Origin:
        origin = of_shard(shard)
        return (None, None) if origin is None else (int(origin[row, 0]), int(origin[row, 1]))

    return look_up


def import_answers(
    store: Store,
    project_id: int,
    path: Path | str,
    *,
    clips: Path | str | None = None,
    format: str | None = None,  # noqa: A002
    owner: str | None = None,
    without_same: bool = False,
) -> ImportedAnswers:
    """Read what `export_answers` wrote into a project: all of it, or nothing where a row is wrong.

    Answers whose key is there already are passed over, so that an import can be repeated. Queries
    and people that are not there are made; people need an invitation before they can go on.

    Args:
        store: where to.
        project_id: which project; its own name does not have to be the one in the file.
        path: the file; all of its rows are held in memory.
        clips: the folder that `export_segments` wrote beside it; None where they are here already.
        format: as for `export_answers`.
        owner: name for answers in the owner's name, who is somebody else in every store; they are
            refused without one.
        without_same: leave out answers about a clip and itself, which earlier versions asked for;
            they are refused otherwise, since whatever people say of them says nothing.

    Raises:
        ConfigError: an unknown format or project.
        DataError: a cell that is wrong, naming file, row and column; a clip that is not stored, or
            compared with itself; an answer in the owner's name.
        MissingExtraError: Parquet without the extra `parquet`.
        StorageError: a file cannot be read, or the store not written to.
    """
    project = store.projects.get(project_id)
    if owner is not None:
        owner = require_name(owner)
    rows = list(read_answers(Path(path), format, owner=owner, without_same=without_same))
    if clips is not None:
        import_segments(store, project_id, clips)
    with store.database.write() as session:
        held = known_answers(session, [row["key"] for _, row in rows])
        for where, row in rows:
            there = held.get(row["key"])
            if there is not None and there != (project_id, row["kind"]):
                expected = "a key of its own, or the answer that has it in this project"
                raise wrong_cell(where, "key", expected, row["key"])
        new = [(where, row) for where, row in rows if row["key"] not in held]
        queries = queries_of(session, project, new)
        people = people_named(session, project_id, (row["annotator"] for _, row in new))
        add_answers(
            session,
            [
                answer_row(project_id, queries[row["query"]], people[row["annotator"]], row)
                for _, row in new
            ],
        )
        recount(session, (queries[row["query"]] for _, row in new))
    return ImportedAnswers(len(new), len(rows) - len(new))
