"""A script's answers go through the same queue as those of people."""

import numpy as np
import pytest
from sqlalchemy import select

from preferl.feedback import ScriptedTeacher
from preferl.online.service.scripted_answers import ScriptedAnswers
from preferl.store.feedback import StoredFeedback
from preferl.store.schema import Answer


def script(world, teacher):
    return ScriptedAnswers(StoredFeedback(world.store), teacher, np.random.default_rng(0))


def test_all_open_queries_are_answered_and_counted(world):
    answers = script(world, ScriptedTeacher.oracle())
    assert answers.answer() == 0
    world.ask(11)  # more than are claimed at a time
    assert (answers.answer(), answers.answer()) == (11, 0)
    world.ask(2)
    assert (answers.answer(), answers.given) == (2, 13)
    votes = world.store.queries.votes(world.project.id)
    assert {votes.names[number] for number in votes.annotator} == {"script"}
    assert set(votes.swapped) == {True, False}
    comparisons = StoredFeedback(world.store).comparisons()
    returns = comparisons.segments.returns(comparisons.pairs)
    np.testing.assert_array_equal(comparisons.preference, returns[:, 0] > returns[:, 1])


def test_the_teacher_sees_the_sides_as_a_person_would(world):
    world.ask(20)
    script(world, lambda shown, _: np.ones(len(shown))).answer()  # always the left clip
    votes = world.store.queries.votes(world.project.id)
    np.testing.assert_array_equal(votes.preference, np.where(votes.swapped, 0.0, 1.0))


def test_each_number_has_its_kind_of_answer(world):
    world.ask(4)
    script(world, lambda _, __: np.array([np.nan, 0.5, 0.9, 0.0])).answer()
    with world.store.database.read() as session:
        kinds = session.scalars(select(Answer.kind).order_by(Answer.query_id)).all()
    assert kinds == ["cannot_tell", "equal", "left", "right"]


def test_scripts_of_two_agents_leave_each_other_what_is_left(world):
    first, second = (script(world, ScriptedTeacher.oracle()) for _ in range(2))
    world.ask(8)

    def slow(shown, rng):
        second.answer()  # holds the same questions: both are the person "script"
        return ScriptedTeacher.oracle()(shown, rng)

    first.teacher = slow
    assert (first.answer(), second.given) == (0, 8)


def test_an_error_of_the_teacher_keeps_the_answers_before_it(world):
    world.ask(10)
    calls = []

    def teacher(shown, _):
        calls.append(len(shown))
        if len(calls) == 2:
            raise RuntimeError("no more")
        return np.ones(len(shown))

    answers = script(world, teacher)
    with pytest.raises(RuntimeError, match="no more"):
        answers.answer()
    assert (calls, answers.given) == ([8, 2], 8)
    assert world.store.reports.revision(world.project.id) == 8
    assert answers.answer() == 2
