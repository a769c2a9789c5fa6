"""Records ratings and outcomes of single clips, and changes, undoes and reads them."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np
from sqlalchemy import exists, or_, select
from sqlalchemy.orm import Session, aliased

from preferl.data.ratings import OUTCOMES, RATINGS, Ratings
from preferl.data.segments import Segments
from preferl.errors import FeedbackError, require_one_of
from preferl.shapes import Array
from preferl.store.clips import ClipStore
from preferl.store.database import Database, clock, rows_among
from preferl.store.quality.rating_report import RatingReport, rating_report
from preferl.store.queue import answering_person, recording
from preferl.store.schema import HIGHEST_RATING, Annotator, Outcome, Query, Rating

VALUES: Final = np.dtype(
    [("clip", "U32"), ("annotator", "i8"), ("value", "i8"), ("is_outcome", "?")]
)
"""A rating or an outcome. The names and numbers of clips and people are those of the store."""

_later = aliased(Rating)
LATEST = ~exists().where(
    _later.project_id == Rating.project_id,
    _later.clip_id == Rating.clip_id,
    _later.annotator_id == Rating.annotator_id,
    _later.id > Rating.id,
)
"""SQL condition: the row is the latest one of its person about its clip."""


class RecordedRating(NamedTuple):
    """A rating and outcome of a clip on disk; `new` is false if the row was recorded before."""

    recorded: int  # number of the row
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
            ConfigError: the outcome is unknown.
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
                raise FeedbackError(f"clip: expected a clip that a query shows, got {clip}.")
            return _add(
                session,
                project_id=project_id,
                clip_id=clip,
                annotator_id=annotator_id,
                key=key,
                rating=rating,
                outcome=outcome,
                undo=False,
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
            changes = (
                select(Rating)
                .where(Rating.project_id == project_id, Rating.annotator_id == annotator_id)
                .order_by(Rating.id)
            )
            standing: list[Rating] = []
            for change in session.scalars(changes):
                if not change.undo:
                    standing.append(change)
                elif standing:
                    standing.pop()
            if not standing:
                return None
            undone = standing.pop()
            before = [change for change in standing if change.clip_id == undone.clip_id]
            return _add(
                session,
                project_id=project_id,
                clip_id=undone.clip_id,
                annotator_id=annotator_id,
                key=key,
                rating=before[-1].rating if before else None,
                outcome=before[-1].outcome if before else None,
                undo=True,
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
        rows = select(Rating).where(Rating.project_id == project_id, LATEST, is_given)
        return self._database.all(rows.order_by(Rating.id))

    def table(self, project_id: int) -> Ratings | None:
        """Return the current ratings and outcomes with the clips' steps, for fitting a reward.

        Returns None where nothing was rated.

        Raises:
            DataError: a clip's file is damaged.
        """
        rows = self.current(project_id)
        if not rows:
            return None
        names = sorted({row.clip_id for row in rows})
        return ratings_among(rows, names, self._clips.segments(project_id, names))

    def report(self, project_id: int, rng: np.random.Generator) -> dict[str, RatingReport]:
        """Return how people rate the clips of a project.

        `rng` draws the resamples that intervals are computed from. There is a report on
        `"ratings"`, and one on `"outcomes"`.
        """
        values = values_of(self.current(project_id))
        people = self._database.all(select(Annotator).where(Annotator.project_id == project_id))
        names = {person.id: person.name for person in people}
        reports = {}
        for kind, scale in {"ratings": RATINGS, "outcomes": OUTCOMES}.items():
            given = values[values["is_outcome"] == (kind == "outcomes")]
            reports[kind] = rating_report(
                clip=given["clip"],
                annotator=given["annotator"],
                value=given["value"],
                scale=scale,
                names=names,
                rng=rng,
            )
        return reports


def values_of(rows: Sequence[Rating]) -> Array:
    """Return `[R]` values with the columns of `VALUES`: all ratings of rows, then all outcomes."""
    values = [
        (row.clip_id, row.annotator_id, row.rating, False) for row in rows if row.rating is not None
    ]
    values += [
        (row.clip_id, row.annotator_id, row.outcome == "success", True)
        for row in rows
        if row.outcome is not None
    ]
    return np.array(values, VALUES)


def ratings_among(rows: Sequence[Rating], names: Sequence[str], segments: Segments) -> Ratings:
    """Return rows of the store as arrays.

    `segments` are the rated clips. `names` are the names of these clips, sorted.
    """
    values = values_of(rows)
    return Ratings(
        segments=segments,
        clip=np.searchsorted(names, values["clip"]),
        annotator=np.unique(values["annotator"], return_inverse=True)[1],
        value=values["value"],
        is_outcome=values["is_outcome"],
    )


def _add(session: Session, **columns: Any) -> RecordedRating:
    row = Rating(**columns, rated_at=clock(session))
    session.add(row)
    session.flush()
    return _recorded(row, new=True)


def _recorded(row: Rating, *, new: bool) -> RecordedRating:
    return RecordedRating(row.id, new, row.clip_id, row.rating, row.outcome)
