"""Checks of the contracts that a teacher, a sampler or a feedback of yours must keep."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segment_sampling import sample_segments
from preferl.data.segments import Clips, Segments
from preferl.errors import FeedbackError
from preferl.feedback.instant import check_answers
from preferl.feedback.pair_sampling import segments_wanted
from preferl.feedback.protocols import Feedback, PairSampler, Teacher
from preferl.shapes import Array, FloatArray, IntArray, leaves, map_observations


def check_teacher(
    teacher: Teacher, segments: Segments | None = None, *, repeatable: bool = True, seed: int = 0
) -> None:
    """Raise `FeedbackError` unless a teacher answers every pair it is shown, and changes no clip.

    If `repeatable`, the same clips and an equal generator must give the same answers, whatever the
    padded steps contain; pass False for people. By default, segments are made up: some are padded,
    and their observations are three numbers. If your teacher reads other observations, such as the
    keys of a dictionary, pass segments of your environment:
    `sample_segments(episodes, 8, length, rng)`.

    >>> from preferl.feedback import ScriptedTeacher
    >>> check_teacher(ScriptedTeacher(temperature=0.5))
    """
    name = _name(teacher)
    made_up = segments is None
    segments = example_segments(seed) if segments is None else segments
    shown = segments[_every_pair(len(segments))[:20]]
    before = _contents(shown)
    try:
        answers = _answers(teacher, shown, seed)
    except FeedbackError:
        raise
    except Exception as error:  # a user's teacher may raise anything
        if not made_up:
            raise
        raise FeedbackError(
            f"{name}: expected answers about made-up clips, whose observations are three numbers, "
            f"got {type(error).__name__}: {error}. If it reads other observations, such as the "
            "keys of a dictionary, pass segments of your environment: `check_teacher(teacher, "
            "sample_segments(episodes, 8, length, rng))`."
        ) from error
    if _contents(shown) != before:
        raise FeedbackError(
            f"{name}: the clips shown: expected left as they were, got changed ones."
        )
    for few in (shown[:1], shown[:0]):
        _answers(teacher, few, seed)
    if not repeatable:
        return
    others = {
        "the same clips": shown,
        "padded steps of least numbers": _padded_by(shown, np.min),
        "padded steps of largest numbers": _padded_by(shown, np.max),
    }
    for what, again in others.items():
        if not np.array_equal(answers, _answers(teacher, again, seed), equal_nan=True):
            raise FeedbackError(
                f"{name}: answers to {what} and an equal generator: expected the same answers, got "
                "others. Draw only from `rng`, look only at real steps, or pass repeatable=False."
            )


def check_sampler(
    sampler: PairSampler, segments: Segments | None = None, *, count: int = 5, seed: int = 0
) -> None:
    """Raise `FeedbackError` unless a sampler gives as many pairs as asked, and the same ones again.

    If it names a number of segments that it wants, this must be enough for a query. `segments` are
    at least two different windows; by default, they are made up.

    >>> from preferl.feedback import UniformPairs
    >>> check_sampler(UniformPairs())
    """
    name = _name(sampler)
    segments = example_segments(seed) if segments is None else segments
    segments_wanted(sampler, count)
    for wanted in (count, 1, 0):
        pairs = np.asarray(sampler(segments, wanted, np.random.default_rng(seed)))
        again = sampler(segments, wanted, np.random.default_rng(seed))
        if pairs.shape != (wanted, 2) or not np.issubdtype(pairs.dtype, np.integer):
            raise FeedbackError(
                f"{name}: pairs for a count of {wanted}: expected whole numbers of shape "
                f"({wanted}, 2), got {pairs.dtype} of shape {pairs.shape}."
            )
        if ((pairs < 0) | (pairs >= len(segments))).any():
            raise FeedbackError(
                f"{name}: pairs: expected rows of {len(segments)} segments, got rows "
                f"{pairs.min()} to {pairs.max()}."
            )
        if (pairs[:, 0] == pairs[:, 1]).any():
            raise FeedbackError(
                f"{name}: pairs: expected two different rows each, got a row with itself."
            )
        if not np.array_equal(pairs, again):
            raise FeedbackError(
                f"{name}: pairs drawn with an equal generator: expected the same pairs, got "
                "others. Draw only from `rng`."
            )


def check_feedback(
    feedback: Feedback,
    segments: Segments | None = None,
    *,
    answer: Callable[[], None] | None = None,
    declines: bool = False,
    seed: int = 0,
) -> None:
    """Raise `FeedbackError` unless `comparisons` returns each answer once, and nothing else does.

    Pass a feedback without queries. It gets ten queries in two calls. If it `declines`, some may
    remain without an answer. If it does not answer at once, pass `answer`, which answers all of its
    pending queries. `segments` are at least five windows of different steps; by default, they are
    made up.

    >>> from preferl.feedback import InstantFeedback, ScriptedTeacher
    >>> check_feedback(InstantFeedback(ScriptedTeacher(), 0))
    """
    segments = example_segments(seed) if segments is None else segments
    pairs = _every_pair(len(segments))[:10]
    if len(pairs) < 10:
        raise FeedbackError(
            f"{_name(feedback)}: segments to ask about: expected at least 5, got {len(segments)}."
        )
    known = len(_comparisons(feedback))
    _ask(feedback, segments, pairs[:0])
    _unchanged(feedback, known, "no query")
    asked: list[bytes] = []
    for part in (pairs[:5], pairs[5:]):
        before = len(_comparisons(feedback))
        _ask(feedback, segments, part)
        if answer is not None:
            _unchanged(feedback, before, "a query before its answer")
            answer()
        asked += _names(segments, part)
        _check_answered(feedback, known, asked, declines)
    before = len(_comparisons(feedback))
    for wrong in (np.array([[0, len(segments)]]), np.array([[-1, 0]])):
        try:
            feedback.ask(segments, wrong)
        except (ValueError, IndexError):
            _unchanged(feedback, before, "a query that was refused")
            continue
        raise FeedbackError(
            f"{_name(feedback)}: asking about pairs {wrong.tolist()} of {len(segments)} segments: "
            "expected an error, got nothing."
        )


def example_segments(seed: int = 0) -> Segments:
    """Make `[8]` windows of four steps over two made-up episodes, one of them short and padded."""
    rng = np.random.default_rng(seed)
    episodes = Episodes(
        observations=rng.normal(size=(13, 3)).astype(np.float32),
        actions=rng.normal(size=(13, 2)).astype(np.float32),
        rewards=rng.normal(size=13),
        terminated=np.zeros(13, bool),
        final_observations=np.zeros((2, 3), np.float32),
        lengths=np.array([10, 3]),
    )
    return sample_segments(episodes, 8, 4, rng, short="pad")


def _name(part: object) -> str:
    """Return the name of a function, or of the class of any other object."""
    return str(getattr(part, "__name__", type(part).__name__))


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
        raise FeedbackError(
            f"{_name(teacher)}: answers to {len(shown)} pairs: expected {len(shown)} numbers in "
            f"[0, 1] or NaN, got {error}"
        ) from error


def _padded_by(clips: Clips, extreme: Callable[[Array], float]) -> Clips:
    """Return the clips, padded by an extreme of all observations and actions."""

    def fill(array: Array) -> Array:
        changed = np.array(array)
        changed[~clips.mask] = extreme(changed)
        return changed

    observations = map_observations(fill, clips.observations)
    return replace(clips, observations=observations, actions=fill(clips.actions))


def _comparisons(feedback: Feedback) -> Comparisons | tuple[()]:
    """Return all answers; an empty tuple if there are none."""
    try:
        return feedback.comparisons()
    except FeedbackError:
        return ()


def _ask(feedback: Feedback, segments: Segments, pairs: IntArray) -> None:
    ask: Callable[[Segments, IntArray], object] = feedback.ask
    returned = ask(segments, pairs)
    if returned is not None:
        raise FeedbackError(
            f"{_name(feedback)}: what `ask` returns: expected None, got a "
            f"{type(returned).__name__}. Answers are read with `comparisons`, since people answer "
            "later."
        )


def _unchanged(feedback: Feedback, count: int, after: str) -> None:
    now = len(_comparisons(feedback))
    if now != count:
        raise FeedbackError(
            f"{_name(feedback)}: answers after {after}: expected {count}, got {now}."
        )


def _names(segments: Segments, pairs: IntArray) -> list[bytes]:
    """Name each pair by the observations and actions of its clips' real steps."""
    names = []
    for pair in pairs:
        clips = segments[pair]
        steps = [np.asarray(leaf)[clips.mask] for leaf in leaves(clips.observations)]
        lengths = clips.mask.sum(1).astype(np.int64)
        names.append(b"".join(a.tobytes() for a in (lengths, *steps, clips.actions[clips.mask])))
    return names


def _check_answered(feedback: Feedback, known: int, asked: list[bytes], declines: bool) -> None:
    name = _name(feedback)
    comparisons = _comparisons(feedback)
    if not isinstance(comparisons, Comparisons):
        if not declines:
            raise FeedbackError(
                f"{name}: answers to {len(asked)} queries: expected {len(asked)}, got none."
            )
        return
    new = comparisons[known:]
    answered = _names(comparisons.segments, new.pairs)
    if not new.answered.all():
        raise FeedbackError(f"{name}: comparisons: expected answers, got declined ones (NaN).")
    if len(set(answered)) < len(answered):
        raise FeedbackError(f"{name}: answers: expected each once, got one more than once.")
    others = set(answered) - set(asked)
    if others:
        raise FeedbackError(
            f"{name}: answers: expected the pairs that were asked, both sides as asked, got "
            f"{len(others)} others."
        )
    if len(answered) < len(asked) and not declines:
        raise FeedbackError(
            f"{name}: answers: expected {len(asked)}, got {len(answered)}. Pass declines=True if "
            "the teacher may decline."
        )
    calls = [asked.index(pair) // 5 for pair in answered]
    if calls != sorted(calls):
        raise FeedbackError(f"{name}: answers: expected oldest first, got another order.")
