"""Clips: segments in array files, found by what they hold.

A clip's name is a digest of its steps, so that what is asked twice is stored once, and any label
can be joined to its segment after any crash: files are on disk before a row names them.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session, aliased

from preferl.data.arrays import content_id, load_segments, save_segments
from preferl.data.segments import Segments, join_segments
from preferl.errors import DataError, mismatch
from preferl.shapes import leaves
from preferl.store.database import Database, now
from preferl.store.schema import Clip, Query

CLIP_ID = re.compile(r"[0-9a-f]{32}")
MOST_PARAMETERS = 500
"""Names per statement: databases bound how many values one may hold."""


@final
class ClipStore:
    """The clips of a store: rows in the database, steps in array files, videos beside them."""

    def __init__(self, database: Database, files: Path) -> None:
        self._database = database
        self._files = files

    def put(
        self,
        project_id: int,
        segments: Segments,
        *,
        kind: Literal["segment", "episode"] = "segment",
        detail: dict[str, Any] | None = None,
    ) -> list[str]:
        """Store every row of `segments`, with only the steps they need; returns their names.

        Rows that are there already cost nothing.

        Args:
            project_id: whose.
            segments: at most some thousands; with `states` if pictures are made from them.
            kind: `"episode"` for what is only looked at.
            detail: what else to remember of each of them, as JSON.

        Raises:
            StorageError: the folder or the database cannot be written to; nothing is stored then.
        """
        ids = clip_ids(segments)
        place: dict[str, int] = {}
        for row, name in enumerate(ids):
            place.setdefault(name, row)
        with self._database.read() as session:
            known = _existing(session, project_id, list(place))
        fresh = {name: row for name, row in place.items() if name not in known}
        if fresh:
            shard = content_id(np.array(list(fresh)))
            folder = self._folder(project_id) / shard
            if not (folder / "about.json").is_file():
                rows = np.array(list(fresh.values()))
                save_segments(folder, segments.select(rows), durable=True)
            with self._database.write() as session:
                at = session.scalar(select(now()))
                fresh_now = set(fresh) - _existing(session, project_id, list(fresh))
                session.add_all(
                    Clip(
                        project_id=project_id,
                        id=name,
                        kind=kind,
                        shard=shard,
                        row=position,
                        steps=int(segments.real[row]),
                        detail=detail,
                        created_at=at,
                    )
                    for position, (name, row) in enumerate(fresh.items())
                    if name in fresh_now
                )
        return ids

    def segments(self, project_id: int, ids: Sequence[str]) -> Segments:
        """The steps of clips, one row per name in this order.

        Raises:
            DataError: a name that is not stored, or a damaged file.
        """
        at = self._places(project_id, sorted(set(ids)))
        missing = [name for name in ids if name not in at]
        if missing:
            raise DataError(mismatch("clip", expected="one of this project", got=missing[0]))
        shards: dict[str, list[str]] = {}
        for name, (shard, _) in at.items():
            shards.setdefault(shard, []).append(name)
        parts = [
            load_segments(self._folder(project_id) / shard).select(
                np.array([at[name][1] for name in names])
            )
            for shard, names in shards.items()
        ]
        row = {
            name: n for n, name in enumerate(name for group in shards.values() for name in group)
        }
        joined = join_segments(parts)
        return joined.select(np.array([row[name] for name in ids]))

    def get(self, project_id: int, clip_id: str) -> Clip | None:
        """The row of a clip, or None."""
        with self._database.read() as session:
            return session.get(Clip, (project_id, clip_id))

    def video_path(self, project_id: int, clip_id: str) -> Path:
        """Where the video of a clip is, or will be.

        Raises:
            DataError: a name that no clip can have.
        """
        if not CLIP_ID.fullmatch(clip_id):
            raise DataError(mismatch("clip", expected="32 digits of a digest", got=repr(clip_id)))
        return self._files / "videos" / str(project_id) / f"{clip_id}.mp4"

    def without_video(self, project_id: int, limit: int) -> list[str]:
        """Clips that people are to see and cannot yet, those of the most urgent queries first."""
        first, second = aliased(Clip), aliased(Clip)
        episodes = (
            select(Clip.id)
            .where(Clip.project_id == project_id, Clip.kind == "episode", Clip.video == "none")
            .order_by(Clip.created_at)
            .limit(limit)
        )
        pairs = (
            select(first.id, first.video, second.id, second.video)
            .select_from(Query)
            .join(first, and_(first.project_id == project_id, first.id == Query.first_clip))
            .join(second, and_(second.project_id == project_id, second.id == Query.second_clip))
            .where(
                Query.project_id == project_id,
                Query.ready.is_(False),
                Query.cancelled_at.is_(None),
                or_(first.video == "none", second.video == "none"),
            )
            .order_by(Query.priority.desc(), Query.id)
            .limit(limit)
        )
        with self._database.read() as session:
            wanted = dict.fromkeys(session.scalars(episodes))  # there is one at a time
            for one, its_video, other, other_video in session.execute(pairs):
                drawn = {one: its_video, other: other_video}
                wanted |= dict.fromkeys(name for name, video in drawn.items() if video == "none")
        return list(wanted)[:limit]

    def video_ready(self, project_id: int, ids: Sequence[str]) -> None:
        """Note that these have videos; queries whose clips both have can then be shown."""
        with self._database.write() as session:
            session.execute(
                update(Clip)
                .where(Clip.project_id == project_id, Clip.id.in_(ids))
                .values(video="ready", video_error=None)
            )
            mark_ready(session, project_id, ids)

    def video_failed(self, project_id: int, clip_id: str, error: str) -> None:
        """Note that a clip cannot be shown, and why; its queries wait until that is mended."""
        with self._database.write() as session:
            session.execute(
                update(Clip)
                .where(Clip.project_id == project_id, Clip.id == clip_id)
                .values(video="failed", video_error=error[:1000])
            )

    def retry_failed(self, project_id: int) -> int:
        """Let videos that failed be tried again; returns how many there are."""
        with self._database.write() as session:
            done = session.execute(
                update(Clip)
                .where(Clip.project_id == project_id, Clip.video == "failed")
                .values(video="none", video_error=None)
                .returning(Clip.id)
            )
            return len(done.all())

    def _folder(self, project_id: int) -> Path:
        return self._files / "clips" / str(project_id)

    def _places(self, project_id: int, ids: Sequence[str]) -> dict[str, tuple[str, int]]:
        found: dict[str, tuple[str, int]] = {}
        with self._database.read() as session:
            for start in range(0, len(ids), MOST_PARAMETERS):
                some = ids[start : start + MOST_PARAMETERS]
                chosen = select(Clip.id, Clip.shard, Clip.row).where(
                    Clip.project_id == project_id, Clip.id.in_(some)
                )
                found |= {name: (shard, row) for name, shard, row in session.execute(chosen)}
        return found


def clip_ids(segments: Segments) -> list[str]:
    """The name of each row by its real steps: the same in every process and on every machine."""
    columns = [*leaves(segments.observations), segments.actions, segments.rewards]
    if segments.states is not None:
        columns.append(segments.states)
    ends = segments.start + segments.real
    return [
        content_id(*(column[start:end] for column in columns))
        for start, end in zip(segments.start, ends, strict=True)
    ]


def mark_ready(session: Session, project_id: int, clips: Sequence[str]) -> None:
    """Let queries about these clips be shown where both sides now have videos."""
    shown = select(Clip.id).where(Clip.project_id == project_id, Clip.video == "ready")
    session.execute(
        update(Query)
        .where(
            Query.project_id == project_id,
            Query.ready.is_(False),
            or_(Query.first_clip.in_(clips), Query.second_clip.in_(clips)),
            Query.first_clip.in_(shown),
            Query.second_clip.in_(shown),
        )
        .values(ready=True)
        .execution_options(synchronize_session=False)
    )


def _existing(session: Session, project_id: int, ids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(ids), MOST_PARAMETERS):
        some = ids[start : start + MOST_PARAMETERS]
        chosen = select(Clip.id).where(Clip.project_id == project_id, Clip.id.in_(some))
        found |= set(session.scalars(chosen))
    return found
