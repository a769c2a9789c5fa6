import numpy as np
import pytest

from preferl.errors import ConfigError
from preferl.store.quality.aggregation import combine_answers
from preferl.store.quality.votes import Votes

NAN = np.nan
METHODS = ["mean", "majority", "dawid_skene"]


@pytest.mark.parametrize("method", METHODS)
def test_single_answers_stay_what_they_are(method):
    # query 6 was answered by two people, one of whom could not tell
    votes = Votes.of([9, 4, 6, 6, 7], [0, 1, 0, 1, 1], [0, 0.5, 1, NAN, NAN])
    query, preference, weight = combine_answers(votes, method)
    assert query.tolist() == [4, 6, 7, 9]
    np.testing.assert_array_equal(preference, [0.5, 1, NAN, 0])
    assert weight.tolist() == [1, 1, 0, 1]


def test_the_mean_is_the_same_likelihood_as_every_answer(rng):
    answers = rng.choice([1.0, 0.5, 0.0, NAN], size=(4, 30))
    annotator, query = np.indices(answers.shape).reshape(2, -1)
    _, preference, weight = combine_answers(Votes.of(query, annotator, answers.ravel()))
    likely = rng.uniform(0.1, 0.9, 30)
    listed = answers * np.log(likely) + (1 - answers) * np.log(1 - likely)
    combined = preference * np.log(likely) + (1 - preference) * np.log(1 - likely)
    np.testing.assert_allclose(np.nansum(weight * combined), np.nansum(listed))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([1, 1, 0], 1),
        ([0, 0, 1], 0),
        ([1, 0], 0.5),
        ([0.5, 0.5, 1], 0.5),
        ([1, 1, 0.5], 1),
        ([1, 0.5], 0.5),
        ([1, 1, 0, 0.5], 0.5),
        ([0, NAN, NAN], 0),
    ],
)
def test_majorities(answers, expected):
    people = range(len(answers))
    _, preference, weight = combine_answers(
        Votes.of([3] * len(answers), people, answers), "majority"
    )
    assert (preference.tolist(), weight.tolist()) == ([expected], [1])


@pytest.mark.parametrize("method", METHODS)
def test_repeats_are_no_further_opinion(method):
    votes = Votes.of([0, 0, 5], [0, 1, 0], [1, 1, 0], repeat_of=np.array([-1, -1, 0]))
    query, preference, _ = combine_answers(votes, method)
    assert query.tolist() == [0]
    assert preference[0] > 0.9


def test_what_is_known_overrules_by_dawid_and_skene_only():
    votes = Votes.of([0, 1, 1], [0, 0, 1], [0, 0, 0], known=np.array([1.0, 1, 1]))
    assert combine_answers(votes, "dawid_skene")[1].tolist() == [1, 1]
    assert combine_answers(votes, "majority")[1].tolist() == [0, 0]


@pytest.mark.parametrize("method", METHODS)
def test_no_votes(method):
    assert [len(part) for part in combine_answers(Votes.of([], [], []), method)] == [0, 0, 0]


def test_each_answer_by_itself():
    answers = [4, 0, 4, 5, 0], [0, 1, 1, 0, 0], [1, 0, 0.5, 1, NAN]
    votes = Votes.of(*answers, repeat_of=np.array([-1, -1, -1, 4, -1]))
    query, preference, weight = combine_answers(votes, "each")
    assert query.tolist() == [4, 0, 4, 0]
    np.testing.assert_array_equal(preference, [1, 0, 0.5, NAN])
    assert weight.tolist() == [1, 1, 1, 0]


def test_an_unknown_method():
    with pytest.raises(ConfigError, match="method: expected one of mean, majority, dawid_skene"):
        combine_answers(Votes.of([], [], []), "median")
