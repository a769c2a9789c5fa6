"""Options that several commands share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar, cast

import numpy as np

from preferl import data
from preferl.cli.console import ProgressLine, interrupt
from preferl.cli.parsing import FLAT, OF_YOUR_OWN, Mark, options_of, require_name, settings_in
from preferl.configs import decoded, without_password
from preferl.data import sources
from preferl.errors import ConfigError, DataError, StorageError, require_in, require_seed
from preferl.reading import reading
from preferl.registry import TEACHERS, imported
from preferl.shapes import take
from preferl.trust import resolve, typed

if TYPE_CHECKING:
    from preferl.feedback import Teacher
    from preferl.models import FrozenEncoder
    from preferl.shapes import FloatArray
    from preferl.store import Store
    from preferl.store.schema import Project
    from preferl.training import RewardFunction

FOLDER = "runs/labels"
NAME = "labels"  # default name of a project

Crossing = Literal["drop", "keep", "error"]
Given = TypeVar("Given", "data.Comparisons | None", "data.Ratings | None")
Trust = Annotated[tuple[str, ...], Mark("MODULE", repeated=True)]
"""`--trust MODULE`, once for each module that data may name (see `preferl.trust`)."""


@dataclass(frozen=True)
class StoreConfig:
    """Where labels are.

    Attributes:
        store: folder of the labels, or the URL of a database (postgresql://me@host/labels).
        files: folder of clips and videos beside a PostgreSQL database, or its URL
            (s3://bucket/labels).
        project: short name of the project; not needed if there is only one.
    """

    store: str | None = FOLDER
    files: str | None = None
    project: str | None = None

    def options(self) -> tuple[str, ...]:
        """Return this config as options of a command, without the project."""
        files = () if self.files is None else ("--files", str(self.files))
        return ("--store", FOLDER if self.store is None else self.store, *files)


Labels = Annotated[StoreConfig, FLAT]


@contextmanager
def opened(config: StoreConfig, *, new: bool = False) -> "Iterator[tuple[Store, Project]]":
    """Open a store, and the project that a config names or the only project there.

    With `new`, the project is made, with the name `labels` by default, and so is a missing store.
    If the block fails, both are removed, so that the same command works again.
    """
    from preferl.store import Store

    place = FOLDER if config.store is None else config.store
    if new:
        with _new_folder_only_if_whole(place), Store.open(place, config.files) as store:
            project = store.projects.create(config.project or NAME)
            try:
                yield store, project
            except BaseException:
                store.projects.remove_unused(project.id)
                raise
        return
    require_store(place)
    with Store.open(place, config.files) as store:
        name = config.project
        yield store, store.projects.only() if name is None else store.projects.get(name)


@contextmanager
def _new_folder_only_if_whole(store: str) -> "Iterator[None]":
    """Remove the folder of a new store if the block that makes it fails."""
    is_new = "://" not in store and not Path(store).exists()
    try:
        yield
    except BaseException:
        if is_new:
            rmtree(store, ignore_errors=True)
        raise


def require_store(store: str) -> None:
    """Raise `StorageError` if a folder has no labels, so that no empty store is made."""
    from preferl.store.store import LABELS

    if "://" not in store and not (Path(store) / LABELS).is_file():
        raise StorageError(
            f"store {store}: expected a folder of labels, got none. Make one with `preferl "
            "annotate create`, or name it with --store."
        )


def import_trusted(arguments: Sequence[str]) -> None:
    """Import the modules that `--trust` names, so that they register what they define.

    Commands whose settings come only from options use this as their `starting_point`.
    """
    for module in typed(trust=options_of(arguments, "--trust")):
        imported(module, source="--trust")


def named_teacher(text: str) -> "Teacher":
    """Return the scripted teacher of a name, or of settings as in a file: `{kind: mistake, ...}`.

    Raises:
        UsageError: the teacher does not exist.
        ConfigError: the teacher does not take a setting.
    """
    from preferl.feedback.protocols import Teacher

    if not text.lstrip().startswith("{") and ":" not in text:  # neither settings nor `module:Name`
        require_name(text, TEACHERS.names(), "teacher", fix=OF_YOUR_OWN)
    teacher: Teacher = decoded(Teacher, settings_in(text, "teacher"), "teacher")
    return teacher


ReportTo = Annotated[tuple[str, ...], Mark("NAME,NAME,...", commas=True)]
"""`--report-to NAME,NAME`: some of `preferl.reporting.PLACES`, which opens them."""

QUERIES: Final = 200  # how many pairs a scripted teacher answers by default
LENGTH: Final = 50  # steps of a clip in these; at 30 frames per second, a glance is enough


@dataclass(frozen=True)
class AnswersConfig(StoreConfig):
    """Where answers come from: a label folder, a store, a run, or a scripted teacher.

    Attributes:
        store: the folder or database URL of labels that `preferl annotate` collected.
        demonstrations: a pickle of demonstrations, an HDF5 file of D4RL or robomimic, stacked
            `.npz` files, a LeRobot data set, or a folder of episodes written by preferl. Labels
            count rows in them, and a teacher without labels answers queries about them. They are
            also the steps over which a reward is scaled. Without them, it is scaled over the clips
            that were compared.
        encoder: a frozen vision model, for the cameras of a LeRobot data set. The reward observes
            its features instead of pixels. Name a folder with config.json, preprocessor_config.json
            and safetensors as `transformers` saves them, or hub:OWNER/NAME. Features are computed
            once and kept. For a fitted reward, the encoder is not needed if all features are there.
        labels: a folder of Uni-RLHF or Preference Transformer labels for the demonstrations.
        combine: how the answers of several people to one query become one. "each" keeps them
            separate, with the people who gave them.
        annotators: whose answers in the store are used: everybody's, people's or models'.
        comparisons: or a run of `preferl online run`, or another folder of comparisons written by
            preferl; or a file of learning-from-human-preferences, such as `train.pkl.gz`.
        teacher: a scripted teacher that answers by the recorded rewards: a name such as oracle or
            mistake, or settings as in a file: "{kind: mistake, rate: 0.2}". It answers the pairs of
            the labels, store or comparisons, or else pairs drawn from the demonstrations.
        queries: number of answers to use, drawn from all by the seed. None takes all, or 200 drawn
            pairs.
        length: steps per segment, if the names of label files do not state it; 50 for drawn pairs.
        crossing: what to do with pairs with a segment that runs across an episode's end: "keep"
            (the default for Uni-RLHF; these answers are noisier), "drop", or "error" (the default
            for the Preference Transformer, where it shows that the labels belong to other
            episodes).
        task: row of the table of tasks, for a D4RL file that needs one.
        seed: seed of weights, bootstraps, order, drawn pairs, scripted answers and random controls.
    """

    store: str | None = None
    demonstrations: Path | None = None
    encoder: str | None = None
    labels: Path | None = None
    combine: Literal["mean", "majority", "dawid_skene", "each"] = "mean"
    annotators: Literal["all", "people", "models"] = "all"
    comparisons: Path | None = None
    teacher: str | None = None
    queries: int | None = None
    length: int | None = None
    crossing: Crossing | None = None
    task: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_seed(self.seed)

    @property
    def in_words(self) -> str:
        """The answers in a few words."""
        if self.teacher is not None:
            return f"scripted answers ({self.teacher})"
        if self.labels is not None:
            return self.labels.name
        return without_password(f"{self.comparisons or self.project or self.store}")

    def read(
        self,
        draws: int = 0xA5C,
        *,
        encoder: "FrozenEncoder | None" = None,
        rated: bool = False,
    ) -> "tuple[data.Episodes, data.Comparisons, sources.LabelReport, data.Ratings | None]":
        """Read the episodes that a reward is scaled over, the answers, their counts, and ratings.

        Random draws depend on the seed and on `draws`, a number that differs between commands.
        With an `encoder`, episodes and clips have its features as observations. Ratings are read if
        `rated`; then a store that has some may have no answers about pairs.

        Raises:
            ConfigError: there is no source of answers, or several, or there are too few answers.
            DataError: files are missing, damaged or do not belong together, no episode is as long
                as a segment, or there is a teacher but no true reward.
            FeedbackError: the teacher declines every pair.
            StorageError: the store does not exist.
        """
        require_one_source(self)
        teacher = None if self.teacher is None else named_teacher(self.teacher)
        rng = np.random.default_rng([self.seed, draws])
        episodes = None
        if self.demonstrations is not None:
            episodes = read_episodes(self.demonstrations, encoder, task=self.task)
        given, report, ratings = _given(self, episodes, rated=rated)
        if encoder is not None:
            given = _encoded(given, self.demonstrations, episodes)
            ratings = _encoded(ratings, self.demonstrations, episodes)
        if given is None:  # so there are episodes, and a teacher
            comparisons = _drawn(
                self, cast("data.Episodes", episodes), cast("Teacher", teacher), rng
            )
        else:
            comparisons = _chosen(self, given, teacher, rng)
        if report is None or comparisons is not given:
            dropped = 0 if report is None else report.dropped
            report = sources.LabelReport.of_comparisons(comparisons, dropped=dropped)
        return (
            comparisons.segments.episodes() if episodes is None else episodes,
            comparisons,
            report,
            ratings,
        )


def open_encoder(
    source: str | None, *, reward: "RewardFunction | None" = None, device: str = "cpu"
) -> "FrozenEncoder | None":
    """Return the encoder that `--encoder` names, or else the one that a reward was fitted with.

    Raises:
        ConfigError: the reward was fitted with another encoder, or without one.
        DataError: the folder has no encoder.
    """
    from preferl.models import FrozenEncoder

    encoder = None if source is None else FrozenEncoder.of(source, device=device)
    if reward is None:
        return encoder
    if encoder is None:
        return FrozenEncoder(reward.frozen_encoder) if reward.frozen_encoder else None
    if encoder.content_id != reward.frozen_encoder:
        raise ConfigError(
            f"encoder: expected {reward.frozen_encoder or 'none'}, as the reward was fitted with, "
            f"got {source} with the content id {encoder.content_id}."
        )
    return encoder


def read_episodes(
    source: Path | str, encoder: "FrozenEncoder | None" = None, *, task: str | None = None
) -> "data.Episodes":
    """Read episodes of any kind; for a LeRobot data set, with the features of an encoder.

    Missing features are computed, and a bar shows the progress. Ctrl-C prints how to continue.
    """
    if encoder is None:
        return sources.load_source(source, task=task)
    from preferl.models import encoded_episodes

    recording = open_robot(source)
    line = ProgressLine(f"encoding frames of {recording.path.name}")
    try:
        with line.running():
            return encoded_episodes(
                recording,
                encoder,
                on_frames=lambda camera, done, frames: line(f"encoding {camera}", done, frames),
            )
    except KeyboardInterrupt:
        interrupt("Stopped while encoding frames. The same command continues after those on disk.")


def open_robot(source: Path | str | None) -> "sources.LeRobotFolder":
    """Open the LeRobot data set at a source; refuse any other source."""
    from preferl.data.sources.lerobot import holds_lerobot

    if source is None or not holds_lerobot(source):
        raise ConfigError(
            f"episodes: expected a LeRobot data set, got {source or 'none'}. Name its folder, or "
            "hub:OWNER/NAME, with --demonstrations."
        )
    return sources.open_lerobot(source)


def _encoded(given: Given, source: Path | None, episodes: "data.Episodes | None") -> Given:
    """Give the clips of answers or ratings the observations of the frames that they show."""
    from preferl.data.frame_tables import frames_of

    if given is None or episodes is None:
        return given
    frames = frames_of(given.segments, open_robot(source), episodes.actions)
    observations = take(episodes.observations, frames)
    return replace(given, segments=replace(given.segments, observations=observations))


def require_one_source(config: AnswersConfig) -> None:
    """Raise `ConfigError` unless exactly one option says where answers come from."""
    names = ("labels", "store", "comparisons")
    given = [f"--{name}" for name in names if getattr(config, name) is not None]
    if len(given) > 1 or not (given or config.teacher):
        got = " and ".join(given) or "none"
        raise ConfigError(
            "answers: expected --store, or --labels and --demonstrations, or --comparisons, or "
            f"--teacher, got {got}."
        )
    if config.demonstrations is None and given in ([], ["--labels"]):
        raise ConfigError(
            "episodes: expected a source of them, got none. Give --demonstrations with the "
            "episodes that the answers are about."
        )
    if config.queries is not None:
        require_in("queries", config.queries, 1, float("inf"))


def _given(
    config: AnswersConfig, episodes: "data.Episodes | None", *, rated: bool
) -> "tuple[data.Comparisons | None, sources.LabelReport | None, data.Ratings | None]":
    """Read the answers that exist already, the counts of a label folder, and ratings."""
    if config.comparisons is not None:
        if config.comparisons.is_file():
            return sources.load_drlhp_preferences(config.comparisons), None, None
        ratings = data.load_ratings(config.comparisons) if rated else None
        return data.load_comparisons(config.comparisons), None, ratings
    if config.store is not None:
        from preferl.store import StoredFeedback

        with opened(config) as (store, project):
            feedback = StoredFeedback(
                store, project.id, combine=config.combine, annotators=config.annotators
            )
            ratings = store.ratings.table(project.id) if rated else None
            if ratings is None or feedback.revision:
                return feedback.comparisons(), None, ratings
            return data.Comparisons.none(ratings.segments), None, ratings
    if config.labels is None or episodes is None:
        return None, None, None
    length = config.length
    crossing = config.crossing
    labelled = sources.load_labels(config.labels, episodes, length=length, crossing=crossing)
    return labelled.comparisons, labelled.report, None


def _drawn(
    config: AnswersConfig,
    episodes: "data.Episodes",
    teacher: "Teacher",
    rng: np.random.Generator,
) -> "data.Comparisons":
    """Draw pairs of segments of the episodes, and have a teacher answer them."""
    from preferl.feedback.instant import sample_comparisons

    require_rewards(episodes.rewards)
    count = config.queries or QUERIES
    length = LENGTH if config.length is None else config.length
    return sample_comparisons(episodes, count, length, teacher, rng)


def _chosen(
    config: AnswersConfig,
    given: "data.Comparisons",
    teacher: "Teacher | None",
    rng: np.random.Generator,
) -> "data.Comparisons":
    """Draw `queries` of the existing answers. If there is a teacher, it answers them anew."""
    from preferl.feedback.instant import ask

    if config.queries is not None:
        there = np.flatnonzero(given.answered | (teacher is not None))
        if not config.queries <= len(there):
            raise ConfigError(
                f"queries: expected at most {len(there):,}, the number of answers, got "
                f"{config.queries:,}. Ask for fewer."
            )
        given = given[np.sort(rng.choice(there, config.queries, replace=False))].compact()
    if teacher is None:
        return given
    require_rewards(given.segments.rewards)
    return ask(given.segments, given.pairs, teacher, rng)


def require_rewards(rewards: "FloatArray") -> None:
    """Raise `DataError` if a teacher would call all pairs equal."""
    if np.ptp(rewards) == 0:
        raise DataError(
            "recorded rewards: expected different ones for a teacher to answer by, got the same "
            "at each step. Data without the environment's rewards need people's answers."
        )


def true_reward_of(name: str) -> "Callable[..., FloatArray]":
    """Return the function that `--true-reward` names. Its module may be in the current folder.

    Raises:
        ConfigError: there is no such function, or it does not fit the steps when it is called.
    """
    function = resolve(name, what="true reward", source="--true-reward", trust=typed(name))
    what = f"true reward {name}"
    expected = "a function of these observations and actions"
    if not callable(function):
        raise ConfigError(
            f"{what}: expected a function of observations, actions and perhaps the observations "
            f"that followed, got {type(function).__name__}. Name it as module:function."
        )

    @wraps(function)
    def of_transitions(*steps: object) -> "FloatArray":
        with reading(what, expected=expected, error=ConfigError):
            rewards: FloatArray = function(*steps)
            return rewards

    return of_transitions
