"""Projects: one question about one kind of clip, and the rules for asking it."""

import re
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any, final

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError

from preferl.configs import require_fields
from preferl.errors import ConfigError, require_in
from preferl.store.database import Database, clock
from preferl.store.schema import Clip, Project

SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@final
@dataclass(frozen=True)
class ProjectSettings:
    """The settings of a project. Each can be changed later.

    Raises:
        ConfigError: a number is out of its range, or the question is empty.
    """

    title: str = ""  # the project's name on its pages; by default its slug
    question: str = "Which clip is better?"  # shown with every pair
    instructions: str = ""  # plain text: what counts as better, and what breaks ties
    fps: int = 30  # frames per second at which clips play
    quorum: int = 1  # answers by different people that each query needs
    # Share of queries that ask a person again what they have answered. 0.05 measures
    # self-consistency from a few hundred answers at little cost.
    repeat_share: float = 0.05
    swap_share: float = 0.5  # share of those repeats with sides swapped
    known_share: float = 0.05  # share of queries with a known answer, if the project has any
    qualification: int = 0  # known pairs that a new annotator has to answer first
    pass_share: float = 0.8  # share of these that has to be right
    strength: bool = False  # whether people say if a clip is "clearly" or "slightly" better
    ratings: bool = False  # whether people may also rate each clip and say its outcome
    lease_seconds: float = 120.0  # how long a person keeps a query after a heartbeat
    budget: int | None = None  # answers after which nothing more is asked; None for no limit
    frames: dict[str, Any] | None = None  # how clips become pictures, for `frame_source`
    paused: bool = False  # whether asking is paused

    def __post_init__(self) -> None:
        require_fields(self, fps=(1, 240), quorum=1, qualification=0, lease_seconds=0.01, budget=1)
        require_fields(self, repeat_share=(0, 1), swap_share=(0, 1))
        require_fields(self, known_share=(0, 1), pass_share=(0, 1))
        require_in("repeat_share + known_share", self.repeat_share + self.known_share, 0, 0.9)
        for name in ("title", "question", "instructions"):
            if "\0" in getattr(self, name):  # PostgreSQL cannot hold it
                raise ConfigError(f"{name}: expected text, got text with a zero byte in it.")
        if not self.question.strip():
            raise ConfigError("question: expected some words, got nothing.")


@final
class Projects:
    """The projects of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        slug: str,
        settings: ProjectSettings | None = None,
        *,
        exist_ok: bool = False,
        **more: Any,
    ) -> Project:
        """Add a project with `settings`, or with fields of `ProjectSettings` as keywords.

        The project's short name is `slug`: small letters, digits and hyphens. With `exist_ok`, an
        existing project of that name is returned with its own settings, so that a script that
        creates its project can be started again.

        Raises:
            ConfigError: the short name is taken or malformed, or a setting is out of range.
        """
        settings = ProjectSettings(**more) if settings is None else settings
        if not SLUG.fullmatch(slug) or len(slug) > 60:
            raise ConfigError(
                f"project: expected small letters, digits and hyphens, as in door-1, got {slug}."
            )
        columns = asdict(settings) | {"title": settings.title or slug}
        try:
            with self._database.write() as session:
                project = Project(slug=slug, created_at=clock(session), **columns)
                session.add(project)
        except IntegrityError as error:
            if exist_ok:
                return self.get(slug)
            raise ConfigError(
                f"project: expected a new name, got {slug}, which exists. Choose another name, or "
                "continue with that project (in Python: exist_ok=True)."
            ) from error
        return project

    def get(self, project: int | str) -> Project:
        """Return the project of this number or slug; otherwise raise `ConfigError` and list all."""
        column = Project.id if isinstance(project, int) else Project.slug
        found = self._database.first(select(Project).where(column == project))
        if found is None:
            raise self._unknown(repr(project))
        return found

    def all(self) -> list[Project]:
        """Return every project, oldest first."""
        return self._database.all(select(Project).order_by(Project.id))

    def only(self) -> Project:
        """Return the only project of a store; raise `ConfigError` if there is none or several."""
        found = self.all()
        if not found:
            raise ConfigError(
                "projects: expected at least one, got none. Make one with `preferl annotate "
                "create`."
            )
        if len(found) > 1:
            raise self._unknown("none named", f" Name it, as in --project {found[-1].slug}.")
        return found[0]

    def update(self, project_id: int, **changes: Any) -> Project:
        """Change settings of a project. Queries that it asked before keep their quorum.

        `ConfigError` is raised if a setting is unknown or out of range.
        """
        known = {item.name for item in fields(ProjectSettings)}
        if unknown := sorted(set(changes) - known):
            raise ConfigError(f"settings: expected {sorted(known)}, got {unknown}.")
        with self._database.write() as session:
            project = session.get_one(Project, project_id)
            for name, value in changes.items():
                setattr(project, name, value)
            # raises an error for a wrong value
            ProjectSettings(**{name: getattr(project, name) for name in known})
        return project

    def remove_unused(self, project_id: int) -> None:
        """Remove a new project and its clips' rows. A project with people or queries stays."""
        with suppress(IntegrityError), self._database.write() as session:
            session.execute(delete(Clip).where(Clip.project_id == project_id))
            session.execute(delete(Project).where(Project.id == project_id))

    def _unknown(self, got: str, fix: str = "") -> ConfigError:
        slugs = ", ".join(project.slug for project in self.all())
        return ConfigError(f"project: expected one of {slugs}, got {got}.{fix}")
