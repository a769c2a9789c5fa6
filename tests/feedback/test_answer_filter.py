"""The filter of answers: its threshold, and what it leaves out, turns round and keeps."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.clips import at
from preferl.data import Comparisons
from preferl.feedback import AnswerFilter, FitContext
from preferl.feedback.answer_filter import bound, threshold


class Scores:
    """Members whose scores are given."""

    context = 1

    def __init__(self, *members):
        self._scores = np.array(members)
        self.members = len(members)

    def __call__(self, observations, actions, mask):
        raise NotImplementedError

    def scores(self, segments):
        return self._scores


def answers(preference):
    """About pairs of clips 0 and 1, 0 and 2, and so on."""
    count = len(preference)
    pairs = np.stack([np.zeros(count, int), 1 + np.arange(count)], axis=1)
    return Comparisons.of(at(*range(count + 1)), pairs, np.array(preference))


def seen_by_none(members, answers):
    return np.ones((members, answers), bool)


def test_the_bound_is_that_of_the_paper():
    assert bound(0.5, 0.0) == pytest.approx(0.9431, abs=1e-4)  # -ln .5 + .5 * .5
    assert bound(0.5, 0.04, beta=3.0) == pytest.approx(1.0631, abs=1e-4)
    assert bound(0.5, 9.0) == pytest.approx(0.9431 + 3, abs=1e-4)


def test_without_uncertainty_answers_that_are_less_likely_than_not_go():
    # Where x = -ln x + x / 2, x is 0.7035, so that p > .495 is trusted.
    loss = -np.log(np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]))
    assert threshold(loss, beta=0.0) == pytest.approx(0.7035, abs=0.02)


def test_an_improbable_answer_is_left_out_and_an_absurd_one_turned_round():
    # Log-odds that the first is better: 3 in each pair but the last, 9 there.
    scores = Scores([0.0, -3, -3, -3, -3, -9])
    given = answers([1.0, 1.0, 1.0, 0.0, 0.0])
    found = AnswerFilter(beta=0.0)(given, FitContext(scores, seen_by_none(1, 5)))
    assert found.weight.tolist() == [1, 1, 1, 0, 1]
    assert found.preference.tolist() == [1, 1, 1, 0, 1]
    found = AnswerFilter(beta=0.0, turned_below=0.0)(given, FitContext(scores, seen_by_none(1, 5)))
    assert found.weight.tolist() == [1, 1, 1, 0, 0]
    assert found.preference.tolist() == given.preference.tolist()


def test_ties_are_never_turned_round():
    scores = Scores([0.0, -3, -3, -90])
    context = FitContext(scores, seen_by_none(1, 3))
    found = AnswerFilter(beta=0.0)(answers([1.0, 1.0, 0.5]), context)
    assert found.weight.tolist() == [1, 1, 0]
    assert found.preference.tolist() == [1, 1, 0.5]


def test_members_that_were_trained_on_an_answer_do_not_count():
    scores = Scores([0.0, -3, -3, -3], [0.0, -3, -3, 5])  # the second has memorised the last
    given = answers([1.0, 1.0, 0.0])
    votes = np.array([[True, True, True], [True, True, False]])
    found = AnswerFilter(beta=0.0)(given, FitContext(scores, votes))
    assert found.weight.tolist() == [1, 1, 0]
    found = AnswerFilter(beta=0.0)(given, FitContext(scores, ~votes | seen_by_none(2, 3)))
    assert found.weight.tolist() == [1, 1, 1]  # p is .54 then


def test_who_means_the_opposite_is_believed_by_the_trust_in_them():
    scores = Scores([0.0, -3, -3, -3, -3, -9])
    given = answers([1.0, 1.0, 1.0, 0.0, 0.0])
    votes = seen_by_none(1, 5)
    opposite = FitContext(scores, votes, trust=np.array([1.0, 1, 1, -1, -1]))
    found = AnswerFilter(beta=0.0)(given, opposite)
    assert found.weight.tolist() == [1] * 5
    assert found.preference.tolist() == given.preference.tolist()
    right = replace(given, preference=np.ones(5))  # which is wrong of the last two
    found = AnswerFilter(beta=0.0)(right, opposite)
    assert found.weight.tolist() == [1, 1, 1, 0, 1]
    assert found.preference.tolist() == [1, 1, 1, 1, 0]
    guessing = FitContext(scores, votes, trust=np.array([1.0, 1, 1, 0, 0]))
    assert AnswerFilter()(given, guessing).weight.tolist() == [1] * 5


def test_pseudo_labels_stay_as_they_are():
    scores = Scores([0.0, -3, -3, -3])
    context = FitContext(scores, seen_by_none(1, 2))
    found = AnswerFilter(beta=0.0)(answers([1.0, 1.0, 0.0]), context)
    assert found.weight.tolist() == [1, 1, 1]


def test_nothing_is_left_out_before_the_first_fit_or_by_a_reward_that_knows_too_little():
    given = answers([1.0, 0.0])
    assert AnswerFilter()(given, FitContext(None, seen_by_none(1, 2))) is given
    absurd = Scores([0.0, 2, -2])
    assert AnswerFilter()(given, FitContext(absurd, seen_by_none(1, 2))) is given
    given = answers([1.0, 1.0, 1.0])
    mostly_wrong = Scores([0.0, 3, 3, -3])
    assert AnswerFilter(beta=0.0)(given, FitContext(mostly_wrong, seen_by_none(1, 3))) is given


def test_it_finds_most_wrong_answers_of_many(rng):
    logits = rng.normal(0, 3, 400)
    wrong = rng.random(400) < 0.3
    given = answers((1.0 * ((logits > 0) != wrong)).tolist())
    found = AnswerFilter()(given, FitContext(Scores([0.0, *-logits]), seen_by_none(1, 400)))
    kept = found.weight > 0
    right = found.preference == (logits > 0)
    assert right[kept].mean() > 0.9
    assert kept[~wrong].all()
