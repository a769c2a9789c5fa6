"""The contracts pass what keeps them and say in words what does not."""

import numpy as np
import pytest
from gymnasium import spaces

from preferl.data import Comparisons, concatenate, sample_segments
from preferl.errors import FeedbackError
from preferl.feedback import InstantFeedback, PromptTeacher, ScriptedTeacher, UniformPairs
from preferl.testing import make_episodes
from preferl.testing.feedback_contracts import (
    check_feedback,
    check_sampler,
    check_teacher,
    example_segments,
)


def test_scripted_teachers_and_people_keep_the_contract():
    for teacher in (
        ScriptedTeacher(),
        ScriptedTeacher.oracle(),
        ScriptedTeacher.mistake(),
        ScriptedTeacher.noisy(),
        ScriptedTeacher.skip(typical=1.0),
        ScriptedTeacher.equal(typical=1.0),
        ScriptedTeacher.myopic(),
    ):
        check_teacher(teacher)
    check_teacher(PromptTeacher(lambda clips, i: None, lambda question: "l"))


def always(value):
    return lambda shown, rng: np.full(len(shown), value)


def test_a_plain_function_is_a_teacher():
    check_teacher(always(0.5))


def one_answer(shown, rng):
    return np.ones(1)


def own_dice(dice):
    return lambda shown, rng: dice.random(len(shown))


def by_padding(shown, rng):
    return (np.asarray(shown.observations)[:, 0].sum(axis=(1, 2)) > 0).astype(float)


def spoils(shown, rng):
    shown.actions[:] = 0
    return np.ones(len(shown))


@pytest.mark.parametrize(
    ("teacher", "words"),
    [
        (one_answer, "one_answer: answers to 20 pairs"),
        (always(2.0), r"numbers in \[0, 1\]"),
        (own_dice(np.random.default_rng(0)), "equal generator.*Draw only from `rng`"),
        (by_padding, "padded steps of (least|largest) numbers"),
        (spoils, "spoils: the clips shown.*as they were"),
    ],
)
def test_what_is_wrong_with_a_teacher_is_reported(teacher, words):
    with pytest.raises(FeedbackError, match=words):
        check_teacher(teacher)


def test_teachers_of_other_observations_are_checked_with_segments_of_these(rng):
    def upright(clips, rng):
        heights = np.where(clips.mask, clips.observations["at"][..., 0], 0).sum(-1)
        return np.asarray(heights[:, 0] > heights[:, 1], np.float64)

    space = spaces.Dict({"at": spaces.Box(-1, 1, (2,)), "mode": spaces.Discrete(3)})
    episodes = make_episodes(rng, [20, 3], space, spaces.Box(-1, 1, (2,)))
    check_teacher(upright, sample_segments(episodes, 8, 5, rng, short="pad"))
    with pytest.raises(FeedbackError, match=r"upright: .*made-up clips.*pass segments of your env"):
        check_teacher(upright)


def test_people_need_not_repeat_themselves(rng):
    check_teacher(own_dice(rng), repeatable=False)


def test_samplers_that_keep_the_contract_pass():
    check_sampler(UniformPairs())
    check_sampler(UniformPairs(), example_segments(3), count=100)


def giving(pairs):
    return lambda segments, count, rng: np.asarray(pairs)[:count]


def unruly(dice):
    return lambda segments, count, rng: UniformPairs()(segments, count, dice)


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (giving([[0, 1]]), r"shape \(5, 2\), got int64 of shape \(1, 2\)"),
        (giving(np.ones((5, 2))), "whole numbers"),
        (giving([[0, 8]] * 5), "rows of 8 segments"),
        (giving([[0, 1]] * 4 + [[3, 3]]), "a row with itself"),
        (unruly(np.random.default_rng(0)), "equal generator"),
    ],
)
def test_what_is_wrong_with_a_sampler_is_reported(sampler, words):
    with pytest.raises(FeedbackError, match=words):
        check_sampler(sampler)


class Later:
    """An asynchronous feedback, and the faults one can have."""

    def __init__(self, fault=""):
        self.fault = fault
        self.pending = []
        self.done = []

    def ask(self, segments, pairs):
        if self.fault == "takes anything":
            pairs = pairs % len(segments)
        if len(pairs) and (pairs.min() < 0 or pairs.max() >= len(segments)):
            raise FeedbackError("There is no such segment.")
        asked = pairs[:, ::-1] if self.fault == "swaps" else pairs
        if self.fault == "loses one":
            asked = asked[1:]
        preference = np.full(len(asked), np.nan if self.fault == "keeps declined" else 1.0)
        block = Comparisons.of(segments, asked, preference)
        if len(block):
            (self.done if self.fault == "hasty" else self.pending).append(block)
        if self.fault == "hands back":
            return block
        return None

    def answer(self):
        if self.fault == "never":
            return
        self.done += self.pending * (2 if self.fault == "doubles" else 1)
        if self.fault == "newest first":
            self.done.reverse()
        self.pending = []

    def comparisons(self):
        if not self.done:
            raise FeedbackError("Nothing has been answered.")
        return concatenate(self.done)


def test_answers_may_come_later_and_there_may_be_earlier_ones():
    feedback = Later()
    check_feedback(feedback, answer=feedback.answer)
    check_feedback(feedback, answer=feedback.answer)
    assert len(feedback.comparisons()) == 20


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("hands back", "`ask` returns: expected None"),
        ("hasty", "before its answer"),
        ("doubles", "each once"),
        ("swaps", "both sides as asked"),
        ("loses one", "expected 5, got 4.*declines=True"),
        ("keeps declined", "declined ones"),
        ("newest first", "oldest first"),
        ("never", "expected 5, got none"),
        ("takes anything", "expected an error"),
    ],
)
def test_what_is_wrong_with_a_feedback_is_reported(fault, words):
    feedback = Later(fault)
    with pytest.raises(FeedbackError, match=words) as raised:
        check_feedback(feedback, answer=feedback.answer)
    assert str(raised.value).startswith("Later: ")


def test_teachers_that_decline_are_allowed_for():
    check_feedback(InstantFeedback(always(float("nan")), 0), declines=True)
    with pytest.raises(FeedbackError, match="got none"):
        check_feedback(InstantFeedback(always(float("nan")), 0))


def test_too_few_segments_to_check_with_are_refused():
    with pytest.raises(FeedbackError, match="at least 5"):
        check_feedback(InstantFeedback(ScriptedTeacher(), 0), example_segments().select(slice(3)))
