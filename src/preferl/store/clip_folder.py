"""The clips of a project as a folder of arrays, which is enough to learn from without the store."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from sqlalchemy import select

from preferl.data.arrays import load_arrays, load_comparisons, load_segments, save_arrays
from preferl.data.comparisons import Comparisons
from preferl.data.segments import Segments
from preferl.errors import DataError, FeedbackError
from preferl.shapes import IntArray
from preferl.store.clips import clip_ids
from preferl.store.combine import CombineMethod
from preferl.store.feedback import StoredFeedback
from preferl.store.schema import Clip, Query
from preferl.store.store import Store

AT_ONCE: Final = 2_000
"""Clips that go into one shard."""


def export_segments(
    store: Store, project_id: int, path: Path | str, *, combine: CombineMethod = "mean"
) -> int:
    """Write all clips that queries of a project name, and what was said of them; how many clips.

    `preferl.data.load_comparisons` reads the folder. Beside what that needs it holds `clips`,
    the name of each segment in the table of answers, and `cut`, the episode and first step of
    each and the episode of its last step, -1 where they are not known.

    Args:
        store: where they are.
        project_id: whose.
        path: the folder, replaced if it is one of preferl's.
        combine: how several answers become one; comparisons without an answer are left out.

    Raises:
        ConfigError: no such project.
        DataError: no queries, or clips of different length.
        StorageError: the folder cannot be written.
    """
    project = store.projects.get(project_id)
    names, at = _asked(store, project_id)
    if not names:
        raise DataError.mismatch(
            f"project {project.slug}", expected="at least one query", got="none"
        )
    segments = store.clips.segments(project_id, names)
    cut = _cuts(store.files / "clips" / str(project_id), at)
    comparisons = _comparisons(store, project_id, segments, names, combine)
    seen = segments.observations
    named = seen if isinstance(seen, dict) else {"": seen}
    arrays = {
        **{f"observations/{key}".removesuffix("/"): leaf for key, leaf in named.items()},
        "actions": segments.actions,
        "rewards": segments.rewards,
        "start": segments.start,
        "real": segments.real,
        "pairs": comparisons.pairs,
        "preference": comparisons.preference,
        "weight": comparisons.weight,
        "clips": np.array(names),
        "cut": cut,
    }
    if segments.states is not None:
        arrays["states"] = segments.states
    save_arrays(Path(path), arrays, {"kind": "comparisons", "length": segments.length})
    return len(names)


def import_segments(store: Store, project_id: int, path: Path | str) -> list[str]:
    """Store the clips of a folder that `export_segments` wrote; their names, as they were.

    Raises:
        DataError: another folder, or clips that are not what their names say.
        StorageError: the store cannot be written to.
    """
    path = Path(path)
    arrays = load_arrays(path)[0]
    if not {"clips", "cut"} <= arrays.keys():
        raise DataError.mismatch(
            f"{path}", expected="clips that were exported from a store", got=[*arrays]
        )
    segments = load_comparisons(path).segments
    names: list[str] = arrays["clips"].tolist()
    cut = np.asarray(arrays["cut"])
    if len(names) != len(segments) or cut.shape != (len(segments), 3):
        raise DataError.mismatch(f"{path}", expected="a name and a cut per clip", got=len(names))
    known = np.flatnonzero((cut >= 0).all(axis=1))
    unknown = np.setdiff1d(np.arange(len(cut)), known)
    for where, rows in ((cut, known), (None, unknown)):
        there = replace(segments, origin=where)
        for start in range(0, len(rows), AT_ONCE):
            some = there.select(rows[start : start + AT_ONCE])
            expected = [names[row] for row in rows[start : start + AT_ONCE]]
            if clip_ids(some) != expected:
                fix = "The folder is damaged, or a newer version wrote it."
                raise DataError.mismatch(
                    f"{path}", expected="clips of these names", got="others", fix=fix
                )
            store.clips.put(project_id, some)
    return names


def _asked(store: Store, project_id: int) -> tuple[list[str], list[tuple[str, int]]]:
    """Names of the clips that queries name, in order, and the shard and row of each."""
    first, second = (
        select(side).where(Query.project_id == project_id)
        for side in (Query.first_clip, Query.second_clip)
    )
    chosen = (
        select(Clip.id, Clip.shard, Clip.row)
        .where(Clip.project_id == project_id, Clip.id.in_(first.union(second)))
        .order_by(Clip.id)
    )
    rows = store.database.rows(chosen)
    return [name for name, _, _ in rows], [(shard, row) for _, shard, row in rows]


def _cuts(folder: Path, at: list[tuple[str, int]]) -> IntArray:
    """`[N, 3]` where the clips in these rows of these shards were cut."""
    cut = np.full((len(at), 3), -1, np.int64)
    shards, place = np.unique([shard for shard, _ in at], return_inverse=True)
    row = np.array([row for _, row in at], np.int64)
    for number, shard in enumerate(shards.tolist()):
        origin = load_segments(folder / shard).origin
        if origin is not None:
            here = place == number
            cut[here] = origin[row[here]]
    return cut


def _comparisons(
    store: Store, project_id: int, segments: Segments, names: list[str], combine: CombineMethod
) -> Comparisons:
    """What was answered so far, over these segments."""
    try:
        told = StoredFeedback(store, project_id, combine=combine).comparisons()
    except FeedbackError:  # nothing yet
        nothing = np.zeros(0)
        return Comparisons(segments, np.zeros((0, 2), np.int64), nothing, nothing)
    place = {name: row for row, name in enumerate(names)}
    row = np.array([place[name] for name in clip_ids(told.segments)], np.int64)
    return replace(told, segments=segments, pairs=row[told.pairs])
