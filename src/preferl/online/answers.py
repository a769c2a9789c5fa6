"""What a run learns from: comparisons that exist already and new answers, some of them held out."""

from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar, final

import numpy as np

from preferl.data.arrays import load_comparisons
from preferl.data.comparisons import Comparisons, concatenate
from preferl.data.episodes import STEPS, Episodes, join, take_columns
from preferl.data.segments import Segments
from preferl.data.sources.kinds import load_source
from preferl.data.sources.labels import load_labels
from preferl.data.validation import TRAIN, validation_split
from preferl.errors import FeedbackError
from preferl.feedback.instant import InstantFeedback
from preferl.feedback.preparations import FitContext
from preferl.feedback.protocols import Feedback
from preferl.feedback.sampling import entropy, logit_variance
from preferl.online.configs import OnlineConfig
from preferl.shapes import Array, IntArray
from preferl.store.clips import clip_ids
from preferl.store.feedback import Answered, StoredFeedback
from preferl.training.reward_function import RewardFunction

Table = TypeVar("Table", Episodes, Segments)


class FixedData(NamedTuple):
    """What a run begins with: comparisons to learn from, and episodes that queries may be about."""

    comparisons: Comparisons | None = None
    episodes: Episodes | None = None


def load_fixed(
    config: OnlineConfig, comparisons: Comparisons | None, episodes: Episodes | None
) -> FixedData:
    """Read what the warm start of a run names, and join it with what is given, all in memory.

    Declined answers are left out, and of episodes those beyond the newest `buffer_steps`.

    Raises:
        DataError: something else is there, it is damaged, or parts are of different shapes.
        StorageError: a folder of labels cannot be read.
    """
    start = config.warm_start
    parts = [load_comparisons(folder) for folder in start.comparisons]
    if start.labels is not None and start.demonstrations is not None:
        parts.append(load_labels(start.labels, load_source(start.demonstrations)).comparisons)
    parts += [] if comparisons is None else [comparisons]
    parts = [part[part.answered] for part in parts if part.answered.any()]
    if len(parts) > 1:  # row 0 of one is not row 0 of another
        parts = [replace(part, annotator=None) for part in parts]
    known = [] if start.episodes is None else [load_source(start.episodes)]
    known += [] if episodes is None else [episodes]
    found = concatenate(parts).compact() if parts else None
    recent = latest(join(known), config.buffer_steps) if known else None
    return FixedData(
        None if found is None else replace(found, segments=_in_memory(found.segments)),
        None if recent is None else _in_memory(recent),
    )


def latest(episodes: Episodes, steps: int) -> Episodes:
    """The episodes that end within the last so many steps."""
    recent = episodes.steps - episodes.ends < steps  # by the steps that came after
    return episodes if recent.all() else episodes[recent]


def _in_memory(table: Table) -> Table:
    """The same with its arrays in memory: files of an older run may move when this one begins."""

    def read(array: Any, _: None) -> Array:
        return np.array(array) if isinstance(array, np.memmap) else np.asarray(array)

    names = [field.name for field in fields(table) if field.name != "length"]
    return replace(table, **take_columns(table, None, names, pick=read))


def _as_joined(segments: Segments) -> Segments:
    """Without what joining may change: states, which a part may lack, and how wide numbers are."""

    def widen(array: Any, _: None) -> Array:
        return array if array.dtype == np.uint8 else np.asarray(array, np.float64)

    names = [name for name in STEPS if name != "states"]
    return replace(segments, states=None, **take_columns(segments, None, names, pick=widen))


def numbered(feedback: Feedback) -> Answered:
    """All answers of a feedback, and numbers of their queries that last while others go.

    Feedback of your own forgets nothing, so its answers are numbered in their order. Raises
    `FeedbackError` where nothing has been answered yet.
    """
    if isinstance(feedback, StoredFeedback):
        return feedback.answered()
    found = feedback.comparisons()
    gone = 0
    if isinstance(feedback, InstantFeedback):
        gone = feedback.asked - feedback.declined - len(found)
    return Answered(gone + np.arange(len(found)), found)


@final
class LearningSet:
    """All comparisons of a run, fixed ones before the answers of its feedback, and their split.

    Held-out answers stay held out: a clip that was assigned to a set stays in it (see
    `validation_split`), also where the oldest answers are forgotten.

    Attributes:
        fixed: comparisons that were there before the run.
        of_clip: the set of each clip, by its name.
    """

    def __init__(self, feedback: Feedback, share: float) -> None:
        self.fixed: Comparisons | None = None
        self.of_clip: dict[str, int] = {}
        self._feedback = feedback
        self._share = share

    @property
    def given(self) -> Answered | None:
        """The fixed ones. Their numbers are below 0, since those of queries are not.

        Beside a store, whose people are others, nobody knows who gave them.
        """
        if (fixed := self.fixed) is None:
            return None
        fixed = (
            replace(fixed, annotator=None) if isinstance(self._feedback, StoredFeedback) else fixed
        )
        return Answered(-1 - np.arange(len(fixed)), fixed)

    def comparisons(self) -> Comparisons | None:
        """All of them so far; None without any."""
        answered = self.answered()
        return None if answered is None else answered.comparisons

    def answered(self) -> Answered | None:
        """The same, with numbers of their queries that last while other answers go."""
        parts = [] if self.given is None else [self.given]
        with suppress(FeedbackError):  # raised where nothing has been answered yet
            parts.append(numbered(self._feedback))
        if not parts:
            return None
        queries = np.concatenate([part.queries for part in parts])
        return Answered(queries, concatenate([part.comparisons for part in parts]))

    def split(self, comparisons: Comparisons) -> IntArray:
        """`[P]` the set of each, see `validation_split`; pairs between the sets are in neither."""
        if not self._share:
            return np.full(len(comparisons), TRAIN)
        segments = comparisons.segments
        names = clip_ids(segments if self.fixed is None else _as_joined(segments))
        pairs = ((names[first], names[second]) for first, second in comparisons.pairs.tolist())
        return np.array(validation_split(pairs, self._share, self.of_clip), np.int64)


class QueryMetrics(NamedTuple):
    """What a reward made of new queries, before it learned from their answers.

    Both are about which clip is better, so they leave out the noise of answers. With much noise,
    every answer is uncertain and all members expect much the same, however different the clips are.

    Attributes:
        entropy: mean over queries and members of the entropy of the predicted preference, in nats:
            log 2, 0.69, where the reward knows nothing, 0 where it is sure.
        deviation: mean over queries of the deviation of the members' log-odds; NaN for one member.
    """

    entropy: float = float("nan")
    deviation: float = float("nan")


def query_metrics(
    reward: RewardFunction | None, segments: Segments, pairs: IntArray
) -> QueryMetrics:
    """Those of queries `[P, 2]`, rows of `segments`; NaN without a reward."""
    if reward is None or not len(pairs):
        return QueryMetrics()
    shown, rows = np.unique(pairs, return_inverse=True)
    logits = FitContext(reward).logits(segments.select(shown), rows.reshape(pairs.shape))  # [E, P]
    several = len(logits) > 1
    deviation = np.sqrt(logit_variance(logits)).mean() if several else np.nan
    return QueryMetrics(float(entropy(logits).mean()), float(deviation))
