"""One person's turn in one transaction: which query they get, and why.

Chance (sides, repeats, known pairs) is drawn from what is asked of whom, never from a generator,
so that a page that is reloaded shows the same.
"""

import secrets
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, Literal, Self

from sqlalchemy import Select
from sqlalchemy.orm import Session

from preferl.errors import FeedbackError
from preferl.store import statements
from preferl.store.database import SLACK_SECONDS, clock
from preferl.store.schema import Annotator, Lease, Project, Query

State = Literal["ready", "waiting", "done", "paused", "unqualified"]

REPEAT_AFTER: Final = 10
"""Answers after which a question may come back, so that people do not recall what they said."""

MOMENT: Final = 1e-6
"""Seconds between leases of one turn; the least that seconds since the epoch tell apart."""

CHANCES: Final = 5
"""Tries to get a query while others take them at the same time."""


@dataclass
class Turn:
    """One person in one transaction: what they hold, and what they get next."""

    session: Session
    project: Project
    annotator: Annotator
    at: float
    leased: int = 0

    @classmethod
    def of(cls, session: Session, project_id: int, annotator_id: int) -> Self:
        """The turn of this person, whose other turns wait until it is over.

        Raises:
            FeedbackError: somebody who may not answer in this project.
        """
        annotator = session.get(Annotator, annotator_id, with_for_update=True)
        wrong = (
            "nobody of this project"
            if annotator is None or annotator.project_id != project_id
            else "somebody whose access has ended"
            if annotator.disabled_at is not None
            else "a spectator"
            if annotator.role == "spectator"
            else ""
        )
        if wrong or annotator is None:
            raise FeedbackError.mismatch(
                "annotator", expected="somebody who may answer here", got=wrong
            )
        return cls(session, session.get_one(Project, project_id), annotator, clock(session))

    def renewed(self) -> list[tuple[Lease, Query]]:
        """What the person holds, oldest first; what ran out goes on unless others need it."""
        held = []
        for lease, query in self.session.execute(statements.HOLDING, self._about).all():
            free = active_at(lease, self.at) or query.purpose != "ask" or self._room(query)
            if query.cancelled_at is not None or not free:
                self.session.delete(lease)
                continue
            lease.renewed_at, lease.expires_at = self.at, self.at + self.project.lease_seconds
            held.append((lease, query))
        self.session.flush()
        return held

    def qualified(self) -> bool:
        """Whether the person may go on: an admin always, others by the known pairs they had."""
        if not self._qualifying:
            return True
        needed = self.project.qualification
        told = self.session.execute(statements.KNOWN_TOLD, self._about | {"limit": needed}).all()
        if len(told) < min(needed, self._count(statements.KNOWN_PAIRS)):
            return True
        right = sum(
            given is not None and known is not None and abs(given - known) < 0.5
            for given, known in told
        )
        if right < self.project.pass_share * len(told):
            return False
        self.annotator.qualified_at = self.at
        self.session.flush()
        return True

    def next(self, *, undrawn: bool = False) -> tuple[Lease, Query] | None:
        """One more question, leased; None if there is none for this person now.

        Args:
            undrawn: whether it may be one that has no videos yet.
        """
        if self._qualifying:
            early = self._count(statements.KNOWN_HAD) < self.project.qualification
            query = self._query(statements.UNSEEN_KNOWN) if early else None
            return None if query is None else self._lease(query)
        for _ in range(CHANCES):
            query = (
                self._query(statements.OPEN_UNDRAWN)
                if undrawn
                else self._query(statements.OPEN) or self._query(statements.OPEN_SKIPPED)
            )
            if query is None or self._spent:
                return None
            query = self._instead() or query
            if query.purpose != "ask" or self._room(query):
                return self._lease(query)
        return None

    def idle(self) -> State:
        """Why there is nothing: no more is wanted, or more is to come."""
        if self._spent:
            return "done"
        if self.project.budget is None:
            return "waiting"
        all_asked = self._count(statements.ASKED) >= self.project.budget
        return "done" if all_asked and not self._count(statements.UNSHOWN) else "waiting"

    @property
    def _about(self) -> dict[str, float]:
        about = {"project_id": self.project.id, "annotator_id": self.annotator.id}
        return about | {"at": self.at}

    @property
    def _qualifying(self) -> bool:
        settled = self.annotator.qualified_at is not None or self.annotator.role == "admin"
        return bool(self.project.qualification) and not settled

    @cached_property
    def _spent(self) -> bool:
        budget = self.project.budget
        return budget is not None and self._count(statements.GIVEN) >= budget

    def _count(self, statement: Select[Any]) -> int:
        return int(self.session.scalar(statement, self._about) or 0)

    def _query(self, statement: Select[Query]) -> Query | None:
        return self.session.scalar(statement, self._about)

    def _room(self, query: Query) -> bool:
        """Whether others leave room in a query; looked at again once its row is locked."""
        out = self.session.scalar(statements.OUT, self._about | {"query_id": query.id})
        return query.needed > int(out or 0)

    def _instead(self) -> Query | None:
        """At times a pair whose answer is known, or an earlier question of theirs."""
        project = self.project
        if not project.known_share + project.repeat_share:
            return None
        seen = self._count(statements.SEEN)
        drawn = draw(project.slug, self.annotator.id, seen, "why")
        if drawn < project.known_share:
            return self._query(statements.UNSEEN_KNOWN)
        if drawn < project.known_share + project.repeat_share:
            return self._repeat(seen)
        return None

    def _repeat(self, seen: int) -> Query | None:
        """An earlier question of theirs, as a query of its own, at times with sides swapped."""
        about = self._about | {"limit": REPEAT_AFTER}
        earlier = self.session.execute(statements.REPEATABLE, about).all()
        if not earlier:
            return None
        mark = (self.project.slug, self.annotator.id, seen)
        query_id, swapped = earlier[int(draw(*mark, "which") * len(earlier))]
        original = self.session.get_one(Query, query_id)
        query = Query(
            project_id=self.project.id,
            first_clip=original.first_clip,
            second_clip=original.second_clip,
            purpose="repeat",
            priority=0.0,
            repeat_of=original.id,
            for_annotator=self.annotator.id,
            swapped=swapped ^ (draw(*mark, "sides") < self.project.swap_share),
            quorum=0,
            needed=0,
            ready=True,
            asked_at=self.at,
        )
        self.session.add(query)
        self.session.flush()
        return query

    def _lease(self, query: Query) -> tuple[Lease, Query]:
        swapped = query.swapped
        if swapped is None:
            swapped = draw(self.project.slug, query.id, self.annotator.id, "sides") < 0.5
        lease = Lease(
            query_id=query.id,
            annotator_id=self.annotator.id,
            token=secrets.token_urlsafe(16),
            swapped=swapped,
            # In order, so that what is held is told in the order in which it was given, and no
            # more urgent pair takes the place of one that is being looked at.
            granted_at=self.at + MOMENT * self.leased,
            renewed_at=self.at,
            expires_at=self.at + self.project.lease_seconds,
        )
        self.leased += 1
        self.session.add(lease)
        self.session.flush()
        return lease, query


def draw(*what: object) -> float:
    """A number in [0, 1) that depends on nothing but `what`: sides stay where they were."""
    digest = blake2b(repr(what).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / 2**56


def active_at(lease: Lease, at: float) -> bool:
    """That a lease holds; one from the future was granted before the clock was set back."""
    return lease.expires_at > at and lease.renewed_at < at + SLACK_SECONDS
