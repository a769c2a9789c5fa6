"""Clips: segments in array files, named by their content.

A clip's name is a digest of its steps, so a clip in several queries is stored only once. Files are
on disk before a row names them, so every label finds its segment even after a crash.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np
from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    Select,
    and_,
    delete,
    func,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from preferl.data.arrays import content_id, load_segments, save_segments
from preferl.data.content import segment_ids
from preferl.data.segments import Segments, join_segments
from preferl.errors import DataError, StorageError
from preferl.remote import SyncedFolder
from preferl.shapes import leaves
from preferl.store.database import MOST_PARAMETERS, Database, clock, now, rows_among
from preferl.store.schema import Clip, Project, Query
from preferl.store.statements import URGENT

CLIPS: Final = "clips"
"""The folder of array files, inside the folder of a store."""

CLIP_ID = re.compile(r"[0-9a-f]{32}")

CLIPS_AT_ONCE: Final = 2_000
"""Number of clips that an import puts into one shard."""

DRAWING_SECONDS: Final = 10.0
"""How long a program's claim on a clip lasts, unless the program extends it before the end."""

EPISODES_KEPT: Final = 4
"""How many of the newest whole episodes stay; one may still be drawn while newer ones come."""

DRAWN_EPISODES_KEPT: Final = 2
"""How many episodes with a video stay: the one on the page, and one that a person may watch."""


@final
class ClipStore:
    """The clips of a store: rows in the database, steps in array files, videos beside them."""

    def __init__(self, database: Database, files: SyncedFolder) -> None:
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
        """Store every row of `segments`, with only the steps they need; return their names.

        Clips that are already stored cost nothing.

        Args:
            project_id: the project that the clips belong to.
            segments: a few thousand at most; they need `states` if pictures are drawn from states.
            kind: `"episode"` for clips that are only watched. The store keeps the few latest
                episodes, and those that queries refer to.
            detail: further information about each clip, as JSON.

        Raises:
            StorageError: the folder or the database cannot be written to. Nothing is stored then.
        """
        ids = clip_ids(segments)
        row_of_clip = dict[str, int]()
        for row, name in enumerate(ids):
            row_of_clip.setdefault(name, row)
        with self._database.read() as session:
            stored_clips = known_clips(session, project_id, row_of_clip)
        new_clips = [name for name in row_of_clip if name not in stored_clips]
        if new_clips:
            rows = np.array([row_of_clip[name] for name in new_clips])
            shard = content_id(np.array(new_clips))
            # Another machine may have removed files that this machine has copies of.
            if self._files.url is not None or not self._has_shard(project_id, shard):
                with self._files.writing(_shard(project_id, shard)) as draft:
                    save_segments(draft, segments.select(rows), durable=False)
            steps = segments.real[rows].tolist()
            clips = [
                Clip(id=name, kind=kind, shard=shard, row=row, steps=steps[row], detail=detail)
                for row, name in enumerate(new_clips)
            ]
            self._add(project_id, clips)
        if kind == "episode":
            self._forget_episodes(project_id, set(ids))
        return ids

    def _add(self, project_id: int, clips: Sequence[Clip]) -> None:
        """Add the rows of clips to a project, except those that it now has."""
        with self._database.write() as session:
            locked_project(session, project_id)
            created_at = clock(session)
            stored_clips = known_clips(session, project_id, [clip.id for clip in clips])
            for clip in clips:
                if clip.id not in stored_clips:
                    clip.project_id = project_id
                    clip.created_at = created_at
                    session.add(clip)

    def segments(self, project_id: int, ids: Sequence[str]) -> Segments:
        """Return the steps of clips, one row per name, in the order of `ids`.

        Raises:
            DataError: a clip is not stored, or its file is damaged.
        """
        statement = select(Clip.id, Clip.shard, Clip.row).where(Clip.project_id == project_id)
        shards: dict[str, dict[str, int]] = {}
        with self._database.read() as session:
            for name, shard, row in rows_among(session, statement, Clip.id, sorted(set(ids))):
                shards.setdefault(shard, {})[name] = row
        row_of_clip = {name: n for n, name in enumerate(chain.from_iterable(shards.values()))}
        for name in ids:
            if name not in row_of_clip:
                raise DataError(f"clip: expected a clip of this project, got {name}.")
        folders = self._files.fetch_all([_shard(project_id, shard) for shard in shards])
        parts = [
            load_segments(folder).select(np.array([*rows.values()]))
            for folder, rows in zip(folders, shards.values(), strict=True)
        ]
        return join_segments(parts).select(np.array([row_of_clip[name] for name in ids]))

    def get(self, project_id: int, clip_id: str) -> Clip | None:
        """Return the row of a clip, or None."""
        with self._database.read() as session:
            return session.get(Clip, (project_id, clip_id))

    def _has_shard(self, project_id: int, shard: str) -> bool:
        return (self._files.inside(_shard(project_id, shard)) / "about.json").is_file()

    def shard(self, project_id: int, shard: str) -> Path:
        """Return the folder of a shard on this machine, after fetching it if it is missing.

        Raises:
            StorageError: the name leads out of the store, or the storage cannot be reached.
        """
        return self._files.fetch(_shard(project_id, shard))

    def video_path(self, project_id: int, clip_id: str, *, fetch: bool = True) -> Path:
        """Return the path of a clip's video on this machine, even if the file does not exist.

        A video that was drawn elsewhere is fetched first, unless `fetch` is false.

        Raises:
            DataError: `clip_id` is not a possible name of a clip.
            StorageError: the storage cannot be reached.
        """
        name = _video(project_id, clip_id)
        path = self._files.inside(name)
        if not fetch or self._files.url is None or path.exists():
            return path
        clip = self.get(project_id, clip_id)
        return path if clip is None or clip.video != "ready" else self._files.fetch(name)

    def put_video(self, project_id: int, clip_id: str, video: bytes) -> bool:
        """Store the video of a clip for people to see; return whether the clip still exists.

        Raises:
            StorageError: the video cannot be written or sent.
        """
        name = _video(project_id, clip_id)
        with self._files.writing(name) as draft:
            draft.write_bytes(video)
        self.video_ready(project_id, [clip_id])
        is_there = self.get(project_id, clip_id) is not None
        if not is_there:
            self._files.remove(name)
        return is_there

    def without_video(self, project_id: int, limit: int) -> list[str]:
        """Return the clips that still need a video; those of the most urgent queries come first.

        Clips that a program is drawing are left out. The last clip is the newest episode, so that
        it is drawn however many queries are pending. Older episodes are left out, because nobody
        watches them.
        """
        first = aliased(Clip)
        second = aliased(Clip)
        pairs = (
            select(first.id, _is_undrawn(first), second.id, _is_undrawn(second))
            .select_from(Query)
            .join(first, and_(first.project_id == project_id, first.id == Query.first_clip))
            .join(second, and_(second.project_id == project_id, second.id == Query.second_clip))
            .where(
                Query.project_id == project_id,
                Query.ready.is_(False),
                Query.cancelled_at.is_(None),
                or_(_is_undrawn(first), _is_undrawn(second)),
            )
            .order_by(*URGENT)
            .limit(limit)
        )
        newest_episode = (
            newest_episodes(project_id).with_only_columns(Clip.id, _is_undrawn(Clip)).limit(1)
        )
        episodes = [name for name, undrawn in self._database.rows(newest_episode) if undrawn]
        undrawn_clips = dict.fromkeys(
            name
            for first_name, first_undrawn, second_name, second_undrawn in self._database.rows(pairs)
            for name, undrawn in ((first_name, first_undrawn), (second_name, second_undrawn))
            if undrawn
        )
        return list(dict.fromkeys([*list(undrawn_clips)[: limit - len(episodes)], *episodes]))

    @contextmanager
    def drawing(self, project_id: int, clip_id: str) -> Iterator[bool]:
        """Claim a clip for the block. Yield false if another program draws it or has drawn it.

        A claim ends after `DRAWING_SECONDS`, even if the program is killed. Extend it before that.
        """
        claimed = self._draw_for(project_id, clip_id, DRAWING_SECONDS, _is_undrawn(Clip))
        try:
            yield claimed
        finally:
            if claimed:
                with suppress(StorageError):  # the claim ends by itself
                    self._draw_for(project_id, clip_id, -1.0)

    def extend_drawing(self, project_id: int, clip_id: str) -> None:
        """Extend the claim on a clip that takes long to draw, by `DRAWING_SECONDS` from now."""
        self._draw_for(project_id, clip_id, DRAWING_SECONDS)

    def is_drawing(self, project_id: int) -> bool:
        """Whether a program is drawing a clip."""
        undrawn = (Clip.project_id == project_id, Clip.video == "none", _is_drawing(Clip))
        return self._database.first(select(Clip.id).where(*undrawn).limit(1)) is not None

    def _draw_for(
        self, project_id: int, clip_id: str, seconds: float, *where: ColumnElement[bool]
    ) -> bool:
        claim = update(Clip).where(Clip.project_id == project_id, Clip.id == clip_id, *where)
        claimed = claim.values(drawing_until=now() + seconds)
        with self._database.write(durable=False) as session:
            options = {"synchronize_session": False}
            return bool(
                session.execute(claimed.returning(Clip.id), execution_options=options).all()
            )

    def video_ready(self, project_id: int, ids: Sequence[str]) -> None:
        """Mark clips as drawn. Queries can be shown when both of their clips have videos."""
        clips = update(Clip).where(Clip.project_id == project_id, Clip.id.in_(ids))
        queries = update(Query).where(
            Query.project_id == project_id,
            Query.ready.is_(False),
            or_(Query.first_clip.in_(ids), Query.second_clip.in_(ids)),
            _video_of(Query.first_clip) == "ready",
            _video_of(Query.second_clip) == "ready",
        )
        with self._database.write() as session:
            # Otherwise two programs that draw the two clips of a pair might both find one missing.
            locked_project(session, project_id)
            session.execute(clips.values(video="ready", video_error=None))
            session.execute(
                queries.values(ready=True), execution_options={"synchronize_session": False}
            )

    def video_failed(self, project_id: int, clip_id: str, error: str) -> None:
        """Mark a clip as failed, with the error. Its queries wait until it can be drawn."""
        clip = update(Clip).where(Clip.project_id == project_id, Clip.id == clip_id)
        with self._database.write() as session:
            session.execute(clip.values(video="failed", video_error=error[:1000]))

    def retry_failed(self, project_id: int) -> int:
        """Let programs draw failed videos again; return the number of these videos."""
        failed = update(Clip).where(Clip.project_id == project_id, Clip.video == "failed")
        retried = failed.values(video="none", video_error=None, drawing_until=None)
        with self._database.write() as session:
            return len(session.execute(retried.returning(Clip.id)).all())

    def _forget_episodes(self, project_id: int, new_clips: Collection[str]) -> None:
        """Remove older episodes that no query refers to; their rows go before their files."""
        episodes = self._database.all(newest_episodes(project_id))
        drawn_episodes = [clip for clip in episodes if clip.video == "ready"][:DRAWN_EPISODES_KEPT]
        kept_clips = {
            *new_clips,
            *(clip.id for clip in [*episodes[:EPISODES_KEPT], *drawn_episodes]),
        }
        old_clips = [clip.id for clip in episodes if clip.id not in kept_clips][:MOST_PARAMETERS]
        if not old_clips:
            return
        queries = select(Query.id).where(
            Query.project_id == project_id,
            or_(Query.first_clip == Clip.id, Query.second_clip == Clip.id),
        )
        deletion = (
            delete(Clip)
            .where(Clip.project_id == project_id, Clip.id.in_(old_clips), ~queries.exists())
            .returning(Clip.id, Clip.shard)
            .execution_options(synchronize_session=False)
        )
        with self._database.write() as session:
            removed = session.execute(deletion).all()
            shards = {shard for _, shard in removed}
            used_shards = select(Clip.shard).where(
                Clip.project_id == project_id, Clip.shard.in_(shards)
            )
            shards -= set(session.scalars(used_shards))
        with suppress(OSError):  # a file that stays only takes space
            for name, _ in removed:
                self._files.remove(_video(project_id, name))
            for shard in shards:
                self._files.remove(_shard(project_id, shard))


def _is_drawing(clip: type[Clip]) -> ColumnElement[bool]:
    """SQL: whether a program has a valid claim to draw a clip.

    A claim ends by itself. A claim from the future does not count, as the clock was set back.
    """
    return func.coalesce(clip.drawing_until, 0.0).between(now(), now() + DRAWING_SECONDS)


def _is_undrawn(clip: type[Clip]) -> ColumnElement[bool]:
    """SQL: whether a clip has no video and no program is drawing it."""
    return and_(clip.video == "none", not_(_is_drawing(clip)))


def _video_of(clip: InstrumentedAttribute[str]) -> ScalarSelect[str]:
    """SQL: the state of the video of a query's clip. It is looked up by key, as clips are many."""
    conditions = (Clip.project_id == Query.project_id, Clip.id == clip)
    return select(Clip.video).where(*conditions).scalar_subquery()


def _shard(project_id: int, shard: str) -> str:
    """Return the name of a shard among the files of a store."""
    return f"{CLIPS}/{project_id}/{shard}"


def _video(project_id: int, clip_id: str) -> str:
    """Return the name of a clip's video among the files of a store."""
    if not CLIP_ID.fullmatch(clip_id):
        raise DataError(f"clip: expected 32 digits of a digest, got {clip_id!r}.")
    return f"videos/{project_id}/{clip_id}.mp4"


def clip_ids(segments: Segments) -> list[str]:
    """Return the name of each row: a digest of its real steps, the same on every machine."""
    columns = [*leaves(segments.observations), segments.actions, segments.rewards]
    if segments.states is not None:
        columns.append(segments.states)
    return [str(name) for name in segment_ids(segments, columns)]


def distinct_clips(segments: Segments) -> Segments:
    """Return the segments without repetitions: windows with the same steps are one clip.

    >>> block = np.array([[1.0], [2.0], [1.0], [2.0], [1.0]])
    >>> segments = Segments(block, block, block[:, 0], np.arange(4), np.full(4, 2), 2)
    >>> distinct_clips(segments).start.tolist()
    [0, 1]
    """
    rows = np.sort(np.unique(clip_ids(segments), return_index=True)[1])
    if len(rows) == len(segments):
        return segments
    origin = None if segments.origin is None else segments.origin[rows]
    return replace(segments, start=segments.start[rows], real=segments.real[rows], origin=origin)


def newest_episodes(project_id: int) -> Select[Clip]:
    """SQL: the whole episodes of a project, newest first."""
    statement = select(Clip).where(Clip.project_id == project_id, Clip.kind == "episode")
    return statement.order_by(Clip.created_at.desc(), Clip.id)


def locked_project(session: Session, project_id: int) -> Project:
    """Lock and return a project's row, so that programs which read and then add take turns."""
    return session.get_one(Project, project_id, with_for_update={"key_share": True})


def known_clips(session: Session, project_id: int, names: Iterable[str]) -> dict[str, bool]:
    """Return which of these names are stored clips, each with whether it has a video."""
    statement = select(Clip.id, Clip.video).where(Clip.project_id == project_id)
    rows = rows_among(session, statement, Clip.id, sorted(set(names)))
    return {name: video == "ready" for name, video in rows}
