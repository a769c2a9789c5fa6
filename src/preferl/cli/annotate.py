"""`preferl annotate`: serve the page, draw clips, invite people, export and import labels."""

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from preferl.cli.console import echo, note
from preferl.cli.options import FOLDER, Crossing, Labels, StoreConfig, Trust, opened, require_store
from preferl.cli.parsing import POSITIONAL
from preferl.data import sources
from preferl.errors import ConfigError, DataError
from preferl.trust import trust_options, typed

PORT = 8765
LOCAL: Final = ("localhost", "127.0.0.1", "::1")  # another machine for everybody else


@dataclass(frozen=True)
class ServeConfig:
    """Serve the page on which people compare clips, and draw their clips, until Ctrl-C.

    For example
      preferl annotate serve
      PREFERL_SECRET=... preferl annotate serve --host 0.0.0.0 --public-url https://labels.example.org

    Attributes:
        labels: where labels are.
        host: address to listen at; others than 127.0.0.1 need PREFERL_SECRET in the environment.
        port: port to listen at; 0 takes any that is free.
        public_url: where people find the page, as behind a proxy.
        browser: open your own link in a browser.
        render: also draw clips; off where another machine does.
        shared_limits: count requests of a person in the database, for several servers of one page.
        trust: module that may be imported to draw clips, such as your environment's; repeatable.
    """

    labels: Labels = field(default_factory=StoreConfig)
    host: str = "127.0.0.1"
    port: int = PORT
    public_url: str | None = None
    browser: bool = True
    render: bool = True
    shared_limits: bool = False
    trust: Trust = ()


@dataclass(frozen=True)
class RenderConfig:
    """Draw the clips of pending queries, the most urgent first, until Ctrl-C.

    For example
      preferl annotate render --once
      preferl annotate render --function my_drawings:draw

    Attributes:
        store: folder of the labels, or the URL of a database.
        files: folder of clips and videos beside a PostgreSQL database, or its URL
            (s3://bucket/labels).
        function: module:function that draws every clip, instead of the projects' own way.
        trust: module that may be imported to draw clips, such as your environment's; repeatable.
        once: end when there is nothing left to draw.
        parent: id of a process, such as the page's; drawing ends when it does.
    """

    store: str = FOLDER
    files: str | None = None
    function: str | None = None
    trust: Trust = ()
    once: bool = False
    parent: int | None = None


@dataclass(frozen=True)
class InviteConfig:
    """Invite a person: print their personal link.

    For example
      preferl annotate invite "Ann Example"
      preferl annotate invite Bob --role spectator --public-url https://labels.example.org
      preferl annotate invite Cleo --expires 48 --once
      preferl annotate invite Cleo --revoke

    Attributes:
        name: of the person; a second invitation ends their old link and their sessions.
        labels: where labels are.
        role: annotators answer, admins also see and change everything, spectators only look.
        public_url: where people find the page; by default where it was served last.
        expires: hours for which the link opens; by default it does not expire.
        once: the link opens in one browser only.
        revoke: end the person's link and sessions instead.
    """

    name: Annotated[str, POSITIONAL]
    labels: Labels = field(default_factory=StoreConfig)
    role: Literal["annotator", "admin", "spectator"] = "annotator"
    public_url: str | None = None
    expires: float | None = None
    once: bool = False
    revoke: bool = False


@dataclass(frozen=True)
class ExportConfig:
    """Write every answer that was ever given to a table, and the clips beside it.

    For example
      preferl annotate export answers.jsonl
      preferl annotate export answers.parquet --clips clips --anonymous

    Attributes:
        path: file of JSON lines, CSV or Parquet, by the end of its name.
        labels: where labels are.
        clips: folder for the clips, from which a reward can be fitted without the store.
        anonymous: write digests instead of names.
    """

    path: Annotated[Path, POSITIONAL]
    labels: Labels = field(default_factory=StoreConfig)
    clips: Path | None = None
    anonymous: bool = False


@dataclass(frozen=True)
class ImportConfig:
    """Read answers into a project: an export, a published label folder, or a table of choices.

    For example
      preferl annotate import answers.jsonl --clips clips
      preferl annotate import answers.jsonl --clips clips --new --store runs/restored
      preferl annotate import door-human-v1_human_labels --demonstrations door-v0_demos.pickle
      preferl annotate import chosen.csv --demonstrations episodes --length 50 --name "Our pilot"
      preferl annotate import drlhp_logs/train.pkl.gz --name me

    Attributes:
        path: what `preferl annotate export` wrote; a folder of Uni-RLHF or Preference Transformer
            labels; a table with the columns `chosen` and `rejected`, or `chosen_episode`,
            `chosen_start` and so on; or a `train.pkl.gz` or `val.pkl.gz` of
            learning-from-human-preferences.
        labels: where to.
        new: make the project, and the store if there is none.
        clips: folder of clips that was exported beside the answers.
        demonstrations: episodes that labels count in: a file, a folder, or the id of a Minari data
            set.
        task: row of the table of tasks, for a D4RL file that needs one.
        name: of the person who answered; by default that of the file or folder.
        owner: name for the answers of the exporting store's owner; refused without one.
        without_same: leave out answers about a clip and itself, which are refused otherwise.
        length: steps per clip, where the labels do not have it.
        crossing: what to do with clips across an episode's end, in label folders.
    """

    path: Annotated[Path, POSITIONAL]
    labels: Labels = field(default_factory=StoreConfig)
    new: bool = False
    clips: Path | None = None
    demonstrations: str | None = None
    task: str | None = None
    name: str | None = None
    owner: str | None = None
    without_same: bool = False
    length: int | None = None
    crossing: Crossing | None = None


def annotate_serve(config: ServeConfig) -> None:
    """Serve until Ctrl-C."""
    note("Starting the page ...")  # what follows takes seconds
    from preferl.annotate.app import AnnotateSettings
    from preferl.annotate.serve import serve
    from preferl.store.status import STATUS_FILE

    settings = AnnotateSettings(
        host=config.host,
        port=config.port,
        public_url=config.public_url,
        shared_limits=config.shared_limits,
    )
    drawing = ("annotate", "render", *config.labels.options(), "--parent", str(os.getpid()))
    reported = os.environ.get(STATUS_FILE)
    with opened(config.labels) as (store, project):
        serve(
            store,
            project,
            settings,
            render=(*drawing, *trust_options(config.trust)) if config.render else (),
            open_browser=config.browser,
            on_message=echo,
            status_file=Path(reported) if reported else None,
        )


def annotate_render(config: RenderConfig) -> None:
    """Draw until there is nothing left, or Ctrl-C."""
    from preferl.store.rendering.videos import serve_rendering

    logging.basicConfig(level=logging.WARNING, format="preferl: %(message)s")
    require_store(config.store)
    done = serve_rendering(
        config.store,
        config.files,
        function=config.function,
        trust=typed(config.function, trust=config.trust),
        parent=config.parent,
        once=config.once,
    )
    failed = f", {done.failed:,} could not be" if done.failed else ""
    echo(f"{done.drawn:,} clips drawn{failed}.")


def annotate_invite(config: InviteConfig) -> None:
    """Print a person's link, and what its sender should know."""
    with opened(config.labels) as (store, project):
        if config.revoke:
            name = store.people.revoke(project.id, config.name).name
            store.reports.add_event(project.id, "revoked", detail={"name": name})
            echo(f"The link of {name} has ended, and so have their sessions. Answers stay.")
            return
        before = {person.name for person in store.people.all(project.id)}
        uses = 1 if config.once else None
        person, secret = store.people.invite(
            project.id, config.name, config.role, hours=config.expires, uses=uses
        )
        detail = {"name": person.name, "role": config.role}
        store.reports.add_event(project.id, "invited", detail=detail)
        served = store.reports.last_event("served")
    page = config.public_url or (served or {}).get("url") or f"http://localhost:{PORT}"
    does = "looks on" if config.role == "spectator" else "answers"
    lines = [
        f"{person.name} ({config.role}) {does} here; this link is shown only now:",
        f"{page.rstrip('/')}/join/{secret}",
    ]
    if config.once or config.expires is not None:
        hours = "" if config.expires is None else f" within {config.expires:g} hours"
        lines.append(f"It opens{' once' if config.once else ''}{hours}.")
    if person.name in before:
        lines.append(f"The link that {person.name} had before has ended.")
    if urlsplit(page).hostname in LOCAL:
        lines.append(
            "It opens on this machine only. For others name the address at which they reach the "
            "page, as in --public-url https://labels.example.org."
        )
    if config.public_url is None and served is None:
        lines.append("The page was not served yet; if it has another address, use --public-url.")
    echo("\n".join(lines))


def annotate_export(config: ExportConfig) -> None:
    """Write answers, and clips where they are wanted."""
    from preferl.store.exchange.exports import export_answers, export_segments

    with opened(config.labels) as (store, project):
        count = export_answers(store, project.id, config.path, anonymous=config.anonymous)
        echo(
            f"{count:,} rows in {config.path}: all answers, skips and retractions. "
            "Rows with `counts` are the current answers."
        )
        if config.clips is not None:
            clips = export_segments(store, project.id, config.clips)
            echo(f"{clips:,} clips in {config.clips}.")


def annotate_import(config: ImportConfig) -> None:
    """Read whatever the path holds."""
    from preferl.store.exchange.exports import import_answers
    from preferl.store.exchange.imports import import_drlhp, import_labels, import_table

    kind = _kind(config.path)
    named = config.name
    length = config.length
    with opened(config.labels, new=config.new) as (store, project):
        about = (store, project.id, config.path)
        if kind == "export":
            owner = config.owner
            same = config.without_same
            added = import_answers(*about, clips=config.clips, owner=owner, without_same=same)
            echo(f"{added.new:,} answers are new, {added.known:,} were there already.")
            return
        place = config.demonstrations
        episodes = None if place is None else sources.load_source(place, task=config.task)
        if kind == "table":
            found = import_table(*about, episodes, name=named, length=length)
        elif kind == "drlhp":
            found = import_drlhp(*about, name=named)
        elif episodes is None:
            raise ConfigError(
                "episodes: expected some, got none. Give --demonstrations with the episodes that "
                "they count in."
            )
        else:
            crossing = config.crossing
            found = import_labels(*about, episodes, name=named, length=length, crossing=crossing)
    echo(
        f"{found.new:,} answers by {', '.join(found.annotators)} about {found.clips:,} clips are "
        f"new, {found.known:,} were there already."
    )


def _kind(path: Path) -> Literal["export", "table", "folder", "drlhp"]:
    """What a path holds, by its name or by the columns of its first row."""
    from preferl.store.exchange.tables import read_table

    if path.is_dir():
        return "folder"
    if path.name.endswith(".pkl.gz"):
        return "drlhp"
    columns = next(iter(read_table(path)), {"query": None}).keys()
    if "query" in columns:
        return "export"
    if {"chosen", "chosen_episode"} & columns:
        return "table"
    raise DataError(
        f"{path}, columns: expected chosen and rejected, or those that `preferl annotate export` "
        f"writes, got {', '.join(columns)[:200]}. For clips by their place, name columns "
        "chosen_episode, chosen_start, rejected_episode and rejected_start."
    )
