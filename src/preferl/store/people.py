"""People of a project: their personal links, roles, and whether they may still answer.

A link holds a random secret of which the store keeps a digest only; who has the link is the person.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import NamedTuple, final

from sqlalchemy import select
from sqlalchemy.orm import Session

from preferl.errors import ConfigError, mismatch
from preferl.store.database import Database, now
from preferl.store.schema import ROLES, Annotator, Project, Role

OWNER = "owner"
"""Name of the admin who works on the machine of the store."""

LONGEST_NAME = 80


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

    def invite(self, project_id: int, name: str, role: Role = "annotator") -> Invitation:
        """Let a person in; one who was invited before gets a new link, and the old one ends.

        Raises:
            ConfigError: a name without letters or of over 80, a role that does not exist, or no
                such project.
        """
        return self._admit(project_id, name, role, secrets.token_urlsafe(24))

    def owner(self, project_id: int) -> Invitation:
        """The admin on this machine, whose link stays the same."""
        told = hmac.new(self._key(), f"owner of {project_id}".encode(), hashlib.sha256)
        return self._admit(project_id, OWNER, "admin", told.hexdigest())

    def by_secret(self, secret: str) -> Annotator | None:
        """Whose link this is; None where nobody's, or of somebody who may no longer answer."""
        chosen = select(Annotator).where(
            Annotator.secret_hash == _digest(secret), Annotator.disabled_at.is_(None)
        )
        with self._database.read() as session:
            return session.scalar(chosen)

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
        with self._database.read() as session:
            return list(session.scalars(chosen.order_by(Annotator.id)))

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
            at = session.scalar(select(now()))
            if role is not None:
                annotator.role = _known(role)
            if disabled is not None:
                annotator.disabled_at = at if disabled else None
            if qualified is not None:
                annotator.qualified_at = at if qualified else None
        return annotator

    def _admit(self, project_id: int, name: str, role: Role, secret: str) -> Invitation:
        name = " ".join(name.split())
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise ConfigError(
                mismatch("name", expected=f"1 to {LONGEST_NAME} letters", got=repr(name[:100]))
            )
        with self._database.write() as session:
            if session.get(Project, project_id) is None:
                raise ConfigError(mismatch("project", expected="one that exists", got=project_id))
            chosen = select(Annotator).where(
                Annotator.project_id == project_id, Annotator.name == name
            )
            annotator = session.scalar(chosen)
            if annotator is None:
                annotator = Annotator(
                    project_id=project_id, name=name, created_at=session.scalar(select(now()))
                )
                session.add(annotator)
            annotator.role = _known(role)
            annotator.secret_hash = _digest(secret)
            annotator.disabled_at = None
            session.flush()
        return Invitation(annotator, secret)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _existing(session: Session, annotator_id: int) -> Annotator:
    found = session.get(Annotator, annotator_id)
    if found is None:
        raise ConfigError(mismatch("annotator", expected="one that exists", got=annotator_id))
    return found


def _known(role: str) -> str:
    if role not in ROLES:
        raise ConfigError(mismatch("role", expected=f"one of {', '.join(ROLES)}", got=repr(role)))
    return role
