"""Export ratings and outcomes of a project as a table, and import them into any store.

The table has a row for each change that a person made, including undone ones.
"""

from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any, Final, get_args

from sqlalchemy import insert, select

from preferl.store.clips import CLIP_ID, known_clips
from preferl.store.database import rows_among
from preferl.store.exchange.answer_table import (
    LATEST_TIME,
    ImportReport,
    imported_name,
    people_named,
    timestamp,
)
from preferl.store.exchange.exports import import_segments, names_of, origins_of
from preferl.store.exchange.tables import (
    BATCH,
    Cell,
    Rules,
    cells_of,
    read_table,
    require_right,
    writing_table,
    wrong_cell,
)
from preferl.store.people import LONGEST_NAME, is_name, require_name
from preferl.store.ratings import LATEST
from preferl.store.schema import HIGHEST_RATING, Clip, Outcome, Rating
from preferl.store.store import Store

COLUMNS: Final[Mapping[str, Cell]] = {
    **dict.fromkeys(("project", "clip"), "text"),
    **dict.fromkeys(("episode", "step"), "whole"),
    "annotator": "text",
    "rating": "whole",
    "outcome": "text",
    "counts": "flag",
    "rated": "text",
    "rated_at": "number",
    "key": "text",
    "undo": "flag",
}
"""Names of the columns in order, and what they hold."""

NEEDED: Final = ("clip", "annotator", "rated_at", "key", "undo")
"""Columns that may not be empty."""


def export_ratings(
    store: Store, project_id: int, path: Path | str, *, anonymous: bool = False
) -> int:
    """Write all ratings and outcomes that people ever gave, oldest first; return how many rows.

    Rows with `counts` are the current ones. For the file and `anonymous`, see `export_answers`.

    Raises:
        ConfigError: the format or project is unknown.
        MissingExtraError: the file is Parquet, and the extra `parquet` is not installed.
        StorageError: the file cannot be written.
    """
    project = store.projects.get(project_id)
    origin = origins_of(store, project_id)
    count = 0
    statement = (
        select(Rating, Clip, LATEST)
        .join(Clip, (Clip.project_id == project_id) & (Clip.id == Rating.clip_id))
        .where(Rating.project_id == project_id)
        .order_by(Rating.id)
    )
    with writing_table(Path(path), COLUMNS) as write, store.database.read() as session:
        rows = session.execute(statement, execution_options={"yield_per": BATCH})
        # read now, when no rating can be added any more
        names = names_of(store, project, anonymous=anonymous)
        for batch in rows.partitions():
            write(
                [
                    (
                        project.slug,
                        rating.clip_id,
                        *(origin(clip) or (None, None))[:2],
                        names[rating.annotator_id],
                        rating.rating,
                        rating.outcome,
                        bool(latest) and not rating.is_empty,
                        timestamp(rating.rated_at),
                        rating.rated_at,
                        rating.key,
                        rating.undo,
                    )
                    for rating, clip, latest in batch
                ]
            )
            count += len(batch)
    return count


def import_ratings(
    store: Store,
    project_id: int,
    path: Path | str,
    *,
    clips: Path | str | None = None,
    owner: str | None = None,
) -> ImportReport:
    """Import what `export_ratings` wrote: everything, or nothing if a row is wrong.

    Rows whose key exists already are skipped, so that an import can be repeated. Missing people are
    added. If the clips are not here already, they come from the folder `clips` that
    `export_segments` wrote. Rows in the owner's name get the name `owner`, and are refused if there
    is none.

    Raises:
        ConfigError: the format or project is unknown.
        DataError: a cell is wrong, and the message names file, row and column; or a clip is not
            stored.
        MissingExtraError: the file is Parquet, and the extra `parquet` is not installed.
        StorageError: the file cannot be read, or the store cannot be written to.
    """
    store.projects.get(project_id)
    owner = None if owner is None else require_name(owner)
    rows = list(_read(Path(path), owner))
    if clips is not None:
        import_segments(store, project_id, clips)
    with store.database.write() as session:
        named = select(Rating.key, Rating.project_id)
        keys = [row["key"] for _, row in rows]
        held = dict(rows_among(session, named, Rating.key, keys))
        stored = known_clips(session, project_id, {row["clip"] for _, row in rows})
        for where, row in rows:
            if held.get(row["key"], project_id) != project_id:
                raise wrong_cell(where, "key", "one of this project", row["key"])
            if row["clip"] not in stored:
                fix = "Export the clips where the ratings come from, and import them, too."
                raise wrong_cell(where, "clip", "a clip of this project", row["clip"], fix)
        people = people_named(session, project_id, (row["annotator"] for _, row in rows))
        new = [
            {name: row[name] for name in ("key", "rating", "outcome", "undo", "rated_at")}
            | {"clip_id": row["clip"], "annotator_id": people[row["annotator"]]}
            | {"project_id": project_id}
            for _, row in rows
            if row["key"] not in held
        ]
        if new:
            session.execute(insert(Rating), new)
    names = sorted({row["annotator"] for _, row in rows})
    clip_count = len({row["clip"] for _, row in rows})
    return ImportReport(len(new), len(rows) - len(new), clip_count, tuple(names))


def _read(path: Path, owner: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the checked content of each row of a file."""
    keys = set[str]()
    for number, raw in enumerate(read_table(path), 1):
        where = f"{path}, row {number}"
        row = cells_of(raw, COLUMNS, NEEDED, where)
        row["annotator"] = imported_name(row["annotator"], owner, where)
        require_right(row, _rules(row, keys), where)
        keys.add(row["key"])
        yield where, row


def _rules(row: Mapping[str, Any], keys: Set[str]) -> Rules:
    """Return, by column, what is expected of a row, given the `keys` of earlier rows."""
    outcomes = get_args(Outcome)
    return {
        "clip": (CLIP_ID.fullmatch(row["clip"]), "32 digits of hex"),
        "annotator": (is_name(row["annotator"]), f"a name of 1 to {LONGEST_NAME} letters"),
        "rating": (
            row["rating"] is None or 1 <= row["rating"] <= HIGHEST_RATING,
            f"1 to {HIGHEST_RATING}, or nothing",
        ),
        "outcome": (row["outcome"] in (None, *outcomes), f"one of {outcomes}, or nothing"),
        "rated_at": (0 <= row["rated_at"] <= LATEST_TIME, "seconds since the epoch"),
        "key": (
            8 <= len(row["key"]) <= 100 and row["key"] not in keys,
            "8 to 100 letters, others in each row",
        ),
    }
