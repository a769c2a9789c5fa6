"""The tables that hold labels. Rows that were read are plain objects.

Times are seconds since the epoch, by the database's clock. Answers are only ever added: if a person
answers a query again, the latest row counts, and the earlier ones stay.
"""

import re
from typing import Any, Final, Literal, get_args

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column

from preferl.store.status import FitMetrics, from_json

Purpose = Literal["ask", "known", "repeat", "example"]
"""The purpose of a query: to learn from, to check people, to repeat another, or to explain."""

Role = Literal["annotator", "admin", "spectator"]
"""Annotators answer, admins also see and change everything, and spectators only look."""

COUNTED: Final = ("left", "right", "equal", "cannot_tell")
"""Kinds of answers that settle a query for the person who gave them."""

DECIDING: Final = ("left", "right", "equal")  # kinds from which a reward learns

Outcome = Literal["success", "failure"]
"""Whether a clip reaches its goal, as a person says."""

HIGHEST_RATING: Final = 5  # the lowest rating is 1

STRENGTHS: Final = ("slight", "clear")
ANSWERS: Final = (*COUNTED, "skip")  # kinds that people send; `skip` means "later"
KINDS: Final = (*ANSWERS, "retract")  # `retract` undoes the latest answer
PREFERENCE: Final = {"left": 1.0, "right": 0.0, "equal": 0.5}


def preference_of(kind: str, swapped: bool) -> float | None:
    """Return the preference for the first clip, from an answer about the sides on screen.

    >>> preference_of("left", swapped=True), preference_of("skip", swapped=False)
    (0.0, None)
    """
    preference = PREFERENCE.get(kind)
    return preference if preference is None or not swapped else 1 - preference


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN {values}", name=column)


def _probability(column: str) -> CheckConstraint:
    in_range = f"{column} >= 0 AND {column} <= 1"
    return CheckConstraint(f"{column} IS NULL OR ({in_range})", name=column)


def _queue_index(name: str, *, sqlite: str, postgresql: str) -> Index:
    """Index the queries that are not cancelled and meet a condition, most urgent first."""
    not_cancelled = " AND cancelled_at IS NULL"
    return Index(
        name,
        "project_id",
        text("priority DESC"),
        "turn",
        "id",
        sqlite_where=text(sqlite + not_cancelled),
        postgresql_where=text(postgresql + not_cancelled),
    )


TASK: Final = "task"
"""Key in the detail of a query: the task of its clips, as a text that people read above them."""


MODEL: Final = "model"
"""Key in the detail of a model's answer: its cost, its version, and each of its replies."""


class Base(DeclarativeBase):
    """The tables, named after their classes; migrations find constraints by these names."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: JSON}  # noqa: RUF012 (SQLAlchemy reads it once)

    @declared_attr.directive
    def __tablename__(cls) -> str:  # noqa: N805 (a class)
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


class Project(Base):
    """One question about one kind of clip, and the rules for asking it."""

    id: Mapped[int] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(unique=True)
    title: Mapped[str]
    question: Mapped[str]
    instructions: Mapped[str]
    fps: Mapped[int]
    quorum: Mapped[int]
    repeat_share: Mapped[float]
    swap_share: Mapped[float]
    known_share: Mapped[float]
    qualification: Mapped[int]
    pass_share: Mapped[float]
    strength: Mapped[bool]
    ratings: Mapped[bool]
    lease_seconds: Mapped[float]
    budget: Mapped[int | None]
    frames: Mapped[dict[str, Any] | None]
    paused: Mapped[bool]
    created_at: Mapped[float]


class Clip(Base):
    """A segment or an episode, named by its content; its arrays are at `row` of the file `shard`.

    While a program draws the clip, others leave it alone until `drawing_until`. That program can
    extend this time.
    """

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), primary_key=True)
    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    shard: Mapped[str]
    row: Mapped[int]
    steps: Mapped[int]
    video: Mapped[str] = mapped_column(default="none")
    video_error: Mapped[str | None]
    drawing_until: Mapped[float | None]
    detail: Mapped[dict[str, Any] | None]
    created_at: Mapped[float]

    __table_args__ = (
        _one_of("kind", ("segment", "episode")),
        _one_of("video", ("none", "ready", "failed")),
        Index(None, "project_id", "kind", "created_at"),
        Index(None, "project_id", "video"),
    )


class Annotator(Base):
    """A person or a model in a project. Of a link's secret, only a digest is kept.

    The link opens until `link_expires_at`, and `link_uses` times more; None sets no limit. Nobody
    has the link of a model.
    """

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    role: Mapped[str]
    secret_hash: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[float]
    qualified_at: Mapped[float | None]
    disabled_at: Mapped[float | None]
    link_expires_at: Mapped[float | None]
    link_uses: Mapped[int | None]
    is_model: Mapped[bool] = mapped_column(default=False)

    __table_args__ = (UniqueConstraint("project_id", "name"), _one_of("role", get_args(Role)))


class SignIn(Base):
    """A browser in which somebody opened their link. Its session lasts until `ended_at` is set."""

    id: Mapped[int] = mapped_column(primary_key=True)
    annotator_id: Mapped[int] = mapped_column(ForeignKey("annotator.id"), index=True)
    token_hash: Mapped[str] = mapped_column(unique=True)
    began_at: Mapped[float]
    ended_at: Mapped[float | None]


class Query(Base):
    """Two clips to compare; `needed` answers are still missing.

    Queries of the same priority are ordered by their `turn`. It rises by one with each query of an
    `agent`, so agents take turns, however many queries each has asked.
    """

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    first_clip: Mapped[str]
    second_clip: Mapped[str]
    purpose: Mapped[str]
    priority: Mapped[float] = mapped_column(default=0.0)
    agent: Mapped[str | None]
    turn: Mapped[int] = mapped_column(default=0)
    score: Mapped[float | None]
    model_version: Mapped[int | None]
    known: Mapped[float | None]
    repeat_of: Mapped[int | None] = mapped_column(ForeignKey("query.id"))
    for_annotator: Mapped[int | None] = mapped_column(ForeignKey("annotator.id"), index=True)
    swapped: Mapped[bool | None]
    quorum: Mapped[int] = mapped_column(default=0)
    needed: Mapped[int] = mapped_column(default=0)
    ready: Mapped[bool]
    asked_at: Mapped[float]
    cancelled_at: Mapped[float | None]
    detail: Mapped[dict[str, Any] | None]

    __table_args__ = (
        ForeignKeyConstraint(["project_id", "first_clip"], ["clip.project_id", "clip.id"]),
        ForeignKeyConstraint(["project_id", "second_clip"], ["clip.project_id", "clip.id"]),
        _one_of("purpose", get_args(Purpose)),
        _probability("known"),
        Index(None, "project_id", "priority", "turn"),
        Index(None, "project_id", "agent", "priority", "turn"),
        _queue_index("ix_query_open", sqlite="needed > 0", postgresql="needed > 0"),
        _queue_index("ix_query_undrawn", sqlite="ready IS 0", postgresql="ready IS false"),
        Index(None, "project_id", "purpose"),
        Index(None, "project_id", "first_clip"),
        Index(None, "project_id", "second_clip"),
    )

    @property
    def task(self) -> str:
        """Return the task of both clips as a text; "" if it is not known."""
        return str((self.detail or {}).get(TASK) or "")

    def sides(self, swapped: bool) -> tuple[str, str]:
        """Return the names of the clips on the left and on the right."""
        if swapped:
            return self.second_clip, self.first_clip
        return self.first_clip, self.second_clip


class Lease(Base):
    """A person holds a query until the lease expires. A query has at most `needed` leases."""

    query_id: Mapped[int] = mapped_column(ForeignKey("query.id"), primary_key=True)
    annotator_id: Mapped[int] = mapped_column(
        ForeignKey("annotator.id"), primary_key=True, index=True
    )
    token: Mapped[str] = mapped_column(unique=True)
    swapped: Mapped[bool]
    granted_at: Mapped[float]
    renewed_at: Mapped[float]
    expires_at: Mapped[float]


class Answer(Base):
    """An answer of a person. It never changes later."""

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    query_id: Mapped[int] = mapped_column(ForeignKey("query.id"))
    annotator_id: Mapped[int] = mapped_column(ForeignKey("annotator.id"))
    key: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    preference: Mapped[float | None]
    strength: Mapped[str | None]
    swapped: Mapped[bool]
    response_ms: Mapped[float | None]
    granted_at: Mapped[float | None]
    answered_at: Mapped[float]
    detail: Mapped[dict[str, Any] | None]

    __table_args__ = (
        _one_of("kind", KINDS),
        _probability("preference"),
        Index(None, "project_id", "id"),
        Index(None, "project_id", "annotator_id"),
        Index(None, "query_id", "annotator_id"),
    )


class Rating(Base):
    """A person's rating of a clip from 1 to 5, its outcome, both, or neither after a withdrawal.

    Rows never change later. The latest row of a person about a clip counts. An `undo` takes back
    the person's latest change that stands, and brings back what was said of that clip before.
    """

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    clip_id: Mapped[str]
    annotator_id: Mapped[int] = mapped_column(ForeignKey("annotator.id"))
    key: Mapped[str] = mapped_column(unique=True)
    rating: Mapped[int | None]
    outcome: Mapped[str | None]
    undo: Mapped[bool]
    rated_at: Mapped[float]

    __table_args__ = (
        ForeignKeyConstraint(["project_id", "clip_id"], ["clip.project_id", "clip.id"]),
        CheckConstraint(
            f"rating IS NULL OR (rating >= 1 AND rating <= {HIGHEST_RATING})", name="rating"
        ),
        CheckConstraint(f"outcome IS NULL OR outcome IN {get_args(Outcome)}", name="outcome"),
        Index(None, "project_id", "clip_id", "annotator_id"),
        Index(None, "annotator_id", "clip_id"),
    )

    @property
    def is_empty(self) -> bool:
        """Whether the row has no rating and no outcome, for example after an undo of the first."""
        return self.rating is None and self.outcome is None


class RewardVersion(Base):
    """A published reward model, and its accuracy on held-out answers."""

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    accuracy: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    answers: Mapped[int]
    published_at: Mapped[float]
    detail: Mapped[dict[str, Any] | None]

    @property
    def metrics(self) -> FitMetrics:
        """Return the metrics of the version's fit that were published."""
        return from_json(FitMetrics, {"answers": self.answers} | (self.detail or {}))


class Prediction(Base):
    """The newest reward's probability that the first clip of a query is preferred."""

    query_id: Mapped[int] = mapped_column(ForeignKey("query.id"), primary_key=True)
    version: Mapped[int]
    preference: Mapped[float]

    __table_args__ = (_probability("preference"),)


class Service(Base):
    """The last heartbeat of a program that works for a project."""

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    beat_at: Mapped[float]
    every: Mapped[float]
    detail: Mapped[dict[str, Any] | None]


class Allowance(Base):
    """How many requests of a kind a person had `left`, and when; see `preferl.annotate.limits`."""

    what: Mapped[str] = mapped_column(primary_key=True)
    who: Mapped[str] = mapped_column(primary_key=True)
    left: Mapped[float]
    at: Mapped[float]


class Event(Base):
    """An event for the overview: for example an invitation, an export, a changed setting."""

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int | None] = mapped_column(ForeignKey("project.id"))
    annotator_id: Mapped[int | None] = mapped_column(ForeignKey("annotator.id"))
    kind: Mapped[str]
    at: Mapped[float]
    detail: Mapped[dict[str, Any] | None]

    __table_args__ = (Index(None, "project_id", "id"),)
