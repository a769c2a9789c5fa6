"""Records ratings and outcomes of single clips, and changes, undoes and reads them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np
from sqlalchemy import Select, exists, or_, select
from sqlalchemy.orm import Session, aliased

from preferl.data.ratings import Ratings
from preferl.data.segments import Segments
from preferl.errors import FeedbackError, require_one_of
from preferl.shapes import FloatArray
from preferl.store.clips import ClipStore
from preferl.store.database import Database, clock, rows_among
from preferl.store.quality.rating_report import RatingReport, rating_report
from preferl.store.queue import answering_person, recording
from preferl.store.schema import HIGHEST_RATING, Annotator, Outcome, Query, Rating

_later = aliased(Rating)
LATEST = ~exists().where(
    _later.project_id == Rating.project_id,
    _later.clip_id == Rating.clip_id,
    _later.annotator_id == Rating.annotator_id,
    _later.id > Rating.id,
)
"""SQL condition: the row is the latest one of its person about its clip."""

_undoing = aliased(Rating)
_STANDS = (Rating.undoes.is_(None), ~exists().where(_undoing.undoes == Rating.key))


class RecordedRating(NamedTuple):
    """A rating and outcome of a clip on disk; `new` is false if the row was recorded before."""

    rating_id: int
    new: bool
    clip: str
    rating: int | None
    outcome: str | None


@final
class GivenRatings:
    """Records and reads ratings and outcomes of single clips, next to answers about pairs."""

    def __init__(self, database: Database, clips: ClipStore) -> None:
        self._database = database
        self._clips = clips

    def rate(
        self,
        project_id: int,
        annotator_id: int,
        clip: str,
        key: str,
        *,
        rating: int | None = None,
        outcome: Outcome | None = None,
    ) -> RecordedRating:
        """Record a person's rating and outcome of a clip; both are on disk when this returns.

        The new rating and outcome replace the person's earlier ones of that clip. Earlier rows stay
        in the store.

        Args:
            project_id: the project.
            annotator_id: who rates.
            clip: name of a clip that a query of the project shows.
            key: names this change, and is chosen by the sender. Sending it again changes nothing.
            rating: from 1, the worst, to 5, the best; None if there is none.
            outcome: whether the clip reaches its goal, `"success"` or `"failure"`; None if it is
                not said.

        Raises:
            ConfigError: an unknown outcome.
            FeedbackError: the person may not answer, no query shows the clip, or the rating is out
                of range. Nothing is written then.
        """
        if rating is not None and rating not in range(1, HIGHEST_RATING + 1):
            raise FeedbackError(f"rating: expected 1 to {HIGHEST_RATING}, got {rating}.")
        if outcome is not None:
            require_one_of("outcome", outcome, Outcome)
        with recording(self._database, Rating, annotator_id, key) as (session, known):
            answering_person(session, project_id, annotator_id)
            if known is not None:
                return _recorded(known, new=False)
            shown = select(Query.id).where(
                Query.project_id == project_id,
                or_(Query.first_clip == clip, Query.second_clip == clip),
            )
            if session.scalar(shown.limit(1)) is None:
                raise FeedbackError(f"clip: expected one that a query shows, got {clip}.")
            return _add(
                session,
                project_id=project_id,
                clip_id=clip,
                annotator_id=annotator_id,
                key=key,
                rating=rating,
                outcome=outcome,
            )

    def undo(self, project_id: int, annotator_id: int, key: str) -> RecordedRating | None:
        """Undo the latest change of a person, and return the current rating of its clip.

        Earlier changes can then be undone one by one. Sending the same `key` again changes nothing.
        Returns None if there is nothing to undo.
        """
        with recording(self._database, Rating, annotator_id, key) as (session, known):
            answering_person(session, project_id, annotator_id)
            if known is not None:
                return _recorded(known, new=False)
            standing = (
                select(Rating)
                .where(Rating.project_id == project_id, Rating.annotator_id == annotator_id)
                .where(*_STANDS)
                .order_by(Rating.id.desc())
                .limit(1)
            )
            undone = session.scalar(standing)
            if undone is None:
                return None
            same_clip = (Rating.clip_id == undone.clip_id, Rating.id < undone.id)
            before = session.scalar(standing.where(*same_clip))
            return _add(
                session,
                project_id=project_id,
                clip_id=undone.clip_id,
                annotator_id=annotator_id,
                key=key,
                rating=None if before is None else before.rating,
                outcome=None if before is None else before.outcome,
                undoes=undone.key,
            )

    def of_person(self, annotator_id: int, clips: Sequence[str]) -> dict[str, Rating]:
        """Return the current ratings and outcomes of a person, by the clip's name."""
        latest = select(Rating).where(Rating.annotator_id == annotator_id, LATEST)
        with self._database.read() as session:
            rows = rows_among(session, latest, Rating.clip_id, clips)
            return {row.clip_id: row for (row,) in rows}

    def current(self, project_id: int) -> list[Rating]:
        """Return the current ratings and outcomes, oldest first, without empty rows."""
        is_given = or_(Rating.rating.is_not(None), Rating.outcome.is_not(None))
        return self._database.all(current_ratings(project_id).where(is_given))

    def table(self, project_id: int) -> Ratings:
        """Return the current ratings and outcomes with the clips' steps, for fitting a reward.

        Raises:
            DataError: nothing was rated, or a clip's file is damaged.
        """
        rows = self.current(project_id)
        names = sorted({row.clip_id for row in rows})
        return ratings_among(rows, names, self._clips.segments(project_id, names))

    def report(self, project_id: int, rng: np.random.Generator) -> RatingReport:
        """Return how people rate the clips of a project.

        `rng` draws the resamples that intervals are computed from.
        """
        rows = self.current(project_id)
        people = select(Annotator.id, Annotator.name).where(Annotator.project_id == project_id)
        rows_of_people = self._database.rows(people.order_by(Annotator.id))
        names = {number: name for number, name in rows_of_people}  # noqa: C416 (typed rows)
        return rating_report(
            np.unique([row.clip_id for row in rows], return_inverse=True)[1],
            np.searchsorted([*names], [row.annotator_id for row in rows]),
            rating_numbers(rows),
            outcome_numbers(rows),
            names=[*names.values()],
            rng=rng,
        )


def current_ratings(project_id: int) -> Select[Rating]:
    """SQL: the latest row of each person about each clip of a project, oldest first."""
    return select(Rating).where(Rating.project_id == project_id, LATEST).order_by(Rating.id)


def ratings_among(rows: Sequence[Rating], names: Sequence[str], segments: Segments) -> Ratings:
    """Return rows of the store as arrays.

    `segments` are the rated clips. `names` are the names of these clips, sorted.
    """
    return Ratings(
        segments=segments,
        clip=np.searchsorted(names, [row.clip_id for row in rows]),
        annotator=np.unique([row.annotator_id for row in rows], return_inverse=True)[1],
        rating=rating_numbers(rows),
        outcome=outcome_numbers(rows),
        rated_at=np.array([row.rated_at for row in rows], np.float64),
    )


def rating_numbers(rows: Sequence[Rating]) -> FloatArray:
    """`[R]` the ratings of rows, NaN where there is none."""
    return np.array([row.rating for row in rows], np.float64)  # None is NaN


def outcome_numbers(rows: Sequence[Rating]) -> FloatArray:
    """`[R]` the outcomes of rows: 1 for success, 0 for failure, NaN where there is none."""
    numbers = {"success": 1.0, "failure": 0.0, None: np.nan}
    return np.array([numbers[row.outcome] for row in rows], np.float64)


def _add(session: Session, **columns: Any) -> RecordedRating:
    row = Rating(**columns, rated_at=clock(session))
    session.add(row)
    session.flush()
    return _recorded(row, new=True)


def _recorded(row: Rating, *, new: bool) -> RecordedRating:
    return RecordedRating(row.id, new, row.clip_id, row.rating, row.outcome)
