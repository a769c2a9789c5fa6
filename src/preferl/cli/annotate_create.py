"""`preferl annotate create`: from recorded episodes to queries that people can answer."""

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from preferl.cli.options import FOLDER, NAME, StoreConfig, Trust, import_trusted
from preferl.errors import ConfigError, DataError, PreferlError, require_in
from preferl.reading import read_object, reading

if TYPE_CHECKING:
    from preferl.data.episodes import Episodes
    from preferl.data.segments import Segments
    from preferl.feedback.protocols import PairSampler
    from preferl.shapes import IntArray

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
        run: or the folder of an offline run or reward fit, whose episodes are taken; or a folder
            that holds some.
        task: row of the table of tasks, for a D4RL file that needs one.
        store: folder for the labels, or the URL of a database.
        files: folder of clips and videos beside a PostgreSQL database.
        project: short name: small letters, digits and hyphens.
        title: what people see as its name.
        question: shown with every pair; one sentence about the outcome that matters.
        instructions: a text file with what counts as better, and what breaks ties.
        queries: how many pairs to ask about.
        length: steps per clip; 50 at 30 frames per second are short enough to compare at a glance.
        sampler: "uniform" pairs, "covering" ones that lie far apart, or "informative" ones on
            which the members of `reward` disagree.
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
        elsewhere: make the project although its clips cannot be drawn on this machine.
        seed: of all draws.
        trust: module of yours that registers the model of `reward`; may be given several times.
    """

    demonstrations: Path | None = None
    dataset: str | None = None
    run: Path | None = None
    task: str | None = None
    store: str = FOLDER
    files: Path | None = None
    project: str = NAME
    title: str = ""
    question: str = "Which clip is better?"
    instructions: Path | None = None
    queries: int = 200
    length: int = 50
    sampler: str = "uniform"
    reward: Path | None = None
    known: int = 0
    qualification: int = 0
    strength: bool = False
    quorum: int = 1
    budget: int | None = None
    fps: int = 30
    env: str | None = None
    pixels: str | None = None
    elsewhere: bool = False
    seed: int = 0
    trust: Trust = ()


def run_create(config: CreateConfig) -> None:
    """Draw the queries, store them, and print the next command."""
    from preferl.cli.console import echo
    from preferl.store import ProjectSettings, Store
    from preferl.store.questions import known_pairs
    from preferl.trust import trust_options, typed

    require_in("queries", config.queries, 1, float("inf"))
    require_in("qualification", config.qualification, 0, config.known, fix="Raise --known.")
    episodes, instructions = _episodes(config), ""
    if config.instructions is not None:
        with reading(config.instructions, expected="a text file", error=DataError):
            instructions = config.instructions.read_text(encoding="utf-8")
    taken = ("title", "question", "fps", "quorum", "qualification", "strength", "budget")
    settings = ProjectSettings(
        **{name: getattr(config, name) for name in taken},
        instructions=instructions,
        frames=_frames(config, episodes),
    )
    segments, pairs = _draw_pairs(config, episodes)
    rng = np.random.default_rng([config.seed, 1])
    known = known_pairs(episodes, config.known, config.length, rng) if config.known else None
    trust = typed(config.env)
    _require_drawable(config, settings.frames or {}, segments, trust)
    with Store.open(config.store, config.files) as store:
        project = store.projects.create(config.project, settings)
        if known is not None:
            checks, both, right = known
            store.questions.ask(project.id, checks, both, purpose="known", known=right)
        store.questions.ask(project.id, segments, pairs)
        several = len(store.projects.all()) > 1
    place = StoreConfig(config.store, config.files).options()
    words = place if config.store != FOLDER else place[2:]
    words += ("--project", config.project) if several else ()
    echo(
        f"{len(pairs):,} pairs of {config.length} steps from {len(episodes):,} episodes wait in "
        f"{config.store}, and {config.known} with a known answer.\n"
        f"Answer them: {' '.join(('preferl annotate serve', *words, *trust_options(trust)))}"
    )


def _episodes(config: CreateConfig) -> "Episodes":
    """The episodes that a config names in one of three ways."""
    from preferl.data.sources import load_source

    names = ("demonstrations", "dataset", "run")
    given = [f"--{name}" for name in names if getattr(config, name) is not None]
    if len(given) != 1:
        expected = "one of --demonstrations, --dataset, --run"
        raise ConfigError.mismatch("episodes", expected=expected, got=given or "none")
    if config.run is not None:
        return episodes_of_run(config.run)
    if config.dataset is not None:
        return load_source(_minari(config.dataset))
    return load_source(config.demonstrations or "", task=config.task)


def episodes_of_run(folder: Path) -> "Episodes":
    """Read the episodes that a folder holds, or that the run in it was made from."""
    from preferl.data import load_episodes
    from preferl.data.sources import load_source

    for place in (folder, folder / "episodes"):
        if (place / "about.json").is_file():
            return load_episodes(place)
    expected = "a run from recorded episodes, or a folder that holds some"
    fix = "Save episodes with preferl.data.save_episodes, and name their folder."
    with reading(folder, expected=expected, fix=fix, error=DataError):
        settings = read_object(folder / "config.json")["config"]
        settings |= settings.get("run") or settings.get("config") or {}
        source = settings["demonstrations"] or _minari(settings["dataset"])
    return load_source(source, task=settings.get("task"))


def _minari(dataset: str) -> str:
    return f"minari:{dataset.removeprefix('minari:')}"


def _draw_pairs(config: CreateConfig, episodes: "Episodes") -> "tuple[Segments, IntArray]":
    """Candidate windows and the pairs of them to ask about."""
    from preferl.data import sample_segments
    from preferl.feedback.sampling import segments_wanted
    from preferl.store import distinct_clips

    rng = np.random.default_rng(config.seed)
    sampler = _sampler(config)
    wanted = segments_wanted(sampler, config.queries)
    segments = distinct_clips(sample_segments(episodes, wanted, config.length, rng))
    return segments, sampler(segments, config.queries, rng)


def _sampler(config: CreateConfig) -> "PairSampler":
    from preferl.registry import SAMPLERS

    if (config.sampler == "informative") != (config.reward is not None):
        expected = "a fitted one for informative pairs, and only for them"
        fix = "Give --sampler informative together with --reward FOLDER."
        raise ConfigError.mismatch("reward", expected=expected, got=config.reward, fix=fix)
    parts: dict[str, Any] = {}
    if config.reward is not None:
        from preferl.training import load_reward

        reward = load_reward(config.reward / "reward")
        parts = {"scorer": reward.scores, "likelihood": reward.likelihood}
    sampler: PairSampler = SAMPLERS.build(config.sampler, **parts)
    return sampler


def _frames(config: CreateConfig, episodes: "Episodes") -> dict[str, Any]:
    from preferl.store.rendering.frames import spec_for

    if config.pixels is not None:
        return {"kind": "pixels", "key": config.pixels}
    try:
        return spec_for(episodes.observations, config.env)
    except ConfigError as error:
        fix = "Give --env ID, such as --env AdroitHandDoor-v1, or --pixels KEY."
        raise ConfigError(f"{error} {fix}") from error


def _require_drawable(
    config: CreateConfig, frames: dict[str, Any], segments: "Segments", trust: Collection[str]
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
