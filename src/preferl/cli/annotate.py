"""`preferl annotate`: make a project, serve its page, draw clips, ask models, report, export."""

import inspect
import logging
import os
import shlex
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import numpy as np

from preferl import data, store
from preferl.cli.console import ProgressLine, cell, echo, note, print_table
from preferl.cli.options import (
    FOLDER,
    NAME,
    Crossing,
    Labels,
    StoreConfig,
    Trust,
    import_trusted,
    opened,
    require_store,
)
from preferl.cli.parsing import POSITIONAL
from preferl.configs import plain, without_password
from preferl.data import sources
from preferl.data.segment_sampling import windows_of
from preferl.data.segments import join_segments
from preferl.errors import (
    ConfigError,
    DataError,
    PreferlError,
    require_in,
    require_one_of,
    require_seed,
)
from preferl.feedback.pair_sampling import probability_variance, segments_wanted
from preferl.feedback.ranked_lists import sample_lists
from preferl.files import write_json
from preferl.reading import read_object, reading
from preferl.registry import SAMPLERS
from preferl.shapes import FloatArray, IntArray
from preferl.trust import named_object, trust_options, typed

if TYPE_CHECKING:
    from preferl.feedback.protocols import PairSampler
    from preferl.store import Store
    from preferl.store.exchange.answer_table import ImportReport
    from preferl.store.model_annotator import PairModel
    from preferl.store.schema import Project


PORT = 8765
LOCAL: Final = ("localhost", "127.0.0.1", "::1")  # this machine; elsewhere, they mean another


@dataclass(frozen=True)
class ServeConfig:
    """Serve the page on which people compare clips, and draw their clips, until Ctrl-C.

    For example
      preferl annotate serve
      PREFERL_SECRET=... preferl annotate serve --host 0.0.0.0 --public-url
      https://labels.example.org

    Attributes:
        labels: where labels are.
        host: address at which the page listens; any other than 127.0.0.1 needs PREFERL_SECRET in
            the environment.
        port: port at which the page listens; 0 takes any free one.
        public_url: address at which people find the page, for example behind a proxy.
        browser: open your own link in a browser.
        render: also draw clips; turn this off if another machine does.
        shared_limits: count requests of a person in the database, if several servers share a page.
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
        function: module:function that draws every clip, instead of the way that a project says.
        trust: module that may be imported to draw clips, such as your environment's; repeatable.
        once: end when there is nothing left to draw.
        parent: id of a process, such as the page's; drawing ends when that process ends.
    """

    store: str = FOLDER
    files: str | None = None
    function: str | None = None
    trust: Trust = ()
    once: bool = False
    parent: int | None = None


@dataclass(frozen=True)
class AskConfig:
    """Let a model answer pairs as a person does on the page. The same command continues.

    For example
      preferl annotate ask mine --model my_models:compare --limit 50
      preferl annotate ask large --url https://models.example.org/compare --budget 5
      preferl annotate ask mine --model my_models:compare --answered

    Attributes:
        name: the model's name among the annotators; another model needs another name.
        labels: where labels are.
        model: module:function of two clips, a `ShownPair`, that returns the probability that the
            first is preferred, None to decline, or a `ModelAnswer`.
        url: URL of a model instead, to which pictures and texts are sent.
        key_variable: environment variable that holds the key for this URL.
        timeout: seconds that the URL may take to reply.
        frames: pictures of each clip; 8 of 50 steps are a quarter of a second apart. With 0, the
            model only gets numbers, and clips need no videos.
        both_orders: ask twice, with the clips exchanged, and decline if the answers differ.
        answered: ask about pairs that others have answered, to compare the model with them.
        limit: number of answers after which the command stops.
        budget: most that all answers of this annotator may cost.
    """

    name: Annotated[str, POSITIONAL]
    labels: Labels = field(default_factory=StoreConfig)
    model: str | None = None
    url: str | None = None
    key_variable: str | None = None
    timeout: float = 60.0
    frames: int = 8
    both_orders: bool = False
    answered: bool = False
    limit: int | None = None
    budget: float = inf


@dataclass(frozen=True)
class InviteConfig:
    """Invite a person: print their personal link.

    For example
      preferl annotate invite "Ann Example"
      preferl annotate invite Bob --role spectator --public-url https://labels.example.org
      preferl annotate invite Cleo --expires 48 --once
      preferl annotate invite Cleo --revoke

    Attributes:
        name: the person's name; a second invitation ends their old link and their sessions.
        labels: where labels are.
        role: annotators answer, admins also see and change everything, spectators only look.
        public_url: address at which people find the page; by default the last address of the page.
        expires: hours for which the link works; by default it does not expire.
        once: the link works in one browser only.
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
      preferl annotate export answers.jsonl --ratings ratings.jsonl

    Attributes:
        path: file to write. Its ending says whether it is JSON lines, CSV or Parquet.
        labels: where labels are.
        ratings: file for ratings and outcomes of clips, with one of the same endings.
        clips: folder for the clips, from which a reward can be fitted without the store.
        anonymous: write digests instead of names.
    """

    path: Annotated[Path, POSITIONAL]
    labels: Labels = field(default_factory=StoreConfig)
    ratings: Path | None = None
    clips: Path | None = None
    anonymous: bool = False


@dataclass(frozen=True)
class ImportConfig:
    """Read answers into a project: an export, a published label folder, or a table of choices.

    The table of ratings and outcomes that an export wrote is read, too.

    For example
      preferl annotate import answers.jsonl --clips clips
      preferl annotate import ratings.jsonl
      preferl annotate import answers.jsonl --clips clips --new --store runs/restored
      preferl annotate import door-human-v1_human_labels --demonstrations door-v0_demos.pickle
      preferl annotate import chosen.csv --demonstrations episodes --length 50 --name "Our pilot"
      preferl annotate import drlhp_logs/train.pkl.gz --name me

    Attributes:
        path: what `preferl annotate export` wrote; a folder of Uni-RLHF or Preference Transformer
            labels; a table with the columns `chosen` and `rejected`, or `chosen_episode`,
            `chosen_start` and so on; or a `train.pkl.gz` or `val.pkl.gz` of
            learning-from-human-preferences.
        labels: project into which answers are read.
        new: make the project, and the store if there is none.
        clips: folder of clips that was exported beside the answers.
        demonstrations: episodes in which labels count steps: a file, a folder, or the id of a
            Minari data set.
        task: row of the table of tasks, for a D4RL file that needs one.
        name: name of the person who answered; by default the name of the file or folder.
        owner: name under which the answers of the exporting store's owner are kept; without one,
            they are refused.
        length: steps per clip, if the labels do not state it.
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
    length: int | None = None
    crossing: Crossing | None = None


def annotate_serve(config: ServeConfig) -> None:
    """Serve the annotation page until Ctrl-C."""
    note("Starting the page ...")  # the next steps take seconds
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
    """Draw clips of pending queries until none is left, or Ctrl-C."""
    from preferl.store.rendering.videos import serve_rendering

    logging.basicConfig(level=logging.WARNING, format="preferl: %(message)s")
    require_store(config.store)
    rendered = serve_rendering(
        config.store,
        config.files,
        function=config.function,
        trust=typed(config.function, trust=config.trust),
        parent=config.parent,
        once=config.once,
    )
    if rendered.drawn or rendered.failed:
        failed = f", {rendered.failed:,} could not be" if rendered.failed else ""
        echo(f"{rendered.drawn:,} clips drawn{failed}.")
    elif config.parent is None:
        echo("There were no clips to draw.")


def annotate_ask(config: AskConfig) -> None:
    """Let a model answer pairs until none is left, and print what it answered."""
    from preferl.store.model_annotator import ModelTally, model_answers

    line = ProgressLine()
    tally = ModelTally()
    began = time.monotonic()
    with opened(config.labels) as (store, project):
        answers = model_answers(
            store,
            project,
            config.name,
            _pair_model(config),
            frames=config.frames,
            both_orders=config.both_orders,
            answered=config.answered,
            budget=config.budget,
        )
        total = config.limit or store.reports.open(project.id)
        try:
            with line.running():
                for tally in islice(answers, config.limit):
                    rate = 60 * tally.answers / (time.monotonic() - began)
                    news = f"{rate:.0f} a minute, cost {tally.cost:g}"
                    line("asking", tally.answers, total, news)
        finally:
            if tally.answers:
                echo(
                    f"{tally.answers:,} answers by {config.name}, version "
                    f"{tally.version or 'unknown'}: {tally.declined:,} declined, of these "
                    f"{tally.contradictions:,} that depended on the order; {tally.reused:,} known "
                    f"from the same clips. Cost {tally.cost:g}, with earlier runs "
                    f"{tally.total_cost:g}."
                )
        undrawn = store.progress(project.id).pairs_undrawn
    if not tally.answers:
        echo(f"No pair is left for {config.name}, within its budget.")
    if config.frames and undrawn:
        echo(f"{undrawn:,} pairs wait for videos: run `preferl annotate render --once`.")


def _pair_model(config: AskConfig) -> "PairModel":
    from preferl.store.http_model import HttpModel

    if config.url is None and config.model is not None:
        typed(config.model)
        model: PairModel = named_object(config.model, "model")
        return model
    if config.url is None or config.model is not None:
        raise ConfigError("model: expected one of --model and --url, got none or both.")
    note("Pictures and texts of pairs are sent to this URL.")
    name = config.key_variable
    key = None if name is None else os.environ.get(name, "")
    return HttpModel(config.url, key=key, timeout=config.timeout)


def annotate_invite(config: InviteConfig) -> None:
    """Print a person's link, and notes for the person who sends it."""
    with opened(config.labels) as (store, project):
        if config.revoke:
            name = store.people.revoke(project.id, config.name).name
            store.reports.add_event(project.id, "revoked", detail={"name": name})
            echo(f"The link of {name} has ended, and so have their sessions. Answers stay.")
            return
        earlier_names = {person.name for person in store.people.all(project.id)}
        uses = 1 if config.once else None
        person, secret = store.people.invite(
            project.id, config.name, config.role, hours=config.expires, uses=uses
        )
        detail = {"name": person.name, "role": config.role}
        store.reports.add_event(project.id, "invited", detail=detail)
        served = store.reports.last_event("served")
    page = config.public_url or (served or {}).get("url") or f"http://localhost:{PORT}"
    activity = "looks on" if config.role == "spectator" else "answers"
    lines = [
        f"{person.name} ({config.role}) {activity} here; this link is shown only now:",
        f"{page.rstrip('/')}/join/{secret}",
    ]
    if config.once or config.expires is not None:
        hours = "" if config.expires is None else f" within {config.expires:g} hours"
        lines.append(f"It opens{' once' if config.once else ''}{hours}.")
    if person.name in earlier_names:
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
    """Write the answers of a project, and its clips if the config names a folder for them."""
    from preferl.store.exchange.exports import export_answers, export_segments
    from preferl.store.exchange.ratings import export_ratings

    with opened(config.labels) as (store, project):
        count = export_answers(store, project.id, config.path, anonymous=config.anonymous)
        echo(
            f"{count:,} rows in {config.path}: all answers, skips and retractions. "
            "Rows with `counts` are the current answers."
        )
        if config.ratings is not None:
            rows = export_ratings(store, project.id, config.ratings, anonymous=config.anonymous)
            echo(f"{rows:,} rows in {config.ratings}: all ratings and outcomes.")
        if config.clips is not None:
            clips = export_segments(store, project.id, config.clips)
            echo(f"{clips:,} clips in {config.clips}.")


def annotate_import(config: ImportConfig) -> None:
    """Read the answers of a file or folder into a project."""
    from preferl.store.exchange.exports import import_answers
    from preferl.store.exchange.ratings import import_ratings

    kind = _kind(config.path)
    exported = {"answers": import_answers, "ratings": import_ratings}
    with opened(config.labels, new=config.new) as (store, project):
        if kind in exported:
            imported = exported[kind](
                store, project.id, config.path, clips=config.clips, owner=config.owner
            )
            echo(f"{imported.new:,} {kind} are new, {imported.known:,} were there already.")
            return
        answers = _import_labels(store, project.id, kind, config)
    echo(
        f"{answers.new:,} answers by {', '.join(answers.annotators)} about {answers.clips:,} clips "
        f"are new, {answers.known:,} were there already."
    )


def _import_labels(
    store: "Store", project_id: int, kind: str, config: ImportConfig
) -> "ImportReport":
    """Import labels that were made elsewhere, perhaps about episodes that the config names."""
    from preferl.store.exchange.imports import import_drlhp, import_labels, import_table

    episodes = None
    if config.demonstrations is not None:
        episodes = sources.load_source(config.demonstrations, task=config.task)
    name = config.name
    length = config.length
    if kind == "table":
        return import_table(store, project_id, config.path, episodes, name=name, length=length)
    if kind == "drlhp":
        return import_drlhp(store, project_id, config.path, name=name)
    if episodes is None:
        raise ConfigError(
            "episodes: expected a source of them, got none. Give --demonstrations with the "
            "episodes that they count in."
        )
    return import_labels(
        store,
        project_id,
        config.path,
        episodes,
        name=name,
        length=length,
        crossing=config.crossing,
    )


def _kind(path: Path) -> Literal["answers", "ratings", "table", "folder", "drlhp"]:
    """Return what a path contains, by its name or by the columns of its first row."""
    from preferl.store.exchange.tables import read_table

    if path.is_dir():
        return "folder"
    if path.name.endswith(".pkl.gz"):
        return "drlhp"
    columns = next(iter(read_table(path)), {"query": None}).keys()
    if "query" in columns:
        return "answers"
    if {"clip", "rating", "outcome"} <= columns:
        return "ratings"
    if {"chosen", "chosen_episode"} & columns:
        return "table"
    raise DataError(
        f"{path}, columns: expected chosen and rejected, or those that `preferl annotate export` "
        f"writes, got {', '.join(columns)[:200]}. For clips by their place, name columns "
        "chosen_episode, chosen_start, rejected_episode and rejected_start."
    )


annotate_create_start = import_trusted


@dataclass(frozen=True)
class CreateConfig:
    """Begin a project: cut clips from recorded episodes and put pairs of them into a queue.

    For example
      preferl annotate create --demonstrations door-v0_demos.pickle --env AdroitHandDoor-v1
      preferl annotate create --dataset D4RL/door/human-v2 --env AdroitHandDoor-v1 --known 10
      preferl annotate create --lerobot my_robot --whole-episodes --speed 2 --ratings

    Attributes:
        demonstrations: a pickle of demonstrations, an HDF5 file of D4RL or robomimic, stacked
            `.npz` files, or a folder of episodes written by preferl.
        dataset: or the id of a Minari data set on this machine.
        run: or a folder with episodes: that of an offline run or reward fit, which has a data set,
            of an online run with --keep-experience, or of saved episodes.
        lerobot: or a robot's data set of LeRobot, version 3: its folder, or hub:OWNER/NAME, and
            perhaps the features that a reward observes, FOLDER:NAME,NAME. Clips show its cameras,
            and only clips of one task are compared.
        cameras: cameras to show side by side, such as `front wrist`; by default all.
        task: row of the table of tasks, for a D4RL file that needs one.
        store: folder for the labels, or the URL of a database.
        files: folder of clips and videos beside a PostgreSQL database, or its URL
            (s3://bucket/labels).
        project: short name: small letters, digits and hyphens.
        title: the name that people see.
        question: shown with every pair; one sentence about the outcome that matters.
        instructions: a text file that says what counts as better, and what breaks ties.
        queries: how many pairs to ask about.
        length: steps per clip; 50 at 30 frames per second are short enough to compare at a glance.
        whole_episodes: compare whole episodes instead of clips.
        sampler: "uniform" draws any pairs, "covering" pairs that are far apart, and "informative"
            pairs on which the members of `reward` disagree.
        lists: number of ranked lists into which clips are sorted, for example one for each 100
            queries. A sampler then draws no pairs. `preferl reward fit --implied True` learns from
            what the lists imply.
        reward: folder of the run that fitted a reward, for informative pairs.
        known: number of pairs with a known answer, drawn where the recorded rewards differ most.
            They show who understood the question.
        qualification: number of known pairs that new people answer first, four in five correctly.
        strength: let people say "clearly" or "slightly" better.
        ratings: let people also rate each clip from 1 to 5, and say whether it is a success.
        quorum: people who answer each query; two or more show how far people agree.
        budget: number of answers after which nothing more is asked.
        fps: frames per second of the recording; by default 30, or what a LeRobot data set says.
        speed: speed of clips, as a multiple of that; people can change it by a factor of up to two.
        env: id of the environment that draws the clips.
        pixels: or the name of the observation that contains pictures.
        colours: channels of a frame in these pictures: 1 for grey, 3 for RGB, 4 for RGB with
            opacity or depth, which is not shown; by default, the pictures tell.
        elsewhere: make the project although its clips cannot be drawn on this machine.
        seed: seed of all draws.
        trust: module of yours that registers the model of `reward`; may be given several times.
    """

    demonstrations: Path | None = None
    dataset: str | None = None
    run: Path | None = None
    lerobot: str | None = None
    cameras: tuple[str, ...] = ()
    task: str | None = None
    store: str = FOLDER
    files: str | None = None
    project: str = NAME
    title: str = ""
    question: str = "Which clip is better?"
    instructions: Path | None = None
    queries: int = 200
    length: int = 50
    whole_episodes: bool = False
    sampler: Annotated[str, SAMPLERS] = "uniform"
    lists: int | None = None
    reward: Path | None = None
    known: int = 0
    qualification: int = 0
    strength: bool = False
    ratings: bool = False
    quorum: int = 1
    budget: int | None = None
    fps: int | None = None
    speed: float = 1.0
    env: str | None = None
    pixels: str | None = None
    colours: Literal[1, 3, 4] | None = None
    elsewhere: bool = False
    seed: int = 0
    trust: Trust = ()

    def __post_init__(self) -> None:
        require_seed(self.seed)


@dataclass(frozen=True)
class ClipSource:
    """The episodes from which clips are cut.

    Attributes:
        episodes: the `K` episodes.
        fps: frames per second at which they were recorded.
        tasks: `K` texts that say what was to be done; "" if no task is named.
        frames: how clips become pictures; None if other settings decide this.
    """

    episodes: "data.Episodes"
    fps: float
    tasks: tuple[str, ...]
    frames: dict[str, Any] | None = None


@dataclass(frozen=True)
class DrawnPairs:
    """Candidate clips, `[P, 2]` rows of the clips to ask about, and `P` texts of their tasks."""

    segments: "data.Segments"
    pairs: IntArray
    tasks: tuple[str, ...]


def annotate_create(config: CreateConfig) -> None:
    """Draw the queries, store them, and print the next command."""
    _require_reward_for_sampler(config)
    require_in("queries", config.queries, 1, float("inf"))
    require_in("qualification", config.qualification, 0, config.known, fix="Raise --known.")
    source = _clip_source(config)
    _require_alike(config, source)
    settings = _project_settings(config, source)
    if config.lists is None:
        drawn = _draw_pairs(config, source)
    else:
        drawn = _draw_lists(config, source.episodes)
    trust = typed(config.env)
    _require_drawable(config, settings.frames or {}, drawn.segments, trust)
    several = _store_queries(config, source, settings, drawn)
    words = StoreConfig(config.store, config.files).options()
    words = words if config.store != FOLDER else words[2:]
    words += ("--project", config.project) if several else ()
    shown_words = [without_password(word) for word in (*words, *trust_options(trust))]
    store_name = without_password(f"{config.store}")
    and_known = f", and {config.known} with a known answer" if config.known else ""
    kind = "whole episodes" if config.whole_episodes else f"{config.length} steps"
    echo(
        f"{config.queries:,} pairs of {kind} from {len(source.episodes):,} episodes wait "
        f"in {store_name}{and_known}.\n"
        f"Answer them: {shlex.join(('preferl', 'annotate', 'serve', *shown_words))}"
    )


def _store_queries(
    config: CreateConfig,
    source: ClipSource,
    settings: "store.ProjectSettings",
    drawn: DrawnPairs,
) -> bool:
    """Make the project and ask its queries; return whether the store has several projects."""
    from preferl.store.queries import known_pairs

    known_checks = None
    if config.known:
        rng = np.random.default_rng([config.seed, 1])
        known_checks = known_pairs(source.episodes, config.known, config.length, rng)
    with store.Store.open(config.store, config.files) as labels:
        project = labels.projects.create(config.project, settings)
        if known_checks is not None:
            checks, pairs_of_checks, known_preference = known_checks
            labels.queries.ask(
                project.id,
                checks,
                pairs_of_checks,
                purpose="known",
                known=known_preference,
                details=_task_details(source.tasks[:1] * len(pairs_of_checks)),
            )
        if config.lists is None:
            details = _task_details(drawn.tasks)
            labels.queries.ask(project.id, drawn.segments, drawn.pairs, details=details)
        else:
            labels.ranked.create(project.id, drawn.segments, drawn.pairs, config.queries)
        return len(labels.projects.all()) > 1


def _task_details(tasks: Sequence[str]) -> list[dict[str, Any]] | None:
    """Return what queries about these tasks remember; None if no task has a text."""
    from preferl.store.schema import TASK

    return [{TASK: task} for task in tasks] if any(tasks) else None


def _require_alike(config: CreateConfig, source: ClipSource) -> None:
    """Raise `ConfigError` if clips of different tasks or lengths would be compared."""
    tasks = len(set(source.tasks))
    for name in ("known", "lists"):
        if getattr(config, name) and (tasks > 1 or config.whole_episodes):
            raise ConfigError(
                f"{name}: expected clips of one task and length beside it, got {tasks} tasks"
                f"{' and whole episodes' if config.whole_episodes else ''}. Leave --{name} out."
            )
    lengths = source.episodes.lengths
    if config.whole_episodes and lengths.min() < lengths.max():
        note(
            f"Episodes differ in length ({lengths.min()} to {lengths.max()} steps), and the return "
            "of a whole episode is the sum over its steps. Positive learned rewards therefore "
            "favour long episodes, and negative ones short episodes. Compare clips, or tell "
            "people what length means."
        )


def _require_reward_for_sampler(config: CreateConfig) -> None:
    """Raise `ConfigError` unless there is a reward exactly if the sampler scores clips with one."""
    require_one_of("sampler", config.sampler, SAMPLERS.names())
    scorer = inspect.signature(SAMPLERS.load(config.sampler)).parameters.get("scorer")
    needed = scorer is not None and scorer.default is scorer.empty
    if config.reward is None and (needed or config.sampler == "informative"):
        raise ConfigError(
            f"reward: expected a fitted one with {config.sampler!r} pairs, got None. "
            "Give --reward FOLDER."
        )
    if config.reward is not None and scorer is None:
        raise ConfigError(
            f"reward: expected none with this sampler, got {config.reward}. Give --sampler "
            "informative with it."
        )


def _project_settings(config: CreateConfig, source: ClipSource) -> "store.ProjectSettings":
    instructions = ""
    if config.instructions is not None:
        with reading(config.instructions, expected="a text file", error=DataError):
            instructions = config.instructions.read_text(encoding="utf-8")
    budget = config.budget
    if config.lists is not None and budget is None:  # answers decide which queries come up
        budget = config.queries * config.quorum
    fps = round((config.fps or source.fps) * config.speed)
    require_in("fps times speed", fps, 1, 240, fix="Choose another --speed.")
    return store.ProjectSettings(
        title=config.title,
        question=config.question,
        instructions=instructions,
        fps=fps,
        quorum=config.quorum,
        qualification=config.qualification,
        strength=config.strength,
        ratings=config.ratings,
        budget=budget,
        frames=source.frames or _frames(config, source.episodes),
    )


def _clip_source(config: CreateConfig) -> ClipSource:
    """Read the episodes that a config names in one of four ways."""
    names = ("demonstrations", "dataset", "run", "lerobot")
    given_options = [f"--{name}" for name in names if getattr(config, name) is not None]
    if len(given_options) != 1:
        raise ConfigError(
            "episodes: expected one of --demonstrations, --dataset, --run, --lerobot, got "
            f"{given_options or 'none'}."
        )
    if config.cameras and config.lerobot is None:
        raise ConfigError(f"cameras: expected --lerobot beside them, got {given_options[0]}.")
    if config.lerobot is not None:
        return _robot_source(config, config.lerobot)
    if config.run is not None:
        episodes = episodes_of_run(config.run)
    elif config.dataset is not None:
        episodes = sources.load_source(_minari(config.dataset))
    else:
        episodes = sources.load_source(config.demonstrations or "", task=config.task)
    return ClipSource(episodes, fps=30, tasks=("",) * len(episodes))


def _robot_source(config: CreateConfig, source: str) -> ClipSource:
    from preferl.store.rendering.cameras import camera_episodes, camera_names

    if config.env is not None or config.pixels is not None:
        raise ConfigError("lerobot: expected cameras as pictures, got --env or --pixels beside it.")
    recording = sources.open_lerobot(source)
    cameras = camera_names(recording, config.cameras)
    return ClipSource(
        camera_episodes(recording),
        fps=recording.fps,
        tasks=recording.tasks,
        frames={
            "kind": "cameras",
            "folder": recording.source,
            "content": recording.content_id,
            "cameras": cameras,
        },
    )


def episodes_of_run(folder: Path) -> "data.Episodes":
    """Read the episodes that a folder contains, or from which the run in it was made."""
    for place in (folder, folder / "episodes", folder / "experience"):
        if (place / "about.json").is_file():
            return data.load_episodes(place)
    expected = "a run from recorded episodes, or a folder that holds some"
    fix = (
        "An online run keeps its experience with --keep-experience. Other episodes are saved by "
        "preferl.data.save_episodes: name their folder."
    )
    with reading(folder, expected=expected, fix=fix, error=DataError):
        settings = read_object(folder / "config.json")["config"]
        settings |= settings.get("run") or settings.get("config") or {}
        source = settings["demonstrations"] or _minari(settings["dataset"])
    return sources.load_source(source, task=settings.get("task"))


def _minari(dataset: str) -> str:
    return f"minari:{dataset.removeprefix('minari:')}"


def _draw_pairs(config: CreateConfig, source: ClipSource) -> DrawnPairs:
    """Draw candidate clips, and pairs of them to ask about; both clips of a pair have one task.

    The queries of a task are in proportion to its windows, or to its episodes if whole ones are
    compared.
    """
    rng = np.random.default_rng(config.seed)
    sampler = _pair_sampler(config)
    episodes = source.episodes
    names, task = np.unique(source.tasks, return_inverse=True)
    parts: list[data.Segments] = []
    origins: list[IntArray] = []
    pairs: list[IntArray] = []
    tasks: list[str] = []
    for number, count in enumerate(_queries_by_task(config, episodes, task).tolist()):
        if not count:
            continue
        task_rows = np.flatnonzero(task == number)
        part = episodes if len(task_rows) == len(episodes) else episodes[task_rows]
        if config.whole_episodes:
            drawn = data.whole_episodes(part)
        else:
            wanted = segments_wanted(sampler, count)
            drawn = data.sample_segments(part, wanted, config.length, rng)
        segments = store.distinct_clips(drawn)
        pairs.append(sampler(segments, count, rng) + sum(map(len, parts)))
        tasks += [str(names[number])] * len(pairs[-1])
        origin = np.array(segments.origin)
        origin[:, [0, 2]] = task_rows[origin[:, [0, 2]]]
        origins.append(origin)
        parts.append(segments)
    segments = replace(join_segments(parts), origin=np.concatenate(origins))
    return DrawnPairs(segments, np.concatenate(pairs), tuple(tasks))


def _pair_sampler(config: CreateConfig) -> "PairSampler":
    parts: dict[str, Any] = {"acquisition": probability_variance, "oversampling": 10}
    if config.reward is not None:
        from preferl.training import load_reward

        reward = load_reward(config.reward / "reward")
        parts |= {"scorer": reward.scores, "likelihood": reward.likelihood}
    sampler: PairSampler = SAMPLERS.build(config.sampler, **parts)
    return sampler


def _queries_by_task(config: CreateConfig, episodes: "data.Episodes", task: IntArray) -> IntArray:
    """Return how many queries each task gets, from the number of each episode's task `[K]`."""
    windows_per_episode = (
        len(episodes) * [1] if config.whole_episodes else windows_of(episodes, config.length)
    )
    weight = np.bincount(task, windows_per_episode).astype(np.float64)
    if len(weight) > 1:
        weight[weight < 2] = 0  # fewer than two have nothing to be compared with
    if not weight.any():
        raise DataError(
            f"segment length: expected at most {episodes.lengths.max(initial=0)}, the longest of "
            f"{len(episodes)} episodes, and two clips of one task, got {config.length}. Shorten "
            "the clips, or record more episodes of a task."
        )
    return _shares(config.queries, weight)


def _shares(total: int, weight: FloatArray) -> IntArray:
    """Divide a number in proportion to weights `[K]`; each share is rounded up or down.

    >>> _shares(10, np.array([1.0, 0.0, 2.0])).tolist()
    [3, 0, 7]
    """
    ends = np.rint(total * np.cumsum(weight) / weight.sum()).astype(np.int64)
    return np.asarray(np.diff(ends, prepend=0))


def _draw_lists(config: CreateConfig, episodes: "data.Episodes") -> DrawnPairs:
    """Draw candidate segments, and divide their rows among ranked lists."""
    if config.sampler != CreateConfig.sampler:
        raise ConfigError(
            f"lists: expected {CreateConfig.sampler} pairs, got {config.sampler}. Lists decide "
            "themselves what to ask. Leave --sampler or --lists out."
        )
    rng = np.random.default_rng(config.seed)
    lists = config.lists or 0
    drawn, _ = sample_lists(episodes, config.queries, config.length, rng, lists=lists)
    segments = store.distinct_clips(drawn)
    per_list = len(segments) // lists
    if not per_list >= 2:
        raise DataError(
            f"clips of lists: expected at least two different ones for each of {lists}, got "
            f"{len(segments)} in all. Make fewer lists, or record more steps."
        )
    return DrawnPairs(segments, np.arange(lists * per_list).reshape(lists, per_list), ())


def _frames(config: CreateConfig, episodes: "data.Episodes") -> dict[str, Any]:
    from preferl.store.rendering.frames import spec_for
    from preferl.store.stages import holds_pictures

    colours = {} if config.colours is None else {"colours": config.colours}
    if config.pixels is not None:
        return {"kind": "pixels", "key": config.pixels, **colours}
    try:
        pictures = holds_pictures(episodes.states)
        frames = spec_for(episodes.observations, config.env, recorded=pictures)
        if colours and frames["kind"] != "pixels":
            raise ConfigError(
                f"colours: expected observations that hold pictures, got {frames['kind']!r} as the "
                "source of pictures. Leave --colours out."
            )
        return frames | colours
    except ConfigError as error:
        fix = "Give --env ID, such as --env AdroitHandDoor-v1, or --pixels KEY."
        raise ConfigError(f"{error} {fix}") from error


def _require_drawable(
    config: CreateConfig, frames: dict[str, Any], segments: "data.Segments", trust: Collection[str]
) -> None:
    """Draw one picture of a clip, so that errors appear now and not when people wait."""
    from preferl.store.rendering.frames import frame_source

    if config.elsewhere:
        return
    try:
        with closing(frame_source(frames, trust=trust)) as source:
            next(iter(source(segments, 0)))
    except PreferlError as error:
        raise DataError(
            f"clips cannot be drawn here, so nothing was made: {error} If another machine draws "
            "them, add --elsewhere, and run `preferl annotate render` there."
        ) from error


@dataclass(frozen=True)
class LabelReportConfig:
    """Show the progress of labels, how much people agree, and whose answers to check.

    For example
      preferl annotate report
      preferl annotate report --out report.html

    Attributes:
        labels: where labels are.
        out: also write an HTML page or a JSON file, depending on the ending of this name.
        seed: seed of the resamples behind intervals.
    """

    labels: Labels = field(default_factory=StoreConfig)
    out: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_seed(self.seed)


Grid = tuple[str, tuple[tuple[str, ...], ...], tuple[str, ...]]
"""Title, rows and heads of a table; without heads, its rows are names and values."""


def annotate_report(config: LabelReportConfig) -> None:
    """Print tables about labels, and write a file if the config names one."""
    ending = None if config.out is None else config.out.suffix.lower()
    if ending not in (None, ".html", ".json"):
        raise ConfigError(f"out: expected a name ending in .html or .json, got {ending}.")
    with opened(config.labels) as (store, project):
        numbers = _numbers(store, project, config.seed)
    echo(f"{numbers['project']['title']}: {numbers['project']['question']}")
    grids: tuple[Grid, ...] = (_progress(numbers), _agreement(numbers), people_table(numbers))
    if numbers["models"]:
        grids = (*grids, _models(numbers))
    for kind, report in numbers["ratings"].items():
        if report["count"]:
            grids = (*grids, *_ratings(kind, report))
    for grid in grids:
        print_table(*grid)
    for line in _remarks(numbers):
        echo(line)
    if config.out is None:
        return
    if ending == ".json":
        write_json(config.out, numbers)
    else:
        _write_page(config.out, numbers, grids)
    echo(f"Written: {config.out}")


def _numbers(store: "Store", project: "Project", seed: int) -> dict[str, Any]:
    """Return everything that the report shows, as plain numbers."""
    from preferl.store.quality.agreement import agreement_report, agreement_with_people
    from preferl.store.quality.annotators import annotator_report

    votes = store.queries.votes(project.id)
    kinds = {"A": 1.0, "B": 0.0, "equal": 0.5}  # the page's names for left and right
    learned_votes = votes[np.isnan(votes.known) & (votes.repeat_of < 0)]
    answers = {name: int((learned_votes.left == value).sum()) for name, value in kinds.items()}
    shown_columns = ("version", "accuracy", "low", "high", "answers")
    rewards = store.reports.rewards(project.id)
    trust = (rewards[-1].metrics.trust if rewards else None) or {}
    people = annotator_report(votes).rows()
    rng = np.random.default_rng(seed)
    return plain(
        {
            "project": {name: getattr(project, name) for name in ("slug", "title", "question")},
            "progress": store.progress(project.id),
            "answers": answers | {"cannot tell": int(np.isnan(learned_votes.preference).sum())},
            "checks": len(votes) - len(learned_votes),
            "known_pairs": store.queries.count_known(project.id),
            "agreement": agreement_report(votes, rng),
            "models": agreement_with_people(votes),
            "ratings": store.ratings.report(project.id, rng),
            "people": [person | {"trust": trust.get(str(person["name"]))} for person in people],
            "rewards": [
                {name: getattr(reward, name) for name in shown_columns} for reward in rewards
            ],
        }
    )


def _progress(numbers: dict[str, Any]) -> Grid:
    progress = numbers["progress"]
    answers = numbers["answers"]
    checks = "known pairs and repeats" if numbers["known_pairs"] else "repeats"
    rows = (
        ("answers", f"{progress['answered']:,} of {progress['wanted']:,} wanted"),
        ("of these, A (left) is better", f"{answers['A']:,}"),
        ("B (right) is better", f"{answers['B']:,}"),
        ("equal", f"{answers['equal']:,}"),
        ("cannot tell", f"{answers['cannot tell']:,}"),
        (f"besides, about {checks}", f"{numbers['checks']:,}"),
        ("pairs that need answers", f"{progress['open']:,}"),
        ("pairs to be drawn", f"{progress['pairs_undrawn']:,}"),
        ("clips that cannot be drawn", f"{progress['clips_failed']:,}"),
        ("people active", f"{progress['people_active']:,}"),
    )
    return "Progress", rows, ()


def _agreement(numbers: dict[str, Any]) -> Grid:
    rows = _agreement_rows(numbers["agreement"], "pairs with two or more answers", "their answers")
    return "How people agree", rows, ()


def _agreement_rows(
    agreement: dict[str, Any], units: str, answers: str
) -> tuple[tuple[str, str], ...]:
    low = agreement["low"]
    high = agreement["high"]
    return (
        (units, f"{agreement['queries']:,}"),
        (f"{answers} agree", _percent(agreement["raw"])),
        ("by chance they would", _percent(agreement["chance"])),
        ("Krippendorff's alpha", agreement["note"] or f"{agreement['alpha']:.2f}"),
        ("95 % interval", "–" if low is None else f"{low:.2f} to {high:.2f}"),
    )


def _models(numbers: dict[str, Any]) -> Grid:
    rows = tuple(
        (
            str(model["name"]),
            f"{model['queries']:,}",
            _percent(model["agreement"]),
            f"{model['low']:.0%} to {model['high']:.0%}",
            cell(model["kappa"], ".2f"),
        )
        for model in numbers["models"]
    )
    heads = ("name", "pairs with people", "agree", "95 % interval", "kappa")
    return "How models agree with people", rows, heads


def _ratings(kind: str, report: dict[str, Any]) -> tuple[Grid, Grid]:
    """Return tables of the ratings or outcomes of clips, and of the people who gave them."""
    values = ("failure", "success") if kind == "outcomes" else range(1, 6)
    counts = (
        f"{count:,} of {value}" for count, value in zip(report["counts"], values, strict=True)
    )
    rows = (
        (kind, f"{report['count']:,}: {', '.join(counts)}"),
        ("mean", cell(report["mean"], ".2f")),
        ("clips that have any", f"{report['clips']:,}"),
        *_agreement_rows(report["agreement"], f"clips with two or more {kind}", f"their {kind}"),
    )
    people = tuple(
        (str(person["name"]), f"{person['count']:,}", cell(person["mean"], ".2f"))
        for person in report["people"]
    )
    heads = ("name", kind, "mean")
    return (f"{kind.title()} of clips", rows, ()), (f"Who gives {kind}", people, heads)


def people_table(numbers: dict[str, Any]) -> Grid:
    """Return a table of how people answer, without optional columns that are empty for all."""
    shares = ("equal", "A", "others", "known", "repeats")
    heads = ("name", "answers", "seconds", *shares, "trust", "check")
    rows = [
        (
            f"{person['name']}{' (model)' if person['is_model'] else ''}",
            f"{person['answers']:,}",
            "–" if person["median_ms"] is None else f"{person['median_ms'] / 1000:.1f}",
            _percent(person["tie_rate"]),
            _percent(person["left_rate"]),
            _percent(person["agreement"], person["overlap"]),
            _percent(person["known_accuracy"], person["known"]),
            _percent(person["consistency"], person["repeats"]),
            _with_interval(person.get("trust")),
            ", ".join(person["reasons"]),
        )
        for person in numbers["people"]
    ]
    empty = {"trust": "–", "check": ""}
    columns_kept = [
        column
        for column, head in enumerate(heads)
        if head not in empty or any(row[column] != empty[head] for row in rows)
    ]
    shown, *cells = (tuple(row[column] for column in columns_kept) for row in (heads, *rows))
    return "People", tuple(cells), shown


def _with_interval(trust: dict[str, float] | None) -> str:
    """Return a number in words, with half the width of its 95 % interval."""
    return "–" if trust is None else f"{trust['value']:.2f} ± {trust['high'] - trust['value']:.2f}"


def _remarks(numbers: dict[str, Any]) -> tuple[str, ...]:
    flagged = ", ".join(str(person["name"]) for person in numbers["people"] if person["flagged"])
    warning = (
        f"Check the answers of {flagged}: all of them still count. A flag is a reason to talk to "
        "somebody. Of 100 careful people, one or two are flagged."
    )
    draw = "Run `preferl annotate render --once` to see why clips cannot be drawn."
    return ((warning,) if flagged else ()) + (
        (draw,) if numbers["progress"]["clips_failed"] else ()
    )


def _write_page(path: Path, numbers: dict[str, Any], grids: tuple[Grid, ...]) -> None:
    from preferl.evaluation.report import Fact, Report, ReportTable, Section, write_report

    progress = numbers["progress"]
    agreement = numbers["agreement"]
    raw = _percent(agreement["raw"])
    chance_text = f"{_percent(agreement['chance'])} by chance"
    facts = (
        Fact("Answers", f"{progress['answered']:,}", f"of {progress['wanted']:,} wanted"),
        Fact("People", f"{len(numbers['people']):,}"),
        Fact(
            "Agreement", raw, "no pair has two answers" if agreement["raw"] is None else chance_text
        ),
    )
    sections = [
        Section(title, tables=(ReportTable(title, heads or ("", ""), rows),))
        for title, rows, heads in grids
    ]
    if remarks := _remarks(numbers):
        sections.append(Section("What to do", text=remarks))
    title = numbers["project"]["title"]
    lead = numbers["project"]["question"]
    write_report(path, Report(title, lead=lead, facts=facts, sections=tuple(sections)))


def _percent(share: float | None, count: int | None = None) -> str:
    text = "–" if share is None else f"{share:.0%}"
    return text if share is None or count is None else f"{text} of {count:,}"
