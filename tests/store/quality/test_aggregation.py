import time

import numpy as np
import pytest

from preferl.errors import ConfigError
from preferl.store.quality.aggregation import DawidSkeneConfig, combine_answers, fit_dawid_skene
from preferl.store.quality.votes import Votes
from preferl.testing import CrowdConfig, simulate_crowd

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


def plain_em(table, steps, weight, accuracy):
    """`[Q, 3]` posteriors of a full `[A, Q]` table of categories, by loops over everything."""
    people, queries = table.shape
    posterior = np.array(
        [[np.mean(table[:, q] == truth) for truth in range(3)] for q in range(queries)]
    )
    posterior = (posterior + 1e-3) / (posterior + 1e-3).sum(1, keepdims=True)
    for _ in range(steps):
        confusion = np.zeros((people, 3, 3))
        for a in range(people):
            for truth in range(3):
                for answer in range(3):
                    prior = weight * (accuracy if truth == answer else (1 - accuracy) / 2)
                    confusion[a, truth, answer] = prior + sum(
                        (
                            posterior[q, truth] * (table[a, q] == answer)
                            + posterior[q, 2 - truth] * (table[a, q] == 2 - answer)
                        )
                        / 2
                        for q in range(queries)
                    )
                confusion[a, truth] /= confusion[a, truth].sum()
        common = (posterior + posterior[:, ::-1]).mean(0) / 2
        for q in range(queries):
            for truth in range(3):
                posterior[q, truth] = common[truth] * np.prod(
                    [confusion[a, truth, table[a, q]] for a in range(people)]
                )
            posterior[q] /= posterior[q].sum()
    return posterior


def test_expectation_maximisation_is_that_of_plain_loops(rng):
    table = rng.integers(3, size=(4, 12))
    table[1:3] = np.where(rng.random((2, 12)) < 0.7, table[0], table[1:3])
    annotator, query = np.indices(table.shape).reshape(2, -1)
    votes = Votes.of(query, annotator, 1 - table.ravel() / 2)
    for steps in (1, 3, 10):
        config = DawidSkeneConfig(iterations=steps, tolerance=0)
        posterior = fit_dawid_skene(votes, config).posterior
        np.testing.assert_allclose(posterior, plain_em(table, steps, 4, 0.8), atol=1e-9)


def test_accuracies_are_found_again():
    careless = np.array([0, 0, 0.2, 0.5, 0.9])
    config = CrowdConfig(answers=1000, difference=50, known_share=0, repeat_share=0)
    crowd = simulate_crowd(careless, np.random.default_rng(1), config)
    # at so large differences care makes no mistakes, and chance is right half of the time
    right = crowd.votes.preference == crowd.truth[crowd.votes.query]
    shares = np.bincount(crowd.votes.annotator, right) / np.bincount(crowd.votes.annotator)
    fit = fit_dawid_skene(crowd.votes)
    np.testing.assert_allclose(fit.accuracy, shares, atol=0.02)
    np.testing.assert_allclose(fit.accuracy, 1 - careless / 2, atol=0.045)


def test_reliability_beats_counting_heads_in_a_mixed_crowd():
    gains = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        careless = np.array([0, 0, 0.2, 0.8, 0.9])
        crowd = simulate_crowd(careless, rng, CrowdConfig(known_share=0, tie_width=0.5))
        right = {}
        for method in ("majority", "dawid_skene"):
            query, preference, _ = combine_answers(crowd.votes, method)
            right[method] = np.mean(np.abs(preference - crowd.truth[query]) < 0.5)
        gains.append(right["dawid_skene"] - right["majority"])
    assert min(gains) > 0
    assert np.mean(gains) > 0.03


def test_what_is_known_decides_and_teaches():
    # two against one, but the two are wrong on every query that is known
    query = np.repeat(np.arange(9), 3)
    preference = np.tile([0.0, 0.0, 1.0], 9)
    known = np.where(query < 8, 1.0, NAN)
    fit = fit_dawid_skene(Votes.of(query, np.tile([0, 1, 2], 9), preference, known=known))
    np.testing.assert_array_equal(fit.preference[:8], 1)
    assert fit.preference[8] > 0.9
    # nine answers each beside a prior of four per side: (0.8 * 8 + 9) / 17 and 0.8 * 8 / 17
    assert fit.accuracy[2] == pytest.approx(15.4 / 17, abs=0.01)
    assert fit.accuracy[0] == pytest.approx(6.4 / 17, abs=0.01)
    blind = fit_dawid_skene(Votes.of(query, np.tile([0, 1, 2], 9), preference))
    assert blind.preference[8] < 0.1


def test_ties_are_a_truth_only_where_someone_saw_one():
    split = Votes.of([0, 0, 1, 1], [0, 1, 0, 1], [1, 0, 1, 1])
    fit = fit_dawid_skene(split)
    assert (fit.posterior[:, 1] == 0).all()
    assert fit.preference[0] == pytest.approx(0.5)
    tied = fit_dawid_skene(Votes.of([0, 0, 1, 1], [0, 1, 0, 1], [0.5, 0.5, 1, 1]))
    assert tied.posterior[0].argmax() == 1
    assert tied.preference[0] == pytest.approx(0.5)


def test_others_do_not_include_oneself():
    votes = Votes.of(
        [0, 0, 0, 1, 1, 2, 3],
        [0, 1, 2, 0, 1, 0, 0],
        [1, 1, 0, 1, NAN, 1, 1],
        repeat_of=np.array([-1] * 6 + [0]),
    )
    fit = fit_dawid_skene(votes)
    others = fit.preference_of_others(votes)
    assert np.isnan(others[3:]).all()  # alone, cannot tell, alone, a repeat
    odds = fit.confusion[:, 0, 0] / fit.confusion[:, 0, 2]  # of being right
    expected = odds[0] * odds[1] / (1 + odds[0] * odds[1])
    assert others[2] == pytest.approx(expected)
    assert others[0] == pytest.approx(odds[1] / (odds[1] + odds[2]))


def test_nothing_to_learn_from():
    fit = fit_dawid_skene(Votes.of([0], [0], [NAN]))
    assert fit.posterior.shape == (0, 3)
    assert fit.accuracy.tolist() == pytest.approx([0.8])


def test_many_queries_cost_what_their_kinds_of_answers_cost(rng):
    """Queries that the same people answered alike are fitted as one."""
    query = np.repeat(np.arange(30_000), 3)
    annotator = (np.arange(90_000) + query) % 5
    votes = Votes.of(query, annotator, rng.integers(2, size=90_000).astype(float))
    began = time.process_time()
    fit = fit_dawid_skene(votes)
    assert time.process_time() - began < 2  # of the processor; over 4 without
    assert fit.converged
    assert len(fit.posterior) == 30_000
