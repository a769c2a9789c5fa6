"""What people see besides clips: progress, heartbeats, reward versions, and what else happened."""

import time
from dataclasses import dataclass, replace
from typing import Any, Final, final

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from preferl.errors import ConfigError
from preferl.store import statements
from preferl.store.database import SLACK_SECONDS, Database, clock, now
from preferl.store.schema import Clip, Event, Project, RewardVersion, Service
from preferl.store.status import ServiceState, Status, from_json, to_json

PACE_SECONDS: Final = 600.0
"""A person's pace is that of their last ten minutes."""

ACTIVE_SECONDS: Final = 60.0
"""Who has sent a heartbeat since then is at work."""

LOST_AFTER: Final = 3
"""Heartbeats that a program may miss before it counts as lost."""


@final
@dataclass(frozen=True)
class Progress:
    """How far a project is, for one person or for none in particular.

    Attributes:
        answered: answers that count, of everybody, to what a reward learns from.
        wanted: the budget, or all answers that the queries so far need.
        open: queries that still need answers, with or without videos.
        pairs_undrawn: pairs that cannot be shown yet, since a video of theirs is missing.
        clips_failed: clips that could not be drawn.
        people_active: people with a heartbeat within a minute.
        mine: this person's answers that count.
        mine_per_hour: at the pace of their last ten minutes; None with less than three answers.
        revision: grows with every answer, skips aside.
    """

    answered: int
    wanted: int
    open: int
    pairs_undrawn: int
    clips_failed: int
    people_active: int
    mine: int
    mine_per_hour: float | None
    revision: int


@final
class Reports:
    """Progress, heartbeats, reward versions and episodes: services write them, pages read them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: dict[int, tuple[float, Progress]] = {}  # when, by project

    def progress(
        self, project_id: int, annotator_id: int | None = None, *, within: float = 0.0
    ) -> Progress:
        """How far a project is.

        Args:
            project_id: of the project.
            annotator_id: whose own numbers to add; these are always of this moment.
            within: how old, in seconds, everybody's numbers may be. They count every query, and a
                page with hundreds of people must not count them anew for each answer.
        """
        with self._database.read() as session:
            at = clock(session)
            everybody = self._everybody(session, project_id, at, within)
            if annotator_id is None:
                return everybody
            mine, pace = _own(session, annotator_id, at)
            return replace(everybody, mine=mine, mine_per_hour=pace)

    def _everybody(self, session: Session, project_id: int, at: float, within: float) -> Progress:
        began = time.monotonic()
        seen, known = self._seen.get(project_id, (0.0, None))
        if known is not None and began - seen < within:
            return known
        about: dict[str, Any] = {"project_id": project_id, "at": at - ACTIVE_SECONDS}

        def count(statement: Select[Any]) -> int:
            return int(session.scalar(statement, about) or 0)

        given, asked, unanswered = session.execute(statements.TOTALS, about).one()
        found = Progress(
            answered=int(given),
            wanted=session.get_one(Project, project_id).budget or int(asked),
            open=int(unanswered),
            pairs_undrawn=count(statements.UNDRAWN),
            clips_failed=count(statements.FAILED),
            people_active=count(statements.ACTIVE_PEOPLE),
            mine=0,
            mine_per_hour=None,
            revision=count(statements.REVISION),
        )
        self._seen[project_id] = began, found
        return found

    def open(self, project_id: int) -> int:
        """How many queries still need answers; `Progress.open` alone."""
        ((*_, unanswered),) = self._database.rows(statements.TOTALS, project_id=project_id)
        return int(unanswered)

    def revision(self, project_id: int) -> int:
        """How many answers there are, skips aside: cheap, and grows with each."""
        return int(self._database.first(statements.REVISION, project_id=project_id) or 0)

    def decided(self, project_id: int) -> int:
        """How many questions somebody has decided, ties included: what a reward learns from."""
        return int(self._database.first(statements.DECIDED, project_id=project_id) or 0)

    def clock(self) -> float:
        """The time by the database, by which everything here is dated."""
        with self._database.read() as session:
            return clock(session)

    def publish_reward(
        self,
        project_id: int,
        version: int,
        *,
        answers: int,
        accuracy: float | None = None,
        interval: tuple[float, float] | None = None,
        detail: dict[str, Any] | None = None,
    ) -> RewardVersion:
        """Announce a reward version that was just published.

        Args:
            project_id: of the project.
            version: its number, from 1.
            answers: how many it was fitted to.
            accuracy: on held-out answers; None without any.
            interval: 95 % interval of that.
            detail: anything else, as JSON.

        Raises:
            ConfigError: a version below 1.
        """
        if version < 1:
            raise ConfigError.mismatch("version", expected="at least 1", got=version)
        row = RewardVersion(project_id=project_id, version=version, answers=answers, detail=detail)
        row.accuracy, (row.low, row.high) = accuracy, interval or (None, None)
        with self._database.write() as session:
            row.published_at = clock(session)
            return session.merge(row)

    def rewards(self, project_id: int) -> list[RewardVersion]:
        """Every published version, oldest first."""
        published = select(RewardVersion).where(RewardVersion.project_id == project_id)
        return self._database.all(published.order_by(RewardVersion.version))

    def last_episode(self, project_id: int) -> Clip | None:
        """The newest whole episode of the agent that can be shown."""
        episodes = select(Clip).where(Clip.project_id == project_id, Clip.kind == "episode")
        shown = episodes.where(Clip.video == "ready")
        return self._database.first(shown.order_by(Clip.created_at.desc()).limit(1))

    def beat(self, project_id: int, name: str, status: Status, *, every: float = 5.0) -> None:
        """Record the heartbeat of a program, such as `reward` or `agent`.

        Args:
            project_id: for which it works.
            name: of the program; a second one of the same name takes its place.
            status: as it is now.
            every: seconds until the next one; after three times that it counts as lost.
        """
        detail = to_json(status)
        about = {"project_id": project_id, "name": name, "state": detail.pop("state")}
        with self._database.write(durable=False) as session:
            session.merge(Service(**about, every=every, beat_at=clock(session), detail=detail))

    def require_writable(self) -> None:
        """Wait as a heartbeat has to, and raise `StorageError` where none can be recorded now."""
        with self._database.write(durable=False) as session:
            clock(session)

    def services(self, project_id: int) -> list[ServiceState]:
        """The programs that have ever worked for a project, and whether they still run."""
        beats = select(Service, now() - Service.beat_at).where(Service.project_id == project_id)
        return [
            ServiceState(
                service.name,
                from_json(Status, {**(service.detail or {}), "state": service.state}),
                float(age),
                service.state == "stopped" or -SLACK_SECONDS < age < LOST_AFTER * service.every,
                service.every,
            )
            for service, age in self._database.rows(beats.order_by(Service.name))
        ]


@final
class Events:
    """A log of what people and services did besides answering."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        project_id: int | None,
        kind: str,
        *,
        annotator_id: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Remember something that happened now."""
        about = {"project_id": project_id, "annotator_id": annotator_id, "kind": kind}
        with self._database.write() as session:
            session.add(Event(**about, at=clock(session), detail=detail))

    def last(self, kind: str) -> dict[str, Any] | None:
        """The detail of the newest event of this kind that concerns the whole store."""
        events = select(Event).where(Event.project_id.is_(None), Event.kind == kind)
        found = self._database.first(events.order_by(Event.id.desc()).limit(1))
        return None if found is None else found.detail or {}

    def latest(self, project_id: int, limit: int = 50) -> list[Event]:
        """The newest first."""
        events = select(Event).where(Event.project_id == project_id)
        return self._database.all(events.order_by(Event.id.desc()).limit(limit))


def _own(session: Session, annotator_id: int, at: float) -> tuple[int, float | None]:
    about = {"annotator_id": annotator_id, "at": at - PACE_SECONDS}
    mine = int(session.scalar(statements.MINE, about) or 0)
    recent, since = session.execute(statements.MINE_SINCE, about).one()
    if recent < 3 or at <= since:
        return mine, None
    # The first answer of the span began it, so it is not counted as work done within.
    return mine, 3600.0 * (recent - 1) / (at - since)
