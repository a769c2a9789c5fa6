"""Progress of projects, heartbeats of programs, reward versions and other events."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple, final

from sqlalchemy import delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from preferl.errors import require_in
from preferl.store import statements
from preferl.store.clips import newest_episodes
from preferl.store.database import SLACK_SECONDS, Database, clock, now
from preferl.store.schema import Clip, Event, Prediction, Project, Query, RewardVersion, Service
from preferl.store.status import ServiceState, Status, from_json, to_json

PACE_SECONDS: Final = 600.0  # a person's pace is that of their last ten minutes
ACTIVE_SECONDS: Final = 60.0  # people with a heartbeat within this time count as active
LOST_AFTER: Final = 3  # heartbeats that a program may miss before it counts as lost


@final
@dataclass(frozen=True)
class Progress:
    """How far a project is, for one person or in general."""

    answered: int  # answers of everybody that count, to queries that a reward learns from
    # the budget, or else the answers that all queries so far need; plus imported answers
    wanted: int
    open: int  # queries that still need answers, with or without videos
    pairs_undrawn: int  # pairs that cannot be shown yet, because a video is missing
    clips_failed: int  # clips that could not be drawn
    people_active: int  # people who have looked at a pair within a minute
    revision: int  # grows with every answer that is not a skip
    mine: int = 0  # this person's answers that count
    # in their last ten minutes; None for fewer than three answers
    mine_per_hour: float | None = None


class Totals(NamedTuple):
    """Answers that count, answers that all queries so far need, and queries still open."""

    given: int
    wanted: int
    open: int


_COUNTS: Final = select(
    statements.IMPORTED.scalar_subquery(),
    statements.UNDRAWN.scalar_subquery(),
    statements.FAILED.scalar_subquery(),
    select(func.count()).select_from(statements.ACTIVE_PEOPLE.subquery()).scalar_subquery(),
    statements.REVISION.scalar_subquery(),
)


@final
class Reports:
    """Progress, heartbeats, reward versions, episodes and events: services write, pages read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def progress(self, project_id: int, annotator_id: int | None = None) -> Progress:
        """Return the progress of a project and, if given, of a person in it."""
        with self._database.read() as session:
            values = {"project_id": project_id, "at": clock(session) - ACTIVE_SECONDS}
            counted, needed, unanswered = session.execute(statements.TOTALS, values).one()
            imported, undrawn, failed, active, revision = session.execute(_COUNTS, values).one()
            budget = session.get_one(Project, project_id).budget
        return Progress(
            answered=int(counted)
            + imported,  # imported answers are added to those that were asked for here
            wanted=(budget or int(needed)) + imported,
            open=int(unanswered),
            pairs_undrawn=undrawn,
            clips_failed=failed,
            people_active=active,
            revision=revision,
            **({} if annotator_id is None else self.personal_progress(annotator_id)),
        )

    def active_people(self, project_id: int) -> set[int]:
        """Return the numbers of the people who looked at a pair within the last minute."""
        with self._database.read() as session:
            values = {"project_id": project_id, "at": clock(session) - ACTIVE_SECONDS}
            return set(session.scalars(statements.ACTIVE_PEOPLE, values))

    def personal_progress(self, annotator_id: int) -> dict[str, Any]:
        """Return a person's own entries of `Progress`, by name."""
        with self._database.read() as session:
            time = clock(session)
            values = {"annotator_id": annotator_id, "at": time - PACE_SECONDS}
            mine = int(session.scalar(statements.MINE, values) or 0)
            recent, since = session.execute(statements.MINE_SINCE, values).one()
        pace = None
        if recent >= 3 and time > since:
            # The first answer begins the time span, so it does not count as work within it.
            pace = 3600.0 * (recent - 1) / (time - since)
        return {"mine": mine, "mine_per_hour": pace}

    def totals(self, project_id: int) -> Totals:
        """Count answers and open queries only, without the other numbers of `Progress`."""
        ((given, wanted, unanswered),) = self._database.rows(
            statements.TOTALS, project_id=project_id
        )
        return Totals(int(given), int(wanted), int(unanswered))

    def open(self, project_id: int, agent: str | None = None) -> int:
        """Count the queries that still need answers; with an `agent`, only that agent's."""
        if agent is None:
            return self.totals(project_id).open
        values = {"project_id": project_id, "agent": agent}
        return int(self._database.first(statements.OF_AGENT, **values) or 0)

    def revision(self, project_id: int) -> int:
        """Return the number of answers without skips. It is cheap to read, and only grows."""
        return int(self._database.first(statements.REVISION, project_id=project_id) or 0)

    def decided(self, project_id: int) -> int:
        """Count the queries with a decided answer or a tie, from which a reward learns."""
        return int(self._database.first(statements.DECIDED, project_id=project_id) or 0)

    def clock(self) -> float:
        """Return the time of the database's clock, which all dates in the store use."""
        with self._database.read() as session:
            return clock(session)

    def announce_reward(
        self,
        project_id: int,
        version: int,
        *,
        answers: int,
        accuracy: float | None = None,
        interval: tuple[float, float] | None = None,
        detail: dict[str, Any] | None = None,
        predicted: Mapping[int, float] | None = None,
    ) -> RewardVersion:
        """Announce a reward version, numbered from 1, that has just been published.

        The reward was fitted to `answers` answers. `accuracy` is that on held-out answers, with a
        95 % `interval`; None if there are no held-out answers. `detail` is further information, as
        JSON. `predicted` maps the number of a query to the probability that its first clip is
        preferred, and replaces earlier predictions.
        """
        require_in("version", version, 1, inf)
        predictions = [
            {"query_id": int(query), "version": version, "preference": float(share)}
            for query, share in (predicted or {}).items()
        ]
        queries = select(Query.id).where(Query.project_id == project_id)
        low, high = interval or (None, None)
        with self._database.write() as session:
            if predictions:
                session.execute(delete(Prediction).where(Prediction.query_id.in_(queries)))
                session.execute(insert(Prediction), predictions)
            return session.merge(
                RewardVersion(
                    project_id=project_id,
                    version=version,
                    answers=answers,
                    accuracy=accuracy,
                    low=low,
                    high=high,
                    detail=detail,
                    published_at=clock(session),
                )
            )

    def rewards(self, project_id: int) -> list[RewardVersion]:
        """Return every published version, oldest first."""
        published = select(RewardVersion).where(RewardVersion.project_id == project_id)
        return self._database.all(published.order_by(RewardVersion.version))

    def last_episode(self, project_id: int) -> Clip | None:
        """Return the agent's newest whole episode that has a video, or None."""
        drawn_episodes = newest_episodes(project_id).where(Clip.video == "ready")
        return self._database.first(drawn_episodes.limit(1))

    def beat(self, project_id: int, name: str, status: Status, *, every: float = 5.0) -> None:
        """Record the heartbeat of a program, such as `reward` or `agent`.

        A second program of the same name replaces the first. A program counts as lost after three
        times `every` seconds without a heartbeat.
        """
        detail = to_json(status)
        columns = {"project_id": project_id, "name": name, "state": detail.pop("state")}

        def record() -> None:
            with self._database.write(durable=False) as session:
                session.merge(
                    Service(**columns, every=every, beat_at=clock(session), detail=detail)
                )

        try:
            record()
        except IntegrityError:  # another program of this name has just sent its first heartbeat
            record()

    def require_writable(self) -> None:
        """Raise `StorageError` if the database cannot be written to, after waiting for its lock."""
        with self._database.write(durable=False) as session:
            clock(session)

    def services(self, project_id: int) -> list[ServiceState]:
        """Return the programs that ever worked for a project, and whether they still run."""
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

    def add_event(
        self,
        project_id: int | None,
        kind: str,
        *,
        annotator_id: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Record an event with the current date."""
        event = Event(project_id=project_id, annotator_id=annotator_id, kind=kind, detail=detail)
        with self._database.write() as session:
            event.at = clock(session)
            session.add(event)

    def last_event(self, kind: str) -> dict[str, Any] | None:
        """Return the detail of the newest event of a kind that concerns the whole store."""
        events = select(Event).where(Event.project_id.is_(None), Event.kind == kind)
        event = self._database.first(events.order_by(Event.id.desc()).limit(1))
        return None if event is None else event.detail or {}

    def latest_events(self, project_id: int, limit: int = 50) -> list[Event]:
        """Return what people and services did besides answering, newest first."""
        events = select(Event).where(Event.project_id == project_id)
        return self._database.all(events.order_by(Event.id.desc()).limit(limit))
