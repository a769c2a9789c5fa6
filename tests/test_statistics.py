import math

import numpy as np
import pytest
import scipy

from preferl.statistics import (
    bootstrap_interval,
    interquartile_mean,
    mean_interval,
    pearson,
    share_interval,
    sign_test,
    spearman,
    t_quantile,
    wilson_interval,
)


@pytest.mark.parametrize(("successes", "trials"), [(0, 5), (5, 5), (37, 50), (1, 1)])
def test_wilson_like_scipy(successes, trials):
    expected = scipy.stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert wilson_interval(successes, trials) == pytest.approx((expected.low, expected.high))


def test_wilson_without_trials_knows_nothing():
    assert wilson_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("successes", "trials"), [(0, 0), (0, 1), (3, 6), (120, 300), (181, 300), (1000, 2300)]
)
def test_sign_test_like_scipy(successes, trials):
    expected = scipy.stats.binomtest(successes, trials).pvalue if trials else 1.0
    assert sign_test(successes, trials) == pytest.approx(expected, rel=1e-9)


def test_spearman_like_scipy_with_many_ties(rng):
    first = rng.integers(5, size=200).astype(float)
    second = first + rng.integers(5, size=200)
    expected = scipy.stats.spearmanr(first, second).statistic
    assert spearman(first, second) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9])
def test_a_constant_column_has_no_correlation(constant, rng):
    assert math.isnan(pearson(np.full(1000, constant), rng.normal(size=1000)))
    assert math.isnan(spearman(rng.normal(size=1000), np.full(1000, constant)))


def test_a_column_with_a_hole_has_no_correlation(rng):
    column = np.append(rng.normal(size=5), np.nan)
    assert math.isnan(pearson(column, np.arange(6.0)))
    assert math.isnan(spearman(np.arange(6.0), column))


def test_tiny_numbers_still_correlate(rng):
    column = rng.normal(size=50)
    assert pearson(column * 1e-30, column) == pytest.approx(1)
    assert pearson(column + 1e6, -column) == pytest.approx(-1)


def test_bootstrap_holds_the_mean_and_shrinks(rng):
    few = rng.normal(size=10)
    many = rng.normal(size=1000)
    low, high = bootstrap_interval(few, rng)
    assert low < few.mean() < high
    narrow = bootstrap_interval(many, rng)
    # the mean of 1000 normal numbers: 1.96 / sqrt(1000) to either side
    assert narrow[1] - narrow[0] == pytest.approx(2 * 1.96 / math.sqrt(1000), rel=0.15)
    assert bootstrap_interval(np.array([3.0]), rng) == (3.0, 3.0)


@pytest.mark.parametrize("count", [2, 3, 5, 30])
def test_intervals_of_means_like_scipy(count, rng):
    values = rng.normal(3.0, 2.0, count)
    expected = scipy.stats.t.interval(0.95, count - 1, values.mean(), scipy.stats.sem(values))
    half = (expected[1] - expected[0]) / 2
    assert mean_interval(values) == pytest.approx(expected, abs=1e-6 * half)


def test_a_single_run_shows_no_spread():
    assert mean_interval(np.array([3.0])) is None


def test_the_interquartile_mean_is_scipy_s_trimmed_one(rng):
    for count in range(1, 12):
        values = rng.normal(size=(3, count))
        expected = scipy.stats.trim_mean(values, 0.25, axis=-1)
        np.testing.assert_allclose(interquartile_mean(values), expected)


def test_an_interval_of_the_interquartile_mean_ignores_a_run_that_failed(
    rng,
):
    values = np.append(rng.normal(size=40), -1e6)
    low, high = bootstrap_interval(values, rng, statistic=interquartile_mean)
    assert -1 < low < interquartile_mean(values) < high < 1
    assert bootstrap_interval(values, rng)[0] < -1e4


def test_intervals_of_shares_stay_in_their_range_and_hold_the_mean():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        trials = int(rng.integers(1, 60))
        shares = rng.binomial(trials, rng.choice([0.0, 0.03, 0.5, 0.97, 1.0], size=4)) / trials
        shares = shares[: int(rng.integers(1, 5))]
        low, high = share_interval(shares, trials)
        assert 0 <= low <= shares.mean() <= high <= 1
        assert low < high


def test_shares_that_differ_as_their_trials_explain_are_pooled():
    alike = np.array([0.5, 0.5, 0.5])
    assert share_interval(alike, 20) == pytest.approx(wilson_interval(30, 60))
    apart = np.array([0.1, 0.5, 0.9])
    low, high = share_interval(apart, 20)
    wide = wilson_interval(30, 60)
    assert low < wide[0]
    assert high > wide[1]
    # By hand: the mean's variance is 0.16 / 3, which 0.25 / n has for n = 4.6875.
    assert (low, high) == pytest.approx(wilson_interval(4.6875 / 2, 4.6875, t_quantile(2)))
