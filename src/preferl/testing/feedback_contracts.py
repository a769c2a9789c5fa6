"""Checks of the contracts that a teacher, a sampler or a feedback of yours must keep."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segments import Clips, Segments, sample_segments
from preferl.errors import FeedbackError
from preferl.feedback.instant import check_answers
from preferl.feedback.protocols import Feedback, PairSampler, Teacher
from preferl.feedback.sampling import segments_wanted
from preferl.shapes import Array, FloatArray, IntArray, leaves, map_observations


def check_teacher(
    teacher: Teacher, segments: Segments | None = None, *, repeatable: bool = True, seed: int = 0
) -> None:
    """Raise `FeedbackError` unless a teacher answers every pair it is shown, and changes no clip.

    If `repeatable`, the same clips and generator must give the same answers, whatever padded steps
    hold; pass False for people. Segments are made up by default, some of them padded, with
    observations of three numbers. Pass some of your environment for a teacher that reads others,
    such as the keys of a dictionary: `sample_segments(episodes, 8, length, rng)`.

    >>> from preferl.feedback import ScriptedTeacher
    >>> check_teacher(ScriptedTeacher(temperature=0.5))
    """
    own = segments is not None
    segments = example_segments(seed) if segments is None else segments
    shown = segments[_every_pair(len(segments))[:20]]
    before = _contents(shown)
    try:
        answers = _answers(teacher, shown, seed)
    except FeedbackError:
        raise
    except Exception as error:  # a teacher of somebody else fails in whichever way it likes
        if own:
            raise
        name = getattr(teacher, "__name__", type(teacher).__name__)
        raise FeedbackError(
            f"{name}: expected answers about made-up clips, whose observations are three numbers, "
            f"got {type(error).__name__}: {error}. If it reads other observations, such as the "
            "keys of a dictionary, pass segments of your environment: `check_teacher(teacher, "
            "sample_segments(episodes, 8, length, rng))`."
        ) from error
    same = before == _contents(shown)
    _require(same, teacher, "the clips shown", "left as they were", "changed ones")
    for few in (shown[:1], shown[:0]):
        _answers(teacher, few, seed)
    if not repeatable:
        return
    others = {
        "the same clips": shown,
        "padded steps of least numbers": _padded_by(shown, np.min),
        "padded steps of largest numbers": _padded_by(shown, np.max),
    }
    fix = "Draw from `rng` alone, look at real steps alone, or pass repeatable=False."
    for what, again in others.items():
        same = np.array_equal(answers, _answers(teacher, again, seed), equal_nan=True)
        what = f"answers to {what} and an equal generator"
        _require(same, teacher, what, "the same answers", "others", fix)


def check_sampler(
    sampler: PairSampler, segments: Segments | None = None, *, count: int = 5, seed: int = 0
) -> None:
    """Raise `FeedbackError` unless a sampler gives as many pairs of two as asked, repeatably.

    The number of segments that it wants, if it names one, must be enough for a query. `segments`
    are at least two different windows; made up by default.

    >>> from preferl.feedback import UniformPairs
    >>> check_sampler(UniformPairs())
    """
    segments = example_segments(seed) if segments is None else segments
    segments_wanted(sampler, count)
    for wanted in (count, 1, 0):
        pairs, again = (sampler(segments, wanted, np.random.default_rng(seed)) for _ in range(2))
        array = np.asarray(pairs)
        rows = f"rows of {len(segments)} segments"
        whole = array.shape == (wanted, 2) and np.issubdtype(array.dtype, np.integer)
        what = f"pairs for a count of {wanted}"
        expected = f"whole numbers of shape ({wanted}, 2)"
        _require(whole, sampler, what, expected, f"{array.dtype} of shape {array.shape}")
        least, most = (array.min(), array.max()) if wanted else (0, 0)
        inside = least >= 0 and most < len(segments)
        _require(inside, sampler, "pairs", rows, f"rows {least} to {most}")
        apart = (array[:, 0] != array[:, 1]).all()
        _require(apart, sampler, "pairs", "two different rows each", "a row with itself")
        what = "pairs drawn with an equal generator"
        fix = "Draw from `rng` alone."
        same = np.array_equal(pairs, again)
        _require(same, sampler, what, "the same pairs", "others", fix)


def check_feedback(
    feedback: Feedback,
    segments: Segments | None = None,
    *,
    answer: Callable[[], None] | None = None,
    declines: bool = False,
    seed: int = 0,
) -> None:
    """Raise `FeedbackError` unless answers come back, each once, and only by `comparisons`.

    The feedback, at best a fresh one, gets ten queries in two calls. If it `declines`, some may
    remain without an answer. `answer` answers all pending queries of one that does not answer at
    once. `segments` are at least five windows of different steps; made up by default.

    >>> from preferl.feedback import InstantFeedback, ScriptedTeacher
    >>> check_feedback(InstantFeedback(ScriptedTeacher(), 0))
    """
    segments = example_segments(seed) if segments is None else segments
    pairs = _every_pair(len(segments))[:10]
    _require(len(pairs) == 10, feedback, "segments to ask about", "at least 5", len(segments))
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
        what = f"asking about pairs {wrong.tolist()} of {len(segments)} segments"
        try:
            feedback.ask(segments, wrong)
        except (ValueError, IndexError):
            _unchanged(feedback, before, "a query that was refused")
        else:
            _require(False, feedback, what, "an error", "nothing")


def example_segments(seed: int = 0) -> Segments:
    """`[8]` windows of four steps over two made-up episodes, one of them short and padded."""
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


def _require(
    holds: object, thing: object, what: str, expected: object, got: object, fix: str = ""
) -> None:
    name = getattr(thing, "__name__", type(thing).__name__)
    FeedbackError.check(holds, f"{name}: {what}", expected, got, fix)


def _every_pair(count: int) -> IntArray:
    """`[count (count - 1) / 2, 2]` pairs, neighbours first."""
    first, second = np.triu_indices(count, 1)
    return np.stack([first, second], axis=1)[np.argsort(second - first, kind="stable")]


def _contents(clips: Clips) -> list[bytes]:
    arrays = [*leaves(clips.observations), clips.actions, clips.mask, clips.rewards]
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


def _answers(teacher: Teacher, shown: Clips, seed: int) -> FloatArray:
    answers = teacher(shown, np.random.default_rng(seed))
    count = len(shown)
    try:
        answers = check_answers(answers, count)
    except FeedbackError as error:
        expected = f"{count} numbers in [0, 1] or NaN"
        _require(False, teacher, f"answers to {count} pairs", expected, error)
    return answers


def _padded_by(clips: Clips, extreme: Callable[[Array], float]) -> Clips:
    """The same clips, padded by an extreme of all observations and actions."""

    def fill(array: Array) -> Array:
        changed = np.array(array)
        changed[~clips.mask] = extreme(changed)
        return changed

    observations = map_observations(fill, clips.observations)
    return replace(clips, observations=observations, actions=fill(clips.actions))


def _comparisons(feedback: Feedback) -> Comparisons | tuple[()]:
    """All answers; none before the first."""
    try:
        return feedback.comparisons()
    except FeedbackError:
        return ()


def _ask(feedback: Feedback, segments: Segments, pairs: IntArray) -> None:
    ask: Callable[[Segments, IntArray], object] = feedback.ask
    got = type(ask(segments, pairs)).__name__
    fix = "Answers are read with `comparisons`, since people answer later."
    _require(got == "NoneType", feedback, "what `ask` returns", "None", got, fix)


def _unchanged(feedback: Feedback, count: int, after: str) -> None:
    now = len(_comparisons(feedback))
    _require(now == count, feedback, f"answers after {after}", count, now)


def _names(segments: Segments, pairs: IntArray) -> list[bytes]:
    """A name for each pair by the observations and actions of its clips' real steps."""
    names = []
    for pair in pairs:
        clips = segments[pair]
        steps = [np.asarray(leaf)[clips.mask] for leaf in leaves(clips.observations)]
        lengths = clips.mask.sum(1).astype(np.int64)
        names.append(b"".join(a.tobytes() for a in (lengths, *steps, clips.actions[clips.mask])))
    return names


def _check_answered(feedback: Feedback, known: int, asked: list[bytes], declines: bool) -> None:
    comparisons = _comparisons(feedback)
    if not isinstance(comparisons, Comparisons):
        _require(declines, feedback, f"answers to {len(asked)} queries", len(asked), "none")
        return
    new = comparisons[known:]
    got = _names(comparisons.segments, new.pairs)
    _require(new.answered.all(), feedback, "comparisons", "answers", "declined ones (NaN)")
    _require(len(set(got)) == len(got), feedback, "answers", "each once", "one more than once")
    position = {name: place for place, name in enumerate(asked)}
    strange = [name for name in got if name not in position]
    expected = "the pairs that were asked, both sides as asked"
    _require(not strange, feedback, "answers", expected, f"{len(strange)} others")
    fix = "Pass declines=True if the teacher may decline."
    whole = len(got) >= len(asked)
    _require(whole or declines, feedback, "answers", len(asked), len(got), fix)
    calls = [position[name] // 5 for name in got]
    _require(calls == sorted(calls), feedback, "answers", "oldest first", "another order")
