"""Export answers and clips of a store, and import them into any store.

The clips of a project become a folder of arrays, to which rewards can be fitted without the store.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Row, Select, case, select, union, update
from sqlalchemy.orm import aliased

from preferl.data.arrays import (
    arrays_of,
    load_arrays,
    load_comparisons,
    load_segments,
    save_arrays,
)
from preferl.errors import DataError, FeedbackError
from preferl.shapes import FloatArray, IntArray
from preferl.store.clips import CLIPS_AT_ONCE, clip_ids
from preferl.store.exchange import answer_table as table
from preferl.store.exchange.tables import BATCH, writing_table, wrong_cell
from preferl.store.feedback import StoredFeedback
from preferl.store.people import require_name
from preferl.store.quality.aggregation import CombineMethod
from preferl.store.ratings import ratings_among
from preferl.store.schema import COUNTED, MODEL, Annotator, Answer, Clip, Project, Query, Rating
from preferl.store.statements import LATEST
from preferl.store.store import Store

Origin = Callable[[Clip], tuple[int, ...]]
"""Looks up where a clip was cut, in the form of `Segments.origin`; empty if unknown."""


def export_answers(
    store: Store, project_id: int, path: Path | str, *, anonymous: bool = False
) -> int:
    """Write every answer of a project that was ever given, oldest first; return how many.

    Skipped, retracted and changed answers are included. Rows with `counts` are the current answers.
    `docs/annotate/data.md` explains every column.

    An older file is replaced. Its name ends in `.jsonl`, `.csv` or `.parquet`. If the export is
    `anonymous`, it has a digest instead of each name, which is the same in every export of this
    store.

    Raises:
        ConfigError: the format or project is unknown.
        MissingExtraError: the file is Parquet, and the extra `parquet` is not installed.
        StorageError: the file cannot be written.
    """
    project = store.projects.get(project_id)
    origin = origins_of(store, project_id)
    count = 0
    with writing_table(Path(path), table.COLUMNS) as write, store.database.read() as session:
        answers = session.execute(_answers(project_id), execution_options={"yield_per": BATCH})
        # read now, when no answer can be added any more
        names = names_of(store, project, anonymous=anonymous)
        for batch in answers.partitions():
            write([_row(project, names, origin, row) for row in batch])
            count += len(batch)
    return count


def _answers(project_id: int) -> Select[Answer, Query, Query | None, Clip, Clip, bool]:
    """SQL: answers, their queries, the queries that those repeat, both clips, and what counts."""
    original = aliased(Query)
    first = aliased(Clip)
    second = aliased(Clip)
    counts = case((LATEST, Answer.kind.in_(COUNTED)), else_=False)
    return (
        select(Answer, Query, original, first, second, counts)
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
    origin: Origin,
    row: Row[Answer, Query, Query | None, Clip, Clip, bool],
) -> tuple[Any, ...]:
    """Return the cells of an answer, in the order of `COLUMNS`."""
    answer, query, original, first, second, counts = row
    detail = {k: v for k, v in (query.detail or {}).items() if k != table.EXPORTED_AS}
    return (
        project.slug,
        table.query_name(project, query.id, query.detail),
        query.purpose,
        query.first_clip,
        query.second_clip,
        *(origin(first) or (None, None))[:2],
        *(origin(second) or (None, None))[:2],
        names[answer.annotator_id],
        answer.kind,
        answer.preference,
        answer.strength,
        bool(counts),
        answer.swapped,
        *query.sides(answer.swapped),
        answer.response_ms,
        table.timestamp(answer.granted_at),
        table.timestamp(answer.answered_at),
        answer.granted_at,
        answer.answered_at,
        answer.key,
        _sorted(table.exported_detail(answer, names)),
        None if original is None else table.query_name(project, original.id, original.detail),
        query.known,
        query.quorum,
        query.priority,
        query.score if isfinite(query.score or 0) else None,
        query.model_version,
        query.asked_at,
        _sorted(detail or None),
    )


def _sorted(detail: dict[str, Any] | None) -> Any:
    """Return a detail with sorted keys, so that equal details are written in the same way."""
    return json.loads(json.dumps(detail, sort_keys=True))


def names_of(store: Store, project: Project, *, anonymous: bool) -> dict[int, str]:
    """Return the names of a project's people by their numbers; digests if `anonymous`."""
    people = {person.id: person.name for person in store.people.all(project.id)}
    if not anonymous:
        return people
    key = hashlib.sha256(store.key()).digest()
    digests = {
        number: hashlib.blake2b(f"{project.slug} {name}".encode(), key=key, digest_size=8)
        for number, name in people.items()
    }
    return {number: f"person-{digest.hexdigest()}" for number, digest in digests.items()}


def origins_of(store: Store, project_id: int) -> Origin:
    """Return a function that looks up where a clip was cut."""

    @lru_cache(maxsize=4096)
    def of_shard(shard: str) -> IntArray | None:
        try:
            return load_segments(store.clips.shard(project_id, shard)).origin
        except DataError:  # labels are useful even without their arrays
            return None

    def look_up(clip: Clip) -> tuple[int, ...]:
        origin = of_shard(clip.shard)
        return () if origin is None else tuple(origin[clip.row].tolist())

    return look_up


def import_answers(
    store: Store,
    project_id: int,
    path: Path | str,
    *,
    clips: Path | str | None = None,
    owner: str | None = None,
) -> table.ImportReport:
    """Import what `export_answers` wrote: everything, or nothing if a row is wrong.

    Return counts and names, see `ImportReport`. Answers whose key exists already are skipped, so
    that an import can be repeated. Missing queries and people are added; people need an invitation
    before they can continue. The project may have another name than in the file. The whole file is
    held in memory. If its clips are not here already, they come from the folder `clips` that
    `export_segments` wrote.

    Each store has another owner. Answers in the owner's name therefore get the name `owner`, and
    are refused if there is none. Answers about a clip and itself hold no information, and are
    refused.

    Raises:
        ConfigError: the format or project is unknown.
        DataError: a cell is wrong, and the message names file, row and column; or a clip is not
            stored.
        MissingExtraError: the file is Parquet, and the extra `parquet` is not installed.
        StorageError: the file cannot be read, or the store cannot be written to.
    """
    project = store.projects.get(project_id)
    owner = None if owner is None else require_name(owner)
    rows = list(table.read_answers(Path(path), owner=owner))
    if clips is not None:
        import_segments(store, project_id, clips)
    with store.database.write() as session:
        held = table.known_answers(session, [row["key"] for _, row in rows])
        for where, row in rows:
            if held.get(row["key"], (project_id, row["kind"])) != (project_id, row["kind"]):
                expected = "a key of its own, or the answer that has it in this project"
                raise wrong_cell(where, "key", expected, row["key"])
        new = [(where, row) for where, row in rows if row["key"] not in held]
        queries = table.queries_of(session, project, new)
        named = (name for _, row in new for name in table.people_of(row))
        people = table.people_named(session, project_id, named)
        answers = [
            {name: row[name] for name in table.OF_ANSWER}
            | {"query_id": queries[row["query"]], "annotator_id": people[row["annotator"]]}
            | {"project_id": project_id, "detail": table.imported_detail(row, people)}
            for _, row in new
        ]
        table.add_answers(session, answers)
        by_models = {row["annotator_id"] for row in answers if MODEL in (row["detail"] or {})}
        session.execute(update(Annotator).where(Annotator.id.in_(by_models)).values(is_model=True))
    shown = {row[side] for _, row in rows for side in ("first_clip", "second_clip")}
    names = sorted({row["annotator"] for _, row in rows})
    return table.ImportReport(len(new), len(rows) - len(new), len(shown), tuple(names))


def export_segments(
    store: Store, project_id: int, path: Path | str, *, combine: CombineMethod = "mean"
) -> int:
    """Write all clips in queries of a project, and their answers; return the number of clips.

    `preferl.data.load_comparisons` reads the folder. The folder also has two arrays for an import.
    `clips` is the name of each segment in the table of answers. `cut` is the episode and first step
    of each segment, and the episode of its last step; -1 if they are not known. If there are
    ratings and outcomes, the current ones are in the folder, too, and `preferl.data.load_ratings`
    reads them.

    Comparisons without an answer are left out. An older folder of preferl's is replaced.

    Raises:
        ConfigError: there is no such project.
        DataError: there are no queries, or clips differ in length.
        StorageError: the folder cannot be written.
    """
    project = store.projects.get(project_id)
    sides = (Query.first_clip, Query.second_clip)
    asked = union(
        *(select(side).where(Query.project_id == project_id) for side in sides),
        select(Rating.clip_id).where(Rating.project_id == project_id),
    )
    clips = store.database.all(
        select(Clip).where(Clip.project_id == project_id, Clip.id.in_(asked)).order_by(Clip.id)
    )
    if not clips:
        raise DataError(f"project {project.slug}: expected at least one query, got none.")
    names = [clip.id for clip in clips]
    segments = store.clips.segments(project_id, names)
    origin = origins_of(store, project_id)
    pairs, preference, weight = _answered(store, project_id, names, combine)
    arrays = arrays_of(replace(segments, origin=None)) | {
        "pairs": pairs,
        "preference": preference,
        "weight": weight,
        "clips": np.array(names),
        "cut": np.array([origin(clip) or (-1, -1, -1) for clip in clips]),
    }
    rated = store.ratings.current(project_id)
    if rated:
        arrays |= ratings_among(rated, names, segments).arrays()
    save_arrays(Path(path), arrays, {"kind": "comparisons", "length": segments.length})
    return len(names)


def _answered(
    store: Store, project_id: int, names: list[str], combine: CombineMethod
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return pairs of rows of `names`, preferences and weights of all answers so far."""
    try:
        answers = StoredFeedback(store, project_id, combine=combine).comparisons()
    except FeedbackError:  # nothing has been answered yet
        return np.zeros((0, 2), np.int64), np.zeros(0), np.zeros(0)
    row = np.searchsorted(names, clip_ids(answers.segments))
    return row[answers.pairs], answers.preference, answers.weight


def import_segments(store: Store, project_id: int, path: Path | str) -> list[str]:
    """Store the clips of a folder that `export_segments` wrote; return their names.

    Raises:
        DataError: it is another folder, or names of clips do not fit their content.
        StorageError: the store cannot be written to.
    """
    path = Path(path)
    arrays = load_arrays(path)[0]
    if not {"clips", "cut"} <= arrays.keys():
        raise DataError(f"{path}: expected clips that were exported from a store, got {[*arrays]}.")
    segments = load_comparisons(path).segments
    names = arrays["clips"]
    cut = np.asarray(arrays["cut"])
    if len(names) != len(segments) or cut.shape != (len(segments), 3):
        raise DataError(f"{path}: expected a name and a cut per clip, got {len(names)}.")
    is_known = (cut >= 0).all(axis=1)
    for origin, mask in ((cut, is_known), (None, ~is_known)):
        rows = np.flatnonzero(mask)
        for start in range(0, len(rows), CLIPS_AT_ONCE):
            some = rows[start : start + CLIPS_AT_ONCE]
            clips = replace(segments, origin=origin).select(some)
            if clip_ids(clips) != names[some].tolist():
                raise DataError(
                    f"{path}: expected clips of these names, got other clips. The folder is "
                    "damaged, or a newer version wrote it."
                )
            store.clips.put(project_id, clips)
    return [str(name) for name in names]
