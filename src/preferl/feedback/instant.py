"""Feedback from a teacher in this process that answers queries at once."""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, final

import numpy as np

from preferl.data.comparisons import Comparisons, check_preference, concatenate
from preferl.data.episodes import Episodes
from preferl.data.segment_sampling import Short, sample_segments
from preferl.data.segments import Clips, Segments
from preferl.errors import DataError, FeedbackError, require_in
from preferl.feedback.pair_sampling import UniformPairs
from preferl.feedback.protocols import (
    Adapts,
    FeedbackInterrupted,
    InputEndedError,
    SingleAnswers,
    Teacher,
)
from preferl.registry import TEACHERS
from preferl.shapes import FloatArray, IntArray


def teacher_in_words(teacher: Teacher) -> str:
    """Name a teacher by its name in settings, or else by the name of its class or function.

    >>> def lazy(shown, rng): ...
    >>> teacher_in_words(lazy)
    'the teacher lazy'
    """
    if isinstance(teacher, SingleAnswers):
        return "a person"
    kind = type(teacher)
    registered = TEACHERS.name_of(kind) if TEACHERS.has_config(kind) else kind.__name__
    name = getattr(teacher, "__name__", registered)
    return "a scripted teacher" if name == "scripted" else f"the teacher {name}"


@final
class InstantFeedback:
    """Asks a teacher and keeps the answers.

    Only the steps of compared clips are kept, as copies, so that the experience from which the
    clips were cut can be freed. A person's answers are taken one by one (see `SingleAnswers`), so
    that none is lost when the person stops.

    Attributes:
        teacher: who answers; may be exchanged between queries.
        rng: generator of the teacher's draws.
        max_comparisons: number of newest answers to keep; None keeps all.
        asked: number of queries asked, answered or not.
        declined: number of queries that the teacher declined; `comparisons()` leaves them out.
        on_answers: called with new answers at once, before the next query; declined ones are NaN.

    Raises:
        ConfigError: `max_comparisons` is below 1.

    >>> from preferl.feedback.scripted import ScriptedTeacher
    >>> block = np.zeros((4, 1))
    >>> segments = Segments(block, block, np.arange(4.0), np.array([0, 2]), np.array([2, 2]), 2)
    >>> feedback = InstantFeedback(ScriptedTeacher.oracle(), 0)
    >>> feedback.ask(segments, np.array([[0, 1], [1, 0]]))
    >>> feedback.comparisons().preference.tolist()
    [0.0, 1.0]
    """

    def __init__(
        self,
        teacher: Teacher,
        rng: np.random.Generator | int,
        *,
        max_comparisons: int | None = None,
    ) -> None:
        if max_comparisons is not None:
            require_in("max_comparisons", max_comparisons, 1, inf)
        self.teacher = teacher
        self.rng = np.random.default_rng(rng)
        self.max_comparisons = max_comparisons
        self.asked = 0
        self.declined = 0
        self.on_answers: Callable[[Comparisons], None] | None = None
        self._blocks: list[Comparisons] = []

    def ask(self, segments: Segments, pairs: IntArray) -> None:
        """Ask a teacher about pairs `[P, 2]` in one call, or a person about one after another.

        Raises:
            FeedbackError: `pairs` are not rows of `segments`, or answers break the teacher's
                contract. Then no answer of the call is kept.
            FeedbackInterrupted: the person stopped; their answers up to then are kept.
            InputEndedError: the input was closed; the answers up to then are kept.
        """
        pairs = check_pairs(pairs, len(segments))
        if not len(pairs):
            return
        if isinstance(self.teacher, SingleAnswers):
            self._ask_singly(self.teacher, segments, pairs)
            return
        try:
            answers = self.teacher(segments[pairs], self.rng)
        except (FeedbackInterrupted, InputEndedError) as interruption:
            self._keep(segments, pairs[: len(interruption.answers)], interruption.answers)
            raise
        self._keep(segments, pairs, answers)

    def require_shape(self, no_clips: Clips) -> None:
        """Raise `FeedbackError` if the teacher's answers to no clips, `[0, 2, L]`, are not `[0]`.

        This finds a teacher whose answers have a wrong shape before the first query. A teacher that
        raises an error for no clips passes, since queries always have clips.
        """
        if isinstance(self.teacher, SingleAnswers):
            return
        try:
            answers = self.teacher(no_clips, np.random.default_rng(0))
        except Exception:  # a user's teacher may raise anything
            return
        check_answers(answers, 0)

    def comparisons(self) -> Comparisons:
        """Return all answers so far, oldest first; the table is built once per change.

        Raises:
            FeedbackError: nothing has been answered yet.
        """
        if not self._blocks:
            raise FeedbackError(
                f"There are no answers yet: {self.asked} queries were asked, and the teacher "
                f"declined {self.declined}. Ask queries, or use a teacher that declines fewer."
            )
        self._blocks = [concatenate(self._blocks)]
        return self._blocks[0]

    def remember(self, comparisons: Comparisons) -> None:
        """Add earlier answers, such as those of a resumed run, as if they were new."""
        answered = comparisons[comparisons.answered].compact()
        self.asked += len(comparisons)
        self.declined += len(comparisons) - len(answered)
        self._append(answered)

    def snapshot(self) -> dict[str, Any]:
        """Return all answers, counts and the teacher's generator, for `restore`."""
        answers = self.comparisons().compact() if self._blocks else None
        counts = {"asked": self.asked, "declined": self.declined}
        return {"answers": answers, "rng": self.rng, **counts}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore the answers, counts and generator of an earlier run with the same settings."""
        self._blocks = [] if snapshot["answers"] is None else [snapshot["answers"]]
        self.asked = int(snapshot["asked"])
        self.declined = int(snapshot["declined"])
        self.rng = snapshot["rng"]

    def _ask_singly(self, teacher: SingleAnswers, segments: Segments, pairs: IntArray) -> None:
        answers = teacher.one_by_one(segments[pairs], self.rng)
        for number in range(len(pairs)):
            answer = next(answers, None)
            if answer is None:
                raise FeedbackError(
                    f"teacher: expected an answer to each query, got {number} answers to "
                    f"{len(pairs)} queries."
                )
            self._keep(segments, pairs[[number]], np.array([answer]))

    def _keep(self, segments: Segments, pairs: IntArray, answers: FloatArray) -> None:
        answers = check_answers(answers, len(pairs))
        answered = ~np.isnan(answers)
        if self.on_answers is not None and len(answers):
            self.on_answers(Comparisons.of(segments, pairs, answers))
        self.asked += len(answers)
        self.declined += int((~answered).sum())
        self._append(Comparisons.of(segments, pairs[answered], answers[answered]))

    def _append(self, block: Comparisons) -> None:
        if not len(block):
            return
        self._blocks.append(block)
        if self.max_comparisons is None:
            return
        excess = sum(map(len, self._blocks)) - self.max_comparisons
        while excess >= len(self._blocks[0]):
            excess -= len(self._blocks.pop(0))
        if excess > 0:
            self._blocks[0] = self._blocks[0][excess:].compact()


def sample_comparisons(
    episodes: Episodes,
    count: int,
    length: int,
    teacher: Teacher,
    rng: np.random.Generator,
    *,
    short: Short = "drop",
) -> Comparisons:
    """Sample `count` pairs of segments uniformly, and ask a teacher about them.

    Segments of `length` steps are drawn by `sample_segments`, which explains `short`. Pairs that
    the teacher declines are left out. All draws, including the teacher's, come from `rng`.

    Raises:
        ConfigError: `count` is negative, or `length` is below 1.
        DataError: no episode is long enough.
        FeedbackError: the teacher declines every pair, or breaks its contract.

    >>> from preferl.feedback.scripted import ScriptedTeacher
    >>> episodes = Episodes(np.zeros((6, 1)), np.zeros((6, 1)), np.arange(6.0), np.zeros(6, bool),
    ...                     np.zeros((1, 1)), np.array([6]))
    >>> teacher, rng = ScriptedTeacher.oracle(), np.random.default_rng(0)
    >>> found = sample_comparisons(episodes, 2, 3, teacher, rng)
    >>> first, second = found.segments.returns(found.pairs).T
    >>> found.preference.tolist() == (first > second).tolist()
    True
    """
    segments = sample_segments(episodes, 2 * count, length, rng, short=short)
    pairs = UniformPairs()(segments, count, rng)
    return ask(segments, pairs, teacher, rng)


def ask(
    segments: Segments, pairs: IntArray, teacher: Teacher, rng: np.random.Generator
) -> Comparisons:
    """Ask a teacher about pairs `[P, 2]` of segments; declined pairs are left out.

    If the teacher's thresholds follow a policy (`Adapts`), the mean and the least return of these
    segments stand for those of the policy.

    Raises:
        FeedbackError: the teacher declines every pair, or breaks its contract.
    """
    feedback = InstantFeedback(adapted_to(segments, teacher), rng)
    feedback.ask(segments, pairs)
    return feedback.comparisons()


def adapted_to(segments: Segments, teacher: Teacher) -> Teacher:
    """Return the teacher. If its thresholds follow a policy, they are set from segments."""
    if not isinstance(teacher, Adapts) or not len(segments):
        return teacher
    returns = segments.returns()
    adapted: Teacher = teacher.adapted(float(returns.mean()), min(float(returns.min()), 0.0))
    return adapted


def check_pairs(pairs: IntArray, count: int) -> IntArray:
    """Return pairs as integers `[P, 2]`; raise `FeedbackError` unless they are rows of segments."""
    pairs = np.asarray(pairs)
    is_valid = pairs.ndim == 2 and pairs.shape[1] == 2 and np.issubdtype(pairs.dtype, np.integer)
    if not is_valid or (pairs < 0).any() or (pairs >= count).any():
        raise FeedbackError(
            f"pairs: expected whole numbers of shape [P, 2], rows of {count} segments, got "
            f"{pairs.dtype} of shape {pairs.shape}: {pairs.tolist()!r:.200}."
        )
    return pairs


def check_answers(answers: FloatArray, count: int) -> FloatArray:
    """Return answers as floats `[count]`; raise `FeedbackError` if they are no probabilities."""
    try:
        preference = np.asarray(answers, np.float64)
        check_preference(preference, count)
    except (DataError, TypeError, ValueError) as error:
        raise FeedbackError(f"The teacher's answers cannot be used. {error}") from error
    return preference
