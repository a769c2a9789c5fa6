"""What a teacher, a sampler or a feedback of yours must keep, checked and said in words."""

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segments import Clips, Segments, sample_segments
from preferl.errors import FeedbackError, mismatch
from preferl.feedback.instant import check_answers
from preferl.feedback.protocols import Feedback, PairSampler, Teacher
from preferl.feedback.sampling import segments_wanted
from preferl.shapes import Array, FloatArray, IntArray, leaves, map_observations

EXTREMES: dict[str, Callable[[Array], float]] = {"least": np.min, "largest": np.max}


def check_teacher(
    teacher: Teacher,
    segments: Segments | None = None,
    *,
    repeatable: bool = True,
    seed: int = 0,
) -> None:
    """Raise `FeedbackError` unless a teacher answers every pair it is shown, and does no harm.

    Args:
        teacher: yours.
        segments: what to show; by default windows of made-up episodes with numbers, some padded.
        repeatable: whether the same clips and generator must give the same answers, whatever
            padded steps hold; false for people.
        seed: of what is drawn.

    >>> from preferl.feedback import ScriptedTeacher
    >>> check_teacher(ScriptedTeacher(temperature=0.5))
    """
    segments = example_segments(seed) if segments is None else segments
    pairs = _every_pair(len(segments))[:20]
    shown = segments[pairs]
    before = _contents(shown)
    answers = _answers(teacher, shown, seed)
    if before != _contents(shown):
        _fail(teacher, "the clips shown", expected="left as they were", got="changed ones")
    for few in (shown[:1], shown[:0]):
        _answers(teacher, few, seed)
    if not repeatable:
        return
    others = {"the same clips": shown}
    others |= {f"padded steps of {side} numbers": _padded_by(shown, side) for side in EXTREMES}
    for what, again in others.items():
        if not np.array_equal(answers, _answers(teacher, again, seed), equal_nan=True):
            _fail(
                teacher,
                f"answers to {what} and an equal generator",
                expected="the same answers",
                got="others",
                fix="Draw from `rng` alone, look at real steps alone, or pass repeatable=False.",
            )


def check_sampler(
    sampler: PairSampler, segments: Segments | None = None, *, count: int = 5, seed: int = 0
) -> None:
    """Raise `FeedbackError` unless a sampler gives as many pairs of two as asked, repeatably.

    Where it says how many segments it wants, that is a number with which a question can be asked.

    Args:
        sampler: yours.
        segments: what to choose from, at least two different windows; made up by default.
        count: pairs to ask for.
        seed: of what is drawn.

    >>> from preferl.feedback import UniformPairs
    >>> check_sampler(UniformPairs())
    """
    segments = example_segments(seed) if segments is None else segments
    segments_wanted(sampler, count)
    for wanted in (count, 1, 0):
        pairs = sampler(segments, wanted, np.random.default_rng(seed))
        _check_pairs(sampler, pairs, wanted, len(segments))
        again = sampler(segments, wanted, np.random.default_rng(seed))
        if not np.array_equal(pairs, again):
            _fail(
                sampler,
                "pairs drawn with an equal generator",
                expected="the same pairs",
                got="others",
                fix="Draw from `rng` alone.",
            )


def check_feedback(
    feedback: Feedback,
    segments: Segments | None = None,
    *,
    answer: Callable[[], None] | None = None,
    declines: bool = False,
    seed: int = 0,
) -> None:
    """Raise `FeedbackError` unless answers come back, each once, and only by `comparisons`.

    Args:
        feedback: yours, at best a fresh one; it is asked ten questions in two calls.
        segments: what to ask about, at least five windows of different steps; made up by default.
        answer: answers all pending questions of an asynchronous feedback; None for one that
            answers at once.
        declines: whether some questions may remain without an answer.
        seed: of what is drawn.

    >>> from preferl.feedback import InstantFeedback, ScriptedTeacher
    >>> check_feedback(InstantFeedback(ScriptedTeacher(), 0))
    """
    segments = example_segments(seed) if segments is None else segments
    pairs = _every_pair(len(segments))[:10]
    if len(pairs) < 10:
        raise FeedbackError.mismatch(
            "segments to ask about", expected="at least 5", got=len(segments)
        )
    known = _count(feedback)
    _ask(feedback, segments, pairs[:0])
    _unchanged(feedback, known, "no question")
    asked: list[str] = []
    for part in (pairs[:5], pairs[5:]):
        before = _count(feedback)
        _ask(feedback, segments, part)
        if answer is not None:
            _unchanged(feedback, before, "a question before its answer")
            answer()
        asked += _questions(segments, part)
        _check_answered(feedback, known, asked, declines)
    for wrong in (np.array([[0, len(segments)]]), np.array([[-1, 0]])):
        _check_refused(feedback, segments, wrong)


def example_segments(seed: int = 0) -> Segments:
    """`[8]` windows of four steps over two made-up episodes, one of them short and padded."""
    rng = np.random.default_rng(seed)
    lengths = np.array([10, 3])
    episodes = Episodes(
        observations=rng.normal(size=(13, 3)).astype(np.float32),
        actions=rng.normal(size=(13, 2)).astype(np.float32),
        rewards=rng.normal(size=13),
        terminated=np.zeros(13, bool),
        final_observations=np.zeros((2, 3), np.float32),
        lengths=lengths,
    )
    return sample_segments(episodes, 8, 4, rng, short="pad")


def _fail(thing: object, what: str, *, expected: object, got: object, fix: str = "") -> NoReturn:
    name = getattr(thing, "__name__", type(thing).__name__)
    raise FeedbackError(f"{name}: " + mismatch(what, expected=expected, got=got, fix=fix))


def _every_pair(count: int) -> IntArray:
    """`[count (count - 1) / 2, 2]` pairs, neighbours first."""
    first, second = np.triu_indices(count, 1)
    return np.stack([first, second], axis=1)[np.argsort(second - first, kind="stable")]


def _contents(clips: Clips) -> list[bytes]:
    arrays = [*leaves(clips.observations), clips.actions, clips.mask, clips.rewards]
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


def _answers(teacher: Teacher, shown: Clips, seed: int) -> FloatArray:
    answers = teacher(shown, np.random.default_rng(seed))
    try:
        return check_answers(answers, len(shown))
    except FeedbackError as error:
        _fail(
            teacher,
            f"answers to {len(shown)} pairs",
            expected=f"{len(shown)} numbers in [0, 1] or NaN",
            got=error,
        )


def _padded_by(clips: Clips, side: str) -> Clips:
    """The same clips, padded by the least or largest numbers of observations and actions."""

    def fill(array: Array) -> Array:
        changed = np.array(array)
        changed[~clips.mask] = EXTREMES[side](changed)
        return changed

    return Clips(
        observations=map_observations(fill, clips.observations),
        actions=fill(clips.actions),
        mask=clips.mask,
        rewards=clips.rewards,
        states=clips.states,
    )


def _check_pairs(sampler: PairSampler, pairs: IntArray, count: int, segments: int) -> None:
    array = np.asarray(pairs)
    if array.shape != (count, 2) or not np.issubdtype(array.dtype, np.integer):
        _fail(
            sampler,
            f"pairs for a count of {count}",
            expected=f"whole numbers of shape ({count}, 2)",
            got=f"{array.dtype} of shape {array.shape}",
        )
    if count and (array.min() < 0 or array.max() >= segments):
        _fail(
            sampler,
            "pairs",
            expected=f"rows of {segments} segments",
            got=f"rows {array.min()} to {array.max()}",
        )
    if (array[:, 0] == array[:, 1]).any():
        _fail(sampler, "pairs", expected="two different rows each", got="a row with itself")


def _comparisons(feedback: Feedback) -> Comparisons | None:
    """All answers, or None before the first."""
    try:
        return feedback.comparisons()
    except FeedbackError:
        return None


def _count(feedback: Feedback) -> int:
    comparisons = _comparisons(feedback)
    return 0 if comparisons is None else len(comparisons)


def _ask(feedback: Feedback, segments: Segments, pairs: IntArray) -> None:
    ask: Callable[[Segments, IntArray], object] = feedback.ask
    handed = ask(segments, pairs)
    if handed is not None:
        _fail(
            feedback,
            "what `ask` hands back",
            expected="None",
            got=type(handed).__name__,
            fix="Answers are read with `comparisons`, since people answer later.",
        )


def _unchanged(feedback: Feedback, count: int, after: str) -> None:
    if _count(feedback) != count:
        _fail(feedback, f"answers after {after}", expected=count, got=_count(feedback))


def _questions(segments: Segments, pairs: IntArray) -> list[str]:
    """A name for each pair by the observations and actions of its clips' real steps."""
    clips = segments[pairs]
    marks = [np.asarray(leaf) for leaf in [*leaves(clips.observations), clips.actions]]
    return [
        "".join(
            np.ascontiguousarray(mark[row, side][clips.mask[row, side]]).tobytes().hex() + "|"
            for side in (0, 1)
            for mark in marks
        )
        for row in range(len(pairs))
    ]


def _check_answered(feedback: Feedback, known: int, asked: list[str], declines: bool) -> None:
    comparisons = _comparisons(feedback)
    if comparisons is None:
        if declines:
            return
        _fail(feedback, f"answers to {len(asked)} questions", expected=len(asked), got="none")
    new = comparisons[known:]
    got = _questions(comparisons.segments, new.pairs)
    if not new.answered.all():
        _fail(feedback, "comparisons", expected="answers", got="declined ones (NaN)")
    if len(set(got)) < len(got):
        _fail(feedback, "answers", expected="each once", got="one more than once")
    position = {question: place for place, question in enumerate(asked)}
    strange = [question for question in got if question not in position]
    if strange:
        _fail(
            feedback,
            "answers",
            expected="the pairs that were asked, both sides as asked",
            got=f"{len(strange)} others",
        )
    if len(got) < len(asked) and not declines:
        _fail(
            feedback,
            "answers",
            expected=len(asked),
            got=len(got),
            fix="Pass declines=True if the teacher may decline.",
        )
    calls = [position[question] // 5 for question in got]
    if calls != sorted(calls):
        _fail(feedback, "answers", expected="oldest first", got="another order")


def _check_refused(feedback: Feedback, segments: Segments, pairs: IntArray) -> None:
    before = _count(feedback)
    try:
        feedback.ask(segments, pairs)
    except (ValueError, IndexError):
        _unchanged(feedback, before, "a question that was refused")
        return
    _fail(
        feedback,
        f"asking about pairs {pairs.tolist()} of {len(segments)} segments",
        expected="an error",
        got="nothing",
    )
