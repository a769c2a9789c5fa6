import math
from dataclasses import dataclass

import numpy as np
import pytest

from preferl.data import Comparisons, Episodes, Segments
from preferl.evaluation import evaluate_reward, negated, oracle, zero
from preferl.feedback import Likelihood
from preferl.shapes import FloatArray
from preferl.statistics import wilson_interval


@dataclass
class Scored:
    """A reward whose scores are given."""

    table: FloatArray  # [E, N]
    context: int = 1

    @property
    def members(self):
        return len(self.table)

    def __call__(self, observations, actions, mask):
        return np.asarray(actions[:, -1, 0])

    def scores(self, segments):
        return self.table


class Noisy(Scored):
    """The same, fitted with a noise floor and a scale."""

    likelihood = Likelihood(0.2, 2.0)


def comparisons(preference, count=4):
    block = np.zeros((count, 1))
    segments = Segments(
        block, block, np.arange(count, dtype=float), np.arange(count), np.ones(count, int), 1
    )
    pairs = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2], [1, 3]])[: len(preference)]
    return Comparisons(segments, pairs, np.array(preference), np.ones(len(preference)))


def logit(p):
    return math.log(p / (1 - p))


def test_counts_accuracy_and_interval_by_hand():
    reward = Scored(np.array([[3.0, 2.0, 2.0, 9.0]]))
    # sides: first, undecided, second, first; answers: right, -, wrong; tie; declined
    report = evaluate_reward(reward, comparisons([1.0, 0.0, 0.9, 0.5, np.nan]))
    assert (report.decided, report.ties, report.declined) == (3, 1, 1)
    assert report.accuracy == pytest.approx((1 + 0.5 + 0) / 3)
    assert report.interval == pytest.approx(wilson_interval(1.5, 3))


def test_log_loss_is_of_the_mean_probability_in_nats():
    table = np.array([[logit(0.9), 0.0], [logit(0.5), 0.0]])
    report = evaluate_reward(Scored(table), comparisons([1.0], count=2))
    assert report.log_loss == pytest.approx(-math.log(0.7))
    with_tie = np.array([[0.0, 0.0, logit(0.9)], [0.0, 0.0, logit(0.5)]])
    tie = evaluate_reward(Scored(with_tie), comparisons([1.0, 0.5], count=3))
    losses = math.log(2), -0.5 * math.log(0.7) - 0.5 * math.log(0.3)
    assert tie.log_loss == pytest.approx(sum(losses) / 2)


def test_log_loss_of_the_absurd_is_exact_and_finite():
    report = evaluate_reward(Scored(np.array([[0.0, 5000.0]])), comparisons([1.0], count=2))
    assert report.log_loss == pytest.approx(5000)


def test_probabilities_are_those_of_the_likelihood_that_was_fitted():
    fitted = Noisy(np.array([[logit(0.9), 0.0], [logit(0.5), 0.0]]))
    report = evaluate_reward(fitted, comparisons([1.0], count=2))
    # member one: 0.1 + 0.8 * sigmoid(2 * logit(0.9)) = 0.1 + 0.8 * 81/82; member two: a half
    first = (0.1 + 0.8 * 81 / 82 + 0.5) / 2
    assert report.log_loss == pytest.approx(-math.log(first))
    assert report.calibration.predicted == pytest.approx((first,))
    assert report.likelihood == Likelihood(0.2, 2.0)
    opposite = evaluate_reward(negated(fitted), comparisons([1.0], count=2))
    assert opposite.log_loss == pytest.approx(-math.log(1 - first))
    own = evaluate_reward(fitted, comparisons([1.0], count=2), likelihood=Likelihood())
    assert own.log_loss == pytest.approx(-math.log(0.7))


def test_calibration_by_hand():
    scores = np.array([[logit(0.9), 0.0, -logit(0.8), 0.0]])
    # P(first): pair 01 .9, 12 .8, 23 .2, 30 .1
    report = evaluate_reward(Scored(scores), comparisons([1.0, 0.0, 0.5, 0.0]), bins=2)
    calibration = report.calibration
    assert calibration.predicted == pytest.approx((0.15, 0.85))
    assert calibration.observed == pytest.approx((0.25, 0.5))
    assert calibration.count == (2, 2)
    assert calibration.error == pytest.approx((0.10 + 0.35) / 2)


def test_certainty_falls_into_the_last_bin():
    report = evaluate_reward(Scored(np.array([[1000.0, 0.0]])), comparisons([1.0], count=2))
    assert report.calibration.predicted == (1.0,)
    assert report.calibration.error == 0


def test_controls_come_out_as_they_should():
    answers = comparisons([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])  # more of the recorded reward
    assert evaluate_reward(oracle(), answers).accuracy == 1
    assert evaluate_reward(negated(oracle()), answers).accuracy == 0
    chance = evaluate_reward(zero(), answers)
    assert chance.accuracy == 0.5
    assert chance.log_loss == pytest.approx(math.log(2))


def test_members_that_cancel_are_undecided():
    table = np.array([[0.3, 0.1, 0.0, 0.0], [0.1, 0.3, 0.0, 0.0]])
    assert evaluate_reward(Scored(table), comparisons([1.0])).accuracy == 0.5


@pytest.mark.parametrize(
    ("given", "ties", "note"), [([np.nan], 0, "no episodes"), ([0.5, 0.5], 2, "is decided")]
)
def test_without_decided_answers_nothing_is_claimed(given, ties, note):
    report = evaluate_reward(oracle(), comparisons(given))
    assert (report.decided, report.ties, report.interval) == (0, ties, (0.0, 1.0))
    assert (report.accuracy, report.log_loss, report.calibration.error) == (None, None, None)
    assert report.calibration.count == ()
    assert note in " ".join(report.notes)


@pytest.fixture
def episodes(rng):
    block = rng.normal(size=(200, 1))
    actions = rng.normal(size=(200, 1))
    return Episodes(
        block, actions, actions[:, 0] ** 3, np.zeros(200, bool), block[:1], np.array([200])
    )


def cube(s, a, following):
    return np.asarray(a[:, 0] ** 3)


def test_truth_is_compared_in_ranks_and_by_epic(episodes):
    reward = Scored(np.zeros((1, 4)))
    report = evaluate_reward(
        reward, comparisons([1.0]), episodes=episodes, true_reward=cube, seed=1
    )
    assert report.spearman == pytest.approx(1)
    assert report.epic is not None
    # the correlation of a and a^3 for normal a is sqrt(3/5)
    assert report.epic == pytest.approx(math.sqrt((1 - math.sqrt(0.6)) / 2), abs=0.05)
    assert report.notes == ()


def test_what_cannot_be_computed_is_none_and_reported(episodes):
    lookback = Scored(np.zeros((1, 4)), context=5)
    history = evaluate_reward(lookback, comparisons([1.0]), episodes=episodes, true_reward=cube)
    assert history.spearman is not None
    assert history.epic is None
    assert "5 steps" in history.notes[0]
    unknown = evaluate_reward(zero(), comparisons([1.0]), episodes=episodes)
    assert (unknown.spearman, unknown.epic) == (None, None)
    assert len(unknown.notes) == 2
    constant = evaluate_reward(zero(), comparisons([1.0]), episodes=episodes, true_reward=cube)
    assert constant.epic is None
