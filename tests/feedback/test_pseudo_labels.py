"""Pseudo-labels: which pairs get one, its preference and its weight."""

import numpy as np
import pytest

from helpers.clips import at
from preferl.data import Comparisons, Episodes
from preferl.feedback import FitContext, Likelihood, PseudoLabels
from preferl.feedback.step_rewards import PerStep

VALUES = np.array([0.0, 10.0, 0.1])  # of the only steps that there are


class Sums:
    """Two members, of which one sees everything twice as large."""

    context = 1
    members = 2
    likelihood = Likelihood(noise=0.3, scale=0.5)

    def __call__(self, observations, actions, mask):
        return observations[:, -1, 0]

    def scores(self, segments):
        place = segments.observations[segments.start, 0]
        return np.stack([place, 2 * place])


def experience():
    steps = np.tile(VALUES, 20)[:, None]
    ended = np.zeros(60, bool)
    return Episodes(steps, steps, steps[:, 0], ended, steps[:1], np.array([60]))


def answers(annotator=None):
    pairs = np.array([[0, 1], [1, 0]])
    return Comparisons.of(at(5, 7), pairs, np.array([1.0, 0.5]), np.array([3.0, 1.0]), annotator)


def context(**parts):
    parts = {"reward": Sums(), "experience": experience(), "segment_length": 1} | parts
    return FitContext(**parts)


def test_sure_pairs_are_labelled_with_the_better_clip_and_the_rest_is_left():
    # Log-odds of 0 and 10: 5 and 10 by the two members, after the scale, so that p is .9967;
    # of 0 and 0.1: 0.05 and 0.1, p = .519; of 0.1 and 10: 4.95 and 9.9, p = .9965.
    given = answers()
    found = PseudoLabels(confidence=0.99, ratio=50, weight=2.0)(given, context())
    np.testing.assert_array_equal(found.pairs[:2], given.pairs)
    np.testing.assert_array_equal(found.weight[:2], [3, 1])
    extra = found[2:]
    places = extra.segments.observations[extra.segments.start[extra.pairs], 0]  # [P, 2]
    assert 0 < len(extra) < 100
    assert (places.max(1) == 10).all()
    assert (places.min(1) < 10).all()
    np.testing.assert_array_equal(extra.preference, places[:, 0] == 10)
    np.testing.assert_array_equal(extra.weight, 2.0 / 50)
    assert len(PseudoLabels(confidence=0.997, ratio=50)(given, context())) == 2
    assert len(PseudoLabels(confidence=0.5, ratio=2)(given, context())) == 2 + 4


def test_they_are_nobodys_answers():
    found = PseudoLabels(ratio=50)(answers(np.array([0, 3])), context())
    assert found.annotator[:2].tolist() == [0, 3]
    assert set(found.annotator[2:].tolist()) == {-1}


@pytest.mark.parametrize("lacking", [{"reward": None}, {"experience": None}])
def test_before_the_first_fit_there_are_none(lacking):
    given = answers()
    assert PseudoLabels()(given, context(**lacking)) is given


def test_a_control_in_place_of_a_reward_gives_some():
    assert len(PseudoLabels(ratio=50)(answers(), context(reward=PerStep()))) > 2
