"""`preferl annotate create`: from recorded episodes to queries that people can answer."""

import inspect
import shlex
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from preferl import data, store
from preferl.cli.console import echo
from preferl.cli.options import FOLDER, NAME, StoreConfig, Trust, import_trusted
from preferl.configs import without_password
from preferl.data import sources
from preferl.errors import (
    ConfigError,
    DataError,
    PreferlError,
    require_in,
    require_one_of,
    require_seed,
)
from preferl.feedback.ranked_lists import sample_lists
from preferl.feedback.sampling import probability_variance, segments_wanted
from preferl.reading import read_object, reading
from preferl.registry import SAMPLERS
from preferl.shapes import IntArray
from preferl.trust import trust_options, typed

starting_point = import_trusted


@dataclass(frozen=True)
class CreateConfig:
    """Begin a project: cut clips from recorded episodes and put pairs of them into a queue.

    For example
      preferl annotate create --demonstrations door-v0_demos.pickle --env AdroitHandDoor-v1
      preferl annotate create --dataset D4RL/door/human-v2 --env AdroitHandDoor-v1 --known 10

    Attributes:
        demonstrations: a pickle of demonstrations, an HDF5 file of D4RL or robomimic, stacked
            `.npz` files, or a folder of episodes written by preferl.
        dataset: or the id of a Minari data set on this machine.
        run: or the folder of an offline run or reward fit, whose episodes are taken; or of an
            online run with --keep-experience; or a folder that holds some.
        task: row of the table of tasks, for a D4RL file that needs one.
        store: folder for the labels, or the URL of a database.
        files: folder of clips and videos beside a PostgreSQL database, or its URL
            (s3://bucket/labels).
        project: short name: small letters, digits and hyphens.
        title: what people see as its name.
        question: shown with every pair; one sentence about the outcome that matters.
        instructions: a text file with what counts as better, and what breaks ties.
        queries: how many pairs to ask about.
        length: steps per clip; 50 at 30 frames per second are short enough to compare at a glance.
        sampler: "uniform" pairs, "covering" ones that lie far apart, or "informative" ones on which
            the members of `reward` disagree.
        lists: sort clips into so many ranked lists, say one for each 100 queries, in place of
            asking about pairs that a sampler draws; `preferl reward fit --implied True` learns from
            what they imply.
        reward: folder of the run that fitted a reward, for informative pairs.
        known: pairs with a known answer, drawn where the recorded rewards differ most; they show
            who understood the question.
        qualification: known pairs that everybody new has to answer first, four in five correctly.
        strength: let people say "clearly" or "slightly" better.
        quorum: people who answer each query; two or more show how far people agree.
        budget: answers after which nothing more is asked.
        fps: frames per second at which clips play.
        env: id of the environment that draws the clips.
        pixels: or the name of the observation that holds pictures.
        colours: channels of a frame in these pictures: 1 for grey, 3 for RGB, 4 for RGB with
            opacity or depth, which is not shown; found in the pictures by default.
        elsewhere: make the project although its clips cannot be drawn on this machine.
        seed: of all draws.
        trust: module of yours that registers the model of `reward`; may be given several times.
    """

    demonstrations: Path | None = None
    dataset: str | None = None
    run: Path | None = None
    task: str | None = None
    store: str = FOLDER
    files: str | None = None
    project: str = NAME
    title: str = ""
    question: str = "Which clip is better?"
    instructions: Path | None = None
    queries: int = 200
    length: int = 50
    sampler: Annotated[str, SAMPLERS] = "uniform"
    lists: int | None = None
    reward: Path | None = None
    known: int = 0
    qualification: int = 0
    strength: bool = False
    quorum: int = 1
    budget: int | None = None
    fps: int = 30
    env: str | None = None
    pixels: str | None = None
    colours: Literal[1, 3, 4] | None = None
    elsewhere: bool = False
    seed: int = 0
    trust: Trust = ()

    def __post_init__(self) -> None:
        require_seed(self.seed)


def annotate_create(config: CreateConfig) -> None:
    """Draw the queries, store them, and print the next command."""
    from preferl.store.queries import known_pairs

    require_one_of("sampler", config.sampler, SAMPLERS.names())
    takes = inspect.signature(SAMPLERS.load(config.sampler)).parameters
    scorer = takes.get("scorer")
    needed = scorer is not None and scorer.default is scorer.empty
    needs_reward = needed or config.sampler == "informative"
    if (config.reward is None and needs_reward) or (config.reward and scorer is None):
        expected = f"a fitted one with {config.sampler!r} pairs" if needs_reward else "none"
        fix = "Give --reward FOLDER." if needs_reward else "Give --sampler informative with it."
        raise ConfigError(f"reward: expected {expected}, got {config.reward}. {fix}")
    require_in("queries", config.queries, 1, float("inf"))
    require_in("qualification", config.qualification, 0, config.known, fix="Raise --known.")
    episodes = _episodes(config)
    instructions = ""
    if config.instructions is not None:
        with reading(config.instructions, expected="a text file", error=DataError):
            instructions = config.instructions.read_text(encoding="utf-8")
    taken = ("title", "question", "fps", "quorum", "qualification", "strength", "budget")
    given = {name: getattr(config, name) for name in taken}
    if config.lists is not None and config.budget is None:  # queries come up as answers do
        given["budget"] = config.queries * config.quorum
    settings = store.ProjectSettings(
        **given,
        instructions=instructions,
        frames=_frames(config, episodes),
    )
    drawn = _draw_lists if config.lists is not None else _draw_pairs
    segments, pairs = drawn(config, episodes)
    rng = np.random.default_rng([config.seed, 1])
    known = known_pairs(episodes, config.known, config.length, rng) if config.known else None
    trust = typed(config.env)
    _require_drawable(config, settings.frames or {}, segments, trust)
    with store.Store.open(config.store, config.files) as labels:
        project = labels.projects.create(config.project, settings)
        if known is not None:
            checks, both, right = known
            labels.queries.ask(project.id, checks, both, purpose="known", known=right)
        if config.lists is None:
            labels.queries.ask(project.id, segments, pairs)
        else:
            labels.ranked.create(project.id, segments, pairs, config.queries)
        several = len(labels.projects.all()) > 1
    words = StoreConfig(config.store, config.files).options()
    words = words if config.store != FOLDER else words[2:]
    words += ("--project", config.project) if several else ()
    shown = [without_password(word) for word in (*words, *trust_options(trust))]
    place = without_password(f"{config.store}")
    and_known = f", and {config.known} with a known answer" if config.known else ""
    echo(
        f"{config.queries:,} pairs of {config.length} steps from {len(episodes):,} episodes wait "
        f"in {place}{and_known}.\n"
        f"Answer them: {shlex.join(('preferl', 'annotate', 'serve', *shown))}"
    )


def _episodes(config: CreateConfig) -> "data.Episodes":
    """The episodes that a config names in one of three ways."""
    names = ("demonstrations", "dataset", "run")
    given = [f"--{name}" for name in names if getattr(config, name) is not None]
    if len(given) != 1:
        raise ConfigError(
            f"episodes: expected one of --demonstrations, --dataset, --run, got {given or 'none'}."
        )
    if config.run is not None:
        return episodes_of_run(config.run)
    if config.dataset is not None:
        return sources.load_source(_minari(config.dataset))
    return sources.load_source(config.demonstrations or "", task=config.task)


def episodes_of_run(folder: Path) -> "data.Episodes":
    """Read the episodes that a folder holds, or that the run in it was made from."""
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


def _draw_pairs(
    config: CreateConfig, episodes: "data.Episodes"
) -> "tuple[data.Segments, IntArray]":
    """Candidate windows and the pairs of them to ask about."""
    parts: dict[str, Any] = {"acquisition": probability_variance, "oversampling": 10}
    if config.reward is not None:
        from preferl.training import load_reward

        reward = load_reward(config.reward / "reward")
        parts |= {"scorer": reward.scores, "likelihood": reward.likelihood}
    rng = np.random.default_rng(config.seed)
    sampler = SAMPLERS.build(config.sampler, **parts)
    wanted = segments_wanted(sampler, config.queries)
    drawn = data.sample_segments(episodes, wanted, config.length, rng)
    segments = store.distinct_clips(drawn)
    return segments, sampler(segments, config.queries, rng)


def _draw_lists(
    config: CreateConfig, episodes: "data.Episodes"
) -> "tuple[data.Segments, IntArray]":
    """Candidate windows, and the rows of each list."""
    if config.sampler != CreateConfig.sampler:
        raise ConfigError(
            f"lists: expected {CreateConfig.sampler} pairs, got {config.sampler}. Lists decide "
            "themselves what to ask. Leave --sampler or --lists out."
        )
    rng = np.random.default_rng(config.seed)
    lists = config.lists or 0
    drawn, _ = sample_lists(episodes, config.queries, config.length, rng, lists=lists)
    segments = store.distinct_clips(drawn)
    each = len(segments) // lists
    if not each >= 2:
        raise DataError(
            f"clips of lists: expected at least two different ones for each of {lists}, got "
            f"{len(segments)} in all. Make fewer lists, or record more steps."
        )
    return segments, np.arange(lists * each).reshape(lists, each)


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
    """Draw one picture, so that errors appear now and not when people wait."""
    from preferl.store.rendering.frames import frame_source

    if config.elsewhere:
        return
    try:
        with closing(frame_source(frames, trust=trust)) as source:
            next(iter(source(segments, 0)))
    except PreferlError as error:
        raise DataError(
            f"clips cannot be drawn here, so nothing was made: {error} Where another machine "
            "draws them, add --elsewhere, and run `preferl annotate render` there."
        ) from error
