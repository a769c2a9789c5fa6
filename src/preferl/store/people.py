"""People of a project: their personal links, roles, sign-ins, and whether they may still answer.

A link holds a random secret of which the store keeps a digest only; who has the link is the person.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple, final

from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select, update
from sqlalchemy.orm import Session

from preferl.errors import ConfigError, require_in
from preferl.store.database import Database, clock, now
from preferl.store.names import LONGEST_NAME, OWNER, is_name, refuse_owner, tidy
from preferl.store.schema import ROLES, Annotator, Project, Role, SignIn


class Invitation(NamedTuple):
    """A person and the secret of their link, which is told this once."""

    annotator: Annotator
    secret: str


@final
class People:
    """The annotators of a store.

    Args:
        database: where they are kept.
        key: gives the secret of the store, from which the owner's is derived.
    """

    def __init__(self, database: Database, key: Callable[[], bytes]) -> None:
        self._database = database
        self._key = key

    def invite(
        self,
        project_id: int,
        name: str,
        role: Role = "annotator",
        *,
        hours: float | None = None,
        uses: int | None = None,
    ) -> Invitation:
        """Let a person in; one who was invited before gets a new link, and the old one ends.

        Args:
            project_id: where to.
            name: of the person.
            role: what they may do.
            hours: for which the link opens; without end if None. Sessions are not cut short.
            uses: how often it opens; without end if None.

        Raises:
            ConfigError: a name without letters or of over 80, or one like the owner's; a role that
                does not exist, no such project, or numbers that are not above zero.
        """
        refuse_owner(name)
        if hours is not None:
            require_in("hours", hours, 1e-3, 24 * 3650)
        if uses is not None:
            require_in("uses", uses, 1, 1_000_000)
        secret = secrets.token_urlsafe(24)
        return self._admit(project_id, name, role, secret, hours=hours, uses=uses)

    def revoke(self, project_id: int, name: str) -> Annotator:
        """End the link of a person and all their sessions; a new invitation lets them in again.

        Raises:
            ConfigError: there is nobody of this name, or it is the owner's.
        """
        refuse_owner(name)
        name = tidy(name)
        with self._database.write() as session:
            annotator = session.scalar(_named(project_id, name))
            if annotator is None:
                raise ConfigError.mismatch("name", expected="somebody here", got=repr(name[:100]))
            _change_link(session, annotator, _digest(secrets.token_urlsafe(24)))
        return annotator

    def owner(self, project_id: int) -> Invitation:
        """The admin on this machine, whose link stays the same."""
        told = hmac.new(self._key(), f"owner of {project_id}".encode(), hashlib.sha256)
        return self._admit(project_id, OWNER, "admin", told.hexdigest())

    def by_secret(self, secret: str) -> Annotator | None:
        """Whose link this is; None where nobody's, or of somebody who may no longer answer."""
        return self._database.first(select(Annotator).where(_opens(secret)))

    def get(self, annotator_id: int) -> Annotator:
        """The person of this number.

        Raises:
            ConfigError: there is none.
        """
        with self._database.read() as session:
            return _existing(session, annotator_id)

    def all(self, project_id: int) -> list[Annotator]:
        """Everybody in a project, oldest first."""
        chosen = select(Annotator).where(Annotator.project_id == project_id)
        return self._database.all(chosen.order_by(Annotator.id))

    def update(
        self,
        annotator_id: int,
        *,
        role: Role | None = None,
        disabled: bool | None = None,
        qualified: bool | None = None,
    ) -> Annotator:
        """Change what a person may do; None leaves as it is.

        Raises:
            ConfigError: no such person or role.
        """
        with self._database.write() as session:
            annotator = _existing(session, annotator_id)
            at = clock(session)
            if role is not None:
                annotator.role = _known(role)
            if disabled is not None:
                annotator.disabled_at = at if disabled else None
            if qualified is not None:
                annotator.qualified_at = at if qualified else None
        return annotator

    def _admit(
        self,
        project_id: int,
        name: str,
        role: Role,
        secret: str,
        *,
        hours: float | None = None,
        uses: int | None = None,
    ) -> Invitation:
        name = tidy(name)
        if not is_name(name):
            raise ConfigError.mismatch(
                "name", expected=f"1 to {LONGEST_NAME} letters", got=repr(name[:100])
            )
        with self._database.write() as session:
            if session.get(Project, project_id) is None:
                raise ConfigError.mismatch("project", expected="one that exists", got=project_id)
            annotator, at = session.scalar(_named(project_id, name)), clock(session)
            if annotator is None:
                annotator = Annotator(project_id=project_id, name=name, created_at=at)
                session.add(annotator)
            annotator.role = _known(role)
            annotator.disabled_at = None
            _change_link(session, annotator, _digest(secret))
            annotator.link_expires_at = None if hours is None else at + 3600 * hours
            annotator.link_uses = uses
            session.flush()
        return Invitation(annotator, secret)


def _opens(secret: str) -> ColumnElement[bool]:
    """SQL: whether this is the secret of a person's link, which opens now."""
    return and_(
        Annotator.secret_hash == _digest(secret),
        Annotator.disabled_at.is_(None),
        or_(Annotator.link_expires_at.is_(None), Annotator.link_expires_at > now()),
        or_(Annotator.link_uses.is_(None), Annotator.link_uses > 0),
    )


def _named(project_id: int, name: str) -> Select[Annotator]:
    return select(Annotator).where(Annotator.project_id == project_id, Annotator.name == name)


def _change_link(session: Session, annotator: Annotator, secret_hash: str) -> None:
    """Give a person another link, which ends the sessions that came by the old one."""
    if annotator.id is not None and annotator.secret_hash != secret_hash:
        session.execute(
            update(SignIn)
            .where(SignIn.annotator_id == annotator.id, SignIn.ended_at.is_(None))
            .values(ended_at=now())
        )
    annotator.secret_hash = secret_hash


def _digest(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _existing(session: Session, annotator_id: int) -> Annotator:
    found = session.get(Annotator, annotator_id)
    if found is None:
        raise ConfigError.mismatch("annotator", expected="one that exists", got=annotator_id)
    return found


def _known(role: str) -> str:
    if role not in ROLES:
        raise ConfigError.mismatch("role", expected=f"one of {', '.join(ROLES)}", got=repr(role))
    return role


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
        chosen = select(Annotator).where(_opens(secret)).with_for_update()
        with self._database.write() as session:
            annotator = session.scalar(chosen)
            if annotator is None:
                return None
            if annotator.link_uses is not None:
                annotator.link_uses -= 1
            about = {"annotator_id": annotator.id, "token_hash": _digest(token)}
            session.add(SignIn(**about, began_at=clock(session)))
            if instead_of is not None:
                _end(session, SignIn.token_hash == _digest(instead_of))
            session.flush()
            _forget(session, annotator.id)
        return Signed(annotator, token)

    def person(self, token: str) -> Annotator | None:
        """Whose session this is; None where it has ended, or they may no longer answer."""
        chosen = (
            select(Annotator)
            .join(SignIn, SignIn.annotator_id == Annotator.id)
            .where(
                SignIn.token_hash == _digest(token),
                SignIn.ended_at.is_(None),
                Annotator.disabled_at.is_(None),
            )
        )
        return self._database.first(chosen)

    def end(self, token: str) -> None:
        """Sign out of one browser."""
        with self._database.write() as session:
            _end(session, SignIn.token_hash == _digest(token))

    def latest(self, project_id: int) -> dict[int, float]:
        """When each person of a project last opened their link, by their number."""
        chosen = (
            select(SignIn.annotator_id, func.max(SignIn.began_at))
            .join(Annotator, Annotator.id == SignIn.annotator_id)
            .where(Annotator.project_id == project_id)
            .group_by(SignIn.annotator_id)
        )
        return {number: float(at) for number, at in self._database.rows(chosen)}


def _end(session: Session, whose: ColumnElement[bool]) -> None:
    session.execute(update(SignIn).where(whose, SignIn.ended_at.is_(None)).values(ended_at=now()))


def _forget(session: Session, annotator_id: int) -> None:
    own = select(SignIn.id).where(SignIn.annotator_id == annotator_id).order_by(SignIn.id.desc())
    oldest = own.offset(KEPT).limit(1).scalar_subquery()
    session.execute(delete(SignIn).where(SignIn.annotator_id == annotator_id, SignIn.id <= oldest))
