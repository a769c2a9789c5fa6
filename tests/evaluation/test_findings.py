"""Findings by numbers from a hand: what is found, what just is not, and what they say."""

import numpy as np
import pytest

from helpers.clips import at
from preferl.data import Comparisons
from preferl.evaluation.findings import Course, findings, ties_and_contradictions
from preferl.feedback import InstantFeedback

LENGTH = 6


def course(*, total=600.0, **columns):
    """Six iterations of 100 steps, in each of which ten answers come; the rest is unknown."""
    known = {"steps": 100.0 * np.arange(1, 7), "answers": 10.0 * np.arange(1, 7)}
    for name, values in columns.items():
        known[name] = np.full(LENGTH, np.nan)
        known[name][-len(values) :] = values
    unknown = np.full(LENGTH, np.nan)
    return Course(*(known.get(name, unknown) for name in Course._fields[:-1]), total=total)


def evaluated(*means, within=5.0, **columns):
    values = np.array(means, float)
    return course(true_return=values, low=values - within, high=values + within, **columns)


def names(of):
    return [one.name for one in findings(of)]


def only(of):
    (one,) = findings(of)
    assert one.tries
    assert f"(1) {one.tries[0]}" in one.in_words
    return one


def test_a_run_without_numbers_has_no_findings():
    assert names(course()) == []
    assert names(Course(*np.empty((12, 0)), total=100.0)) == []


@pytest.mark.parametrize(
    ("right", "decided", "found"),
    [
        (32, 60, True),  # 41 to 65 %
        (45, 60, False),  # 63 to 84 %
        (15, 60, False),  # worse than chance, which is no guessing
        (31, 59, False),  # too few to tell
        (540, 1000, False),  # 50.9 to 57.1 %
        (530, 1000, True),  # 49.9 to 56.1 %
    ],
)
def test_an_accuracy_whose_interval_has_one_half_is_chance(right, decided, found):
    one = course(accuracy=[0.9, right / decided], decided=[90, decided])
    assert names(one) == ["at_chance"] * found


def test_chance_takes_two_fits_and_the_newest_counts():
    assert names(course(accuracy=[32 / 60], decided=[60])) == []
    recovered = course(accuracy=[32 / 60, 32 / 60, 45 / 60], decided=[60, 60, 60])
    assert names(recovered) == []
    no_fit_at_the_end = course(accuracy=[0.9, 32 / 60, np.nan], decided=[60, 60, 0])
    found = only(no_fit_at_the_end)
    assert "53 % of 60 answers that it was not fitted to (95 % interval 41 to 65 %)" in found.text
    causes = ["at random, or the wrong way round", "too short", "observations may lack", "epochs"]
    assert all(cause in tried for cause, tried in zip(causes, found.tries, strict=True))


def test_a_return_that_falls_twice_under_an_accurate_reward_is_parting():
    found = only(evaluated(-100, -150, -200, accuracy=[0.9, 0.91, 0.92]))
    assert found.name == "parting"
    assert "fell from -100.0 at 400 steps to -200.0 at 600 steps" in found.text
    assert "predicts 92 % of unseen answers" in found.text
    between = evaluated(-100, np.nan, -150, np.nan, -200, accuracy=[0.9])
    assert names(between) == []  # accurate only at the end
    assert names(between._replace(accuracy=np.array([0.9] + 5 * [np.nan]))) == ["parting"]


@pytest.mark.parametrize(
    ("means", "accuracy"),
    [
        ((-100, -150, -200), 0.84),  # the reward is not that accurate
        ((-100, -150, -140), 0.9),  # one fall
        ((-100, -104, -108), 0.9),  # within the intervals: 108 - 5 < 100 + 5
        ((-100, -150, -200, -97), 0.9),  # it came back
        ((-100, -200), 0.9),
    ],
)
def test_returns_that_do_not_part_from_the_reward(means, accuracy):
    assert names(evaluated(*means, accuracy=LENGTH * [accuracy])) == []


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ((10, 20, 30, 40, 50, 50), False),  # a sixth without any
        ((10, 20, 30, 40, 40, 40), True),  # exactly a third
        ((10, 20, 30, 40, 39, 38), True),  # withdrawn ones are not new
        ((10, 20, 20, 20, 20, 30), False),  # they came again
        ((0, 0, 0, 0, 0, 0), True),
        ((10, 20, 30, 30, 30, np.nan), False),  # the oldest are dropped
    ],
)
def test_answers_that_end_before_the_last_third_are_exhausted(answers, found):
    asked = {"answers": answers, "ties": LENGTH * [0.1]}
    assert names(course(**asked)) == ["exhausted"] * found
    assert names(course(**asked, total=6_000.0)) == []  # the run is long yet


@pytest.mark.parametrize(
    ("ties", "found"),
    [
        ((0.1, 0.1, 0.1, 0.1, 0.1, np.nan), True),  # one round of queries without an answer
        ((0.1, 0.1, 0.1, 0.1, np.nan, np.nan), False),  # the plan ends there
    ],
)
def test_answers_end_on_purpose_where_no_more_queries_are_planned(ties, found):
    one = course(answers=(10, 20, 30, 40, 40, 40), ties=ties)
    assert names(one) == ["exhausted"] * found


def test_a_warm_start_without_queries_is_not_exhausted():
    assert names(course(answers=LENGTH * [40])) == []


def test_noise_and_pairs_that_were_answered_both_ways_are_contradictory():
    assert names(course(noise=[0.3], contradicted=[0.25])) == []
    assert "takes 31 % of the answers to be random" in only(course(noise=[0.31])).text
    found = only(course(contradicted=[0.4, np.nan]))
    assert found.name == "contradictory"
    assert "40 % of the pairs with several answers were answered both ways" in found.text


def test_clips_that_nobody_can_tell_apart_are_too_alike():
    both = findings(course(query_entropy=[0.65], noise=[0.4]))
    assert [one.name for one in both] == ["contradictory", "too_alike"]
    assert "entropy of 0.65 nats" in both[1].text
    assert names(course(query_entropy=[0.6], noise=[0.4])) == ["contradictory"]
    assert names(course(query_entropy=[0.65], noise=[0.3])) == []
    assert "51 % of the answers are ties" in only(course(ties=[0.51])).text
    assert names(course(ties=[0.5])) == []
    few = np.arange(1.0, 7.0)  # a few ties at the start mean nothing
    assert names(course(ties=[0.9], answers=few)) == []


def test_evaluations_that_stay_where_members_agree_are_stuck():
    found = only(evaluated(-100, -104, -93, -99, query_deviation=[0.1]))
    assert found.name == "stuck"
    assert "4 evaluations, from -100.0 to -99.0" in found.text
    assert "deviate by 0.10" in found.text


@pytest.mark.parametrize(
    ("means", "deviation"),
    [
        ((-100, -104, -93, -99), 0.3),  # the members do not agree
        ((-100, -104, -93, -99), np.nan),  # nobody knows
        ((-100, -104, -93), 0.1),  # too few evaluations
        ((-100, -104, -93, -80), 0.1),  # 80 - 5 is above 100 + 5
        ((-100, -104, -120, -99), 0.1),
    ],
)
def test_runs_that_are_not_stuck(means, deviation):
    assert names(evaluated(*means, query_deviation=[deviation])) == []


def test_a_return_that_is_always_nought_is_no_return():
    assert names(evaluated(0, 0, 0, 0, within=0.0, query_deviation=[0.1])) == []


def comparisons(pairs, preference):
    return Comparisons.of(at(0, 1, 2, 3), np.array(pairs), np.array(preference))


def test_ties_and_contradictions_are_counted():
    found = ties_and_contradictions(
        comparisons(
            [[0, 1], [1, 0], [2, 3], [3, 2], [0, 2], [0, 3], [0, 3], [1, 3]],
            # 0 over 1, 1 over 0; 2 over 3 twice; asked once; tie and decided; declined
            [1.0, 1.0, 1.0, 0.0, 0.0, 0.5, 1.0, np.nan],
        )
    )
    assert found == (1 / 7, 1 / 2)


def test_a_pair_that_is_asked_in_two_rounds_is_the_same():
    feedback = InstantFeedback(lambda shown, _: np.ones(len(shown)), 0)
    for pair in ([0, 1], [1, 0], [2, 3], [2, 3]):
        feedback.ask(at(1, 2, 3, 4), np.array([pair]))
    twice = feedback.comparisons()
    assert len(twice.segments) == 8, "each round has clips of its own"
    assert ties_and_contradictions(twice) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("given", "ties"),
    [
        (None, np.nan),
        (comparisons([[0, 1]], [np.nan]), np.nan),
        (comparisons([[0, 1], [0, 1]], [0.5, 0.5]), 1.0),
        (comparisons([[0, 1], [2, 3]], [1.0, 0.0]), 0.0),
    ],
    ids=["none", "declined", "ties", "single"],
)
def test_without_pairs_that_were_answered_twice_none_contradict(given, ties):
    np.testing.assert_array_equal(ties_and_contradictions(given), (ties, np.nan))
