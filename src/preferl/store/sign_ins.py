"""Sign-ins by personal links: recorded, checked with every request, ended on the server."""

import secrets
from typing import Final, NamedTuple, final

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from preferl.store.database import Database, now
from preferl.store.people import digest, opens
from preferl.store.schema import Annotator, SignIn

KEPT: Final = 100
"""Sign-ins of a person that are kept; older ones end, so that no link fills the database."""


class Signed(NamedTuple):
    """A person and the token of their session, of which the store keeps a digest only."""

    annotator: Annotator
    token: str


@final
class SignIns:
    """Who has opened their link, and in which sessions they still are.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, secret: str, *, instead_of: str | None = None) -> Signed | None:
        """Sign in by the secret of a link, which counts as one use of it.

        Args:
            secret: of the link.
            instead_of: token of the session that this browser had before, which ends.

        Returns:
            None where the link opens nothing, or not any more.
        """
        token = secrets.token_urlsafe(24)
        chosen = select(Annotator).where(opens(secret)).with_for_update()
        with self._database.write() as session:
            annotator = session.scalar(chosen)
            if annotator is None:
                return None
            if annotator.link_uses is not None:
                annotator.link_uses -= 1
            at = session.scalar(select(now()))
            about = {"annotator_id": annotator.id, "token_hash": digest(token), "began_at": at}
            session.add(SignIn(**about))
            if instead_of is not None:
                _end(session, SignIn.token_hash == digest(instead_of))
            session.flush()
            _forget(session, annotator.id)
        return Signed(annotator, token)

    def person(self, token: str) -> Annotator | None:
        """Whose session this is; None where it has ended, or they may no longer answer."""
        chosen = (
            select(Annotator)
            .join(SignIn, SignIn.annotator_id == Annotator.id)
            .where(
                SignIn.token_hash == digest(token),
                SignIn.ended_at.is_(None),
                Annotator.disabled_at.is_(None),
            )
        )
        with self._database.read() as session:
            return session.scalar(chosen)

    def end(self, token: str) -> None:
        """Sign out of one browser."""
        with self._database.write() as session:
            _end(session, SignIn.token_hash == digest(token))

    def latest(self, project_id: int) -> dict[int, float]:
        """When each person of a project last opened their link, by their number."""
        chosen = (
            select(SignIn.annotator_id, func.max(SignIn.began_at))
            .join(Annotator, Annotator.id == SignIn.annotator_id)
            .where(Annotator.project_id == project_id)
            .group_by(SignIn.annotator_id)
        )
        with self._database.read() as session:
            return {number: float(at) for number, at in session.execute(chosen)}


def _end(session: Session, whose: ColumnElement[bool]) -> None:
    session.execute(update(SignIn).where(whose, SignIn.ended_at.is_(None)).values(ended_at=now()))


def _forget(session: Session, annotator_id: int) -> None:
    own = select(SignIn.id).where(SignIn.annotator_id == annotator_id).order_by(SignIn.id.desc())
    oldest = own.offset(KEPT).limit(1).scalar_subquery()
    session.execute(delete(SignIn).where(SignIn.annotator_id == annotator_id, SignIn.id <= oldest))
