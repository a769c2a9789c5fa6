"""Protocols of asking and answering: who meets them, and the two ways to stop half-way."""

import numpy as np

from preferl.feedback import (
    InstantFeedback,
    ScriptedTeacher,
)
from preferl.feedback.protocols import LastingFeedback
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
