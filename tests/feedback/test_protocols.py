"""Protocols of asking and answering: who meets them, and the two ways to stop half-way."""

import numpy as np
import pytest

from preferl.errors import FeedbackError
from preferl.feedback import (
    CoveringPairs,
    FeedbackInterrupted,
    InformativePairs,
    InputEndedError,
    InstantFeedback,
    PromptTeacher,
    ScriptedTeacher,
    UniformPairs,
)
from preferl.feedback.protocols import LastingFeedback, SingleAnswers, Teacher, WantsSegments
from preferl.store import Store
from preferl.store.feedback import StoredFeedback
from preferl.testing import check_sampler, check_teacher, example_segments


def first_wins(shown, rng):
    return np.ones(len(shown.mask))


def neighbours(segments, count, rng):
    first = np.arange(count) % (len(segments) - 1)
    return np.stack([first, first + 1], axis=1)


def test_plain_functions_are_teachers_and_samplers():
    check_teacher(first_wins)
    check_sampler(neighbours)
    feedback = InstantFeedback(first_wins, 0)
    segments = example_segments()
    feedback.ask(segments, neighbours(segments, 3, None))
    assert feedback.comparisons().preference.tolist() == [1, 1, 1]


def test_people_alone_answer_one_by_one():
    assert isinstance(PromptTeacher(), SingleAnswers)
    assert not isinstance(ScriptedTeacher(), SingleAnswers)
    assert isinstance(ScriptedTeacher(), Teacher)
    assert not isinstance("oracle", Teacher)


def test_our_samplers_want_a_number_of_segments_and_functions_do_not():
    for kind in (UniformPairs, InformativePairs, CoveringPairs):
        assert isinstance(kind, WantsSegments), kind
    assert not isinstance(neighbours, WantsSegments)


def test_answers_in_a_store_last_and_those_in_memory_do_not(tmp_path):
    assert not isinstance(InstantFeedback(ScriptedTeacher(), 0), LastingFeedback)
    with Store.open(tmp_path) as store:
        store.projects.create("dots")
        feedback = StoredFeedback(store, "dots")
        assert isinstance(feedback, LastingFeedback)
        assert feedback.newest == 0
        segments = example_segments()
        pairs = np.array([[0, 1], [2, 3]])
        feedback.ask(segments, pairs[:1])
        since = feedback.newest
        assert since == 1
        feedback.ask_rest(segments, pairs, since=0)
        assert feedback.pending == 2


def test_a_person_who_stops_ends_the_program_unless_that_is_expected():
    answers = np.array([1.0, 0.5])
    stopped = FeedbackInterrupted(answers)
    assert isinstance(stopped, KeyboardInterrupt)
    assert not isinstance(stopped, Exception)  # nobody's `except Exception` swallows it
    assert stopped.answers is answers
    assert str(stopped) == "stopped by the person who answers, after 2 answers"


def test_the_end_of_input_is_an_error_of_feedback():
    with pytest.raises(FeedbackError, match=r"^closed$") as caught:
        raise InputEndedError("closed", np.array([0.0]))
    assert caught.value.answers.tolist() == [0.0]
