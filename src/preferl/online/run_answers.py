"""The answers of a run: existing comparisons and new answers, some of them held out."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from preferl.data.arrays import load_comparisons
from preferl.data.comparisons import Comparisons, concatenate
from preferl.data.episodes import STEPS, Episodes, join, take_columns
from preferl.data.implied import with_implied
from preferl.data.segments import Segments
from preferl.data.sources.kinds import load_source
from preferl.data.sources.labels import load_labels
from preferl.data.validation import TRAIN, validation_split
from preferl.errors import DataError, FeedbackError
from preferl.feedback.instant import InstantFeedback
from preferl.feedback.pair_sampling import entropy, logit_variance
from preferl.feedback.preparations import FitContext, Preparation
from preferl.feedback.protocols import Feedback
from preferl.online.configs import OnlineConfig
from preferl.printing import get_logger
from preferl.shapes import Array, BoolArray, FloatArray, IntArray
from preferl.store.clips import clip_ids
from preferl.store.feedback import Answered, StoredFeedback
from preferl.training.annotator_trust import NOBODY, fit_trust
from preferl.training.places import AnswerPlaces
from preferl.training.reward_function import RewardFunction
from preferl.training.reward_trainer import RewardTrainer

LOGGER = get_logger(__name__)

Table = TypeVar("Table", Episodes, Segments)


class WarmStart(NamedTuple):
    """What a run begins with: comparisons, and episodes that queries may be about."""

    comparisons: Comparisons | None = None
    episodes: Episodes | None = None


def load_warm_start(
    config: OnlineConfig, comparisons: Comparisons | None, episodes: Episodes | None
) -> WarmStart:
    """Read what the warm start of a run names, and join it with what is given, all in memory.

    Declined answers are left out, and so are episodes older than the newest `buffer_steps` steps.

    Raises:
        DataError: a path holds something else, a file is damaged, or parts differ in shape.
        StorageError: a folder of labels cannot be read.
    """
    start = config.warm_start
    parts = [load_comparisons(folder) for folder in start.comparisons]
    if start.labels is not None and start.demonstrations is not None:
        parts.append(load_labels(start.labels, load_source(start.demonstrations)).comparisons)
    if comparisons is not None:
        parts.append(comparisons)
    parts = [part[part.answered] for part in parts if part.answered.any()]
    if len(parts) > 1:  # row 0 of one table is not row 0 of another
        parts = [replace(part, annotator=None) for part in parts]
    recordings = [] if start.episodes is None else [load_source(start.episodes)]
    if episodes is not None:
        recordings.append(episodes)
    answers = None
    if parts:
        answers = concatenate(parts).compact()
        answers = replace(answers, segments=_in_memory(answers.segments))
    recent = None
    if recordings:
        recent = _in_memory(latest(join(recordings), config.buffer_steps))
    return WarmStart(answers, recent)


def latest(episodes: Episodes, steps: int) -> Episodes:
    """Return the episodes that end within the last `steps` steps."""
    recent = episodes.steps - episodes.ends < steps  # by the steps that came after their ends
    return episodes if recent.all() else episodes[recent]


def _in_memory(table: Table) -> Table:
    """Read arrays into memory, because files of an older run may move when this one begins."""

    def read(array: Any, _: None) -> Array:
        return np.array(array) if isinstance(array, np.memmap) else np.asarray(array)

    names = [field.name for field in fields(table) if field.name != "length"]
    return replace(table, **take_columns(table, None, names, pick=read))


def numbered(feedback: Feedback) -> Answered:
    """Return all answers of a feedback, with the numbers of their queries.

    A query keeps its number when older answers are dropped. Feedback of your own does not drop
    answers, so its answers are numbered in order.
    answers are numbered in their order.

    Raises:
        FeedbackError: nothing has been answered yet.
    """
    if isinstance(feedback, StoredFeedback):
        return feedback.answers()
    answers = feedback.comparisons()
    forgotten = 0
    if isinstance(feedback, InstantFeedback):
        forgotten = feedback.asked - feedback.declined - len(answers)
    return Answered(forgotten + np.arange(len(answers)), answers)


def given_answers(given: Comparisons | None, feedback: Feedback) -> Answered | None:
    """Return the comparisons of a warm start, with negative numbers, which no query has.

    In a store, numbers of annotators mean people of the store, so annotators of a warm start become
    unknown.
    """
    if given is None:
        return None
    if isinstance(feedback, StoredFeedback):
        given = replace(given, annotator=None)
    return Answered(-1 - np.arange(len(given)), given)


def all_answers(given: Comparisons | None, feedback: Feedback) -> Answered | None:
    """Return the comparisons of a warm start and all answers after them; None if there are none."""
    warm_start = given_answers(given, feedback)
    parts = [] if warm_start is None else [warm_start]
    with suppress(FeedbackError):  # raised if nothing has been answered yet
        parts.append(numbered(feedback))
    if not parts:
        return None
    queries = np.concatenate([part.queries for part in parts])
    return Answered(queries, concatenate([part.comparisons for part in parts]))


def split_answers(
    comparisons: Comparisons, share: float, clip_sets: dict[str, int], *, joined: bool = False
) -> IntArray:
    """Assign each answer to the training or validation set, `[P]`, see `validation_split`.

    Held-out answers stay held out, even if the oldest answers are dropped, since a clip stays in
    its set.

    Args:
        comparisons: all answers.
        share: share of the answers that are held out; 0 holds out none.
        clip_sets: the set of each clip, by its name; new clips are added.
        joined: whether some answers came from a warm start.
    """
    if not share:
        return np.full(len(comparisons), TRAIN)
    segments = comparisons.segments
    names = clip_ids(_without_traces_of_joining(segments) if joined else segments)
    pairs = ((names[first], names[second]) for first, second in comparisons.pairs.tolist())
    return np.array(validation_split(pairs, share, clip_sets), np.int64)


def _without_traces_of_joining(segments: Segments) -> Segments:
    """Return segments as if they had not been joined: without states, numbers as float64."""

    def widen(array: Any, _: None) -> Array:
        return array if array.dtype == np.uint8 else np.asarray(array, np.float64)

    names = [name for name in STEPS if name != "states"]
    return replace(segments, states=None, **take_columns(segments, None, names, pick=widen))


def prepare_answers(
    answers: Comparisons,
    queries: IntArray,
    places: AnswerPlaces,
    *,
    config: OnlineConfig,
    trainer: RewardTrainer,
    reward: RewardFunction | None,
    experience: Episodes | None,
    rng: np.random.Generator,
) -> tuple[Comparisons, IntArray]:
    """Apply the preparations of a run; return the training answers, and the place of each.

    A query keeps its place in the members' bootstraps from fit to fit, even if older answers are
    dropped.

    Args:
        answers: answers that are not held out; declined ones are left out here.
        queries: `[P]` numbers of the answers' queries, which do not change as answers come and go.
        places: places of earlier queries; new queries are added.
        config: settings of the run.
        trainer: trainer whose members have the bootstraps.
        reward: reward of the last fit; None before the first.
        experience: recent episodes.
        rng: generator of the preparations' draws.

    Raises:
        DataError: a preparation leaves out rows instead of giving them weight 0.
    """
    trained_before = len(places)
    given = answers[answers.answered]
    own_places = places(queries[answers.answered])
    if not config.prepare or not len(given):
        return given, own_places
    votes = _votes(given, own_places, len(places), trained_before, trainer)
    context = FitContext(
        reward=reward,
        votes=votes,
        experience=experience,
        segment_length=config.segment_length,
        short=config.short,
        rng=rng,
        trust=_trust_in_answers(given, votes, reward, trainer),
    )
    prepared = _apply(config.prepare, given, context)
    return prepared, np.append(own_places, np.full(len(prepared) - len(given), -1))


def _apply(
    preparations: Sequence[Preparation], given: Comparisons, context: FitContext
) -> Comparisons:
    """Apply preparations in order, and log how many answers they changed."""
    prepared = given
    for preparation in preparations:
        prepared = preparation(prepared, context)
        if not np.array_equal(prepared.pairs[: len(given)], given.pairs):
            raise DataError(
                f"comparisons from {type(preparation).__name__}: expected the {len(given)} answers "
                f"first, whatever their weight, got {len(prepared)} others."
            )
    LOGGER.info(
        "Before the fit: %d of %d answers left out, %d turned round, %d pseudo-labels.",
        (prepared.weight[: len(given)] == 0).sum(),
        len(given),
        (prepared.preference[: len(given)] != given.preference).sum(),
        len(prepared) - len(given),
    )
    return prepared


def _votes(
    given: Comparisons,
    places: IntArray,
    place_count: int,
    trained_before: int,
    trainer: RewardTrainer,
) -> BoolArray:
    """Return `[E, P]`: whether a member was not trained on an answer, or all members were."""
    bootstrapped = places
    if trainer.config.implied:  # members leave out all answers of linked clips, or none
        bootstrapped = places[with_implied(given)[1][: len(given)]]
    votes = trainer.bootstrap(place_count)[:, bootstrapped] == 0
    votes |= places >= trained_before  # no member has been trained on new answers
    return np.asarray(votes | ~votes.any(0))


def _trust_in_answers(
    given: Comparisons, votes: BoolArray, reward: RewardFunction | None, trainer: RewardTrainer
) -> FloatArray:
    """Return `[P]` the trust in each answer's annotator, from the answers before preparations.

    The trainer's own trust may come from answers that a preparation turned round, and it lacks new
    annotators.
    """
    trust = np.ones(len(given))
    annotator = given.annotator
    if reward is None or annotator is None or not trainer.config.trust:
        return trust
    if len(np.unique(annotator[annotator > NOBODY])) < 2:  # the condition of `AnnotatorTrust`
        return trust
    logits = FitContext(reward).logits(given.segments, given.pairs)
    columns = (logits, given.preference, np.broadcast_to(votes, logits.shape), annotator)
    for fitted in fit_trust(*(torch.from_numpy(np.array(column)) for column in columns)):
        trust[annotator == fitted.annotator] = fitted.value
    return trust


class QueryMetrics(NamedTuple):
    """The predictions of a reward for new queries, before the fit to their answers.

    The numbers are about which clip is better, and leave out the noise of answers. With much noise,
    every answer would be uncertain, and all members would expect much the same, even for very
    different clips.

    Attributes:
        entropy: entropy of the predicted preference in nats, mean over queries and members. It is
            log 2 (0.69) if the reward knows nothing, and 0 if it is sure.
        deviation: mean over queries of the deviation of the members' log-odds; NaN for one member.
    """

    entropy: float = float("nan")
    deviation: float = float("nan")


def query_metrics(
    reward: RewardFunction | None, segments: Segments, pairs: IntArray
) -> QueryMetrics:
    """Measure queries `[P, 2]`, rows of `segments`; NaN without a reward."""
    if reward is None or not len(pairs):
        return QueryMetrics()
    shown, rows = np.unique(pairs, return_inverse=True)
    logits = FitContext(reward).logits(segments.select(shown), rows.reshape(pairs.shape))  # [E, P]
    several = len(logits) > 1
    deviation = np.sqrt(logit_variance(logits)).mean() if several else np.nan
    return QueryMetrics(float(entropy(logits).mean()), float(deviation))
