"""Feedback from a teacher in this process."""

import numpy as np
import pytest

from helpers.clips import at
from preferl.data import Clips
from preferl.errors import DataError, FeedbackError
from preferl.feedback import FeedbackInterrupted, InputEndedError, InstantFeedback, ScriptedTeacher
from preferl.feedback.instant import ask, sample_comparisons
from preferl.testing import make_episodes
from preferl.testing.feedback_contracts import check_feedback

NAN = float("nan")


def windows(count, base=0.0):
    """`count` windows of two steps; their returns grow, and step `t` holds `base + t`."""
    return at(*(base + np.arange(2.0 * count)), length=2)


def test_one_call_takes_the_segments_for_the_policy(rng):
    # Returns 1, 5, 9 and 13: the mean is 7, and a margin of 0.8 above 0 is 5.6.
    pairs = np.array([[0, 1], [0, 2], [3, 1]])
    given = ask(windows(4), pairs, ScriptedTeacher.skip(margin=0.8), rng)
    assert given.pairs.shape == (2, 2)  # the first pair shows too little
    assert given.preference.tolist() == [0.0, 1.0]
    # From a least return of -19 the mean, -13, is 6 away: less than 4.8 apart is equal.
    given = ask(windows(4, base=-10.0), pairs, ScriptedTeacher.equal(margin=0.8), rng)
    assert given.preference.tolist() == [0.5, 0.0, 1.0]


@pytest.mark.parametrize(
    ("teacher", "fits"),
    [
        (ScriptedTeacher(), True),
        (lambda shown, rng: np.zeros(len(shown)), True),
        (lambda shown, rng: shown.rewards[:, 0].max(), True),  # an error, of no clips alone
        (lambda shown, rng: shown.rewards.sum(-1), False),
        (lambda shown, rng: 0.5, False),
    ],
)
def test_a_teacher_of_the_wrong_shape_is_found_before_it_is_asked(teacher, fits):
    axes = (0, 2, 3)
    none = Clips(np.zeros((*axes, 1)), np.zeros(axes), np.ones(axes, bool), np.zeros(axes))
    feedback = InstantFeedback(teacher, 0)
    if fits:
        feedback.require_shape(none)
    else:
        with pytest.raises(FeedbackError, match="The teacher's answers cannot be used"):
            feedback.require_shape(none)
    assert feedback.asked == 0


class Saying:
    """A teacher that gives prepared answers, call by call."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.shown = []

    def __call__(self, shown, rng):
        self.shown.append(shown)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return np.asarray(answer, np.float64)


def neighbours(count):
    return np.stack([np.arange(count), np.arange(count) + 1], axis=1)


def first_steps(feedback):
    comparisons = feedback.comparisons()
    clips = comparisons.segments[comparisons.pairs]
    return [[float(x) for x in row] for row in np.asarray(clips.observations)[:, :, 0, 0]]


def test_the_teacher_sees_each_pair_in_order_and_its_answers_come_back():
    teacher = Saying([1.0, 0.25])
    feedback = InstantFeedback(teacher, 0)
    feedback.ask(windows(5), np.array([[3, 1], [0, 4]]))
    assert np.asarray(teacher.shown[0].observations)[..., 0].tolist() == [
        [[6, 7], [2, 3]],
        [[0, 1], [8, 9]],
    ]
    assert feedback.comparisons().preference.tolist() == [1.0, 0.25]
    assert first_steps(feedback) == [[6, 2], [0, 8]]


def test_declined_answers_are_counted_and_left_out():
    feedback = InstantFeedback(Saying([NAN, 1.0, NAN]), 0)
    feedback.ask(windows(4), neighbours(3))
    assert (feedback.asked, feedback.declined) == (3, 2)
    assert first_steps(feedback) == [[2, 4]]


def test_only_steps_that_were_compared_are_kept_and_as_copies():
    segments = windows(1000)
    feedback = InstantFeedback(Saying([1.0]), 0)
    feedback.ask(segments, np.array([[10, 500]]))
    assert feedback.comparisons().segments.steps == 4
    segments.rewards[:] = -1
    assert feedback.comparisons().segments.rewards.tolist() == [20, 21, 1000, 1001]


@pytest.mark.parametrize("read", [False, True])
def test_a_bound_drops_the_oldest_and_frees_their_steps(read):
    feedback = InstantFeedback(Saying([0.1, 0.2], [0.3, 0.4], [0.5]), 0, max_comparisons=3)
    for base, count in ((0, 2), (100, 2), (200, 1)):
        feedback.ask(windows(3, base), neighbours(count))
        if read:
            assert len(feedback.comparisons()) <= 3
    assert feedback.comparisons().preference.tolist() == [0.3, 0.4, 0.5]
    assert first_steps(feedback) == [[100, 102], [102, 104], [200, 202]]
    assert feedback.comparisons().segments.steps == 10
    assert feedback.asked == 5


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([1.0], r"shape \(2,\), got shape \(1,\)"),
        ([[1.0, 0.0]], r"got shape \(1, 2\)"),
        ([1.0, 2.0], r"\[0, 1\].*got 2 for pair 1"),
        ([-1.0, 0.0], "got -1 for pair 0"),
    ],
)
def test_answers_that_break_the_contract_are_refused_and_not_kept(answer, words):
    feedback = InstantFeedback(Saying(answer), 0)
    with pytest.raises(FeedbackError, match=words):
        feedback.ask(windows(3), neighbours(2))
    assert feedback.asked == 0


@pytest.mark.parametrize(
    "pairs", [np.array([[0, 3]]), np.array([[-1, 0]]), np.array([0, 1]), np.array([[0.0, 1.0]])]
)
def test_pairs_that_name_no_segments_are_refused(pairs):
    with pytest.raises(FeedbackError, match="rows of 3 segments"):
        InstantFeedback(Saying([1.0]), 0).ask(windows(3), pairs)


@pytest.mark.parametrize(
    "stop",
    [FeedbackInterrupted(np.array([1.0, NAN])), InputEndedError("gone", np.array([1.0, NAN]))],
    ids=["stopped", "ended"],
)
def test_answers_given_before_a_stop_are_kept(stop):
    feedback = InstantFeedback(Saying([0.0], stop), 0)
    feedback.ask(windows(2, base=50), neighbours(1))
    with pytest.raises(type(stop)):
        feedback.ask(windows(5), neighbours(4))
    assert first_steps(feedback) == [[50, 52], [0, 2]]
    assert (feedback.asked, feedback.declined) == (3, 1)


def test_earlier_answers_can_be_taken_in_again():
    old = InstantFeedback(Saying([1.0, 0.0]), 0)
    old.ask(windows(3), neighbours(2))
    new = InstantFeedback(Saying([0.5]), 0, max_comparisons=2)
    new.remember(old.comparisons())
    new.ask(windows(3, base=9), neighbours(1))
    assert new.comparisons().preference.tolist() == [0.0, 0.5]
    assert new.asked == 3


def test_a_generator_or_a_seed_draw_the_same():
    def drawn(rng):
        feedback = InstantFeedback(ScriptedTeacher(temperature=2), rng)
        for _ in range(2):
            feedback.ask(windows(30), neighbours(29))
        return [float(x) for x in feedback.comparisons().preference]

    assert drawn(4) == drawn(np.random.default_rng(4))
    assert drawn(4) != drawn(5)
    assert drawn(4)[:29] != drawn(4)[29:]


def test_it_keeps_the_contract():
    check_feedback(InstantFeedback(ScriptedTeacher(), 0))
    check_feedback(InstantFeedback(ScriptedTeacher(skip_below=0.5), 0), declines=True)


def test_pairs_of_episodes_are_drawn_and_answered(rng):
    episodes = make_episodes(rng, [30, 20])

    def drawn(seed, teacher, count=15):
        return sample_comparisons(episodes, count, 6, teacher, np.random.default_rng(seed))

    found, again = (drawn(3, ScriptedTeacher.oracle()) for _ in range(2))
    assert (len(found), found.segments.length) == (15, 6)
    first, second = found.segments.returns(found.pairs).T
    np.testing.assert_array_equal(found.preference, first > second)
    np.testing.assert_array_equal(found.pairs, again.pairs)
    np.testing.assert_array_equal(found.segments.start, again.segments.start)
    assert not np.array_equal(found.segments.rewards, drawn(4, ScriptedTeacher()).segments.rewards)
    skipping = ScriptedTeacher(temperature=0, skip_below=float(np.median(first)))
    assert 0 < len(drawn(3, skipping)) < 15
    with pytest.raises(FeedbackError, match="declined"):
        drawn(3, ScriptedTeacher(skip_below=1e9))
    with pytest.raises(DataError, match="segment length: expected at most 30"):
        sample_comparisons(episodes, 2, 31, ScriptedTeacher(), rng)
