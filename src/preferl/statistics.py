"""Intervals, tests and correlations of few numbers."""

import math
from collections.abc import Callable

import numpy as np

from preferl.shapes import FloatArray

NORMAL_95 = 1.959963984540054
"""A normal distribution has 95 % of its mass within this many standard deviations."""


def wilson_interval(successes: float, trials: float, z: float = NORMAL_95) -> tuple[float, float]:
    """Return Wilson's interval (1927) of a share. It also holds near 0 and 1, and for few trials.

    Args:
        successes: number of successes; halves are allowed.
        trials: number of trials. If it is 0, the interval is all of [0, 1].
        z: standard deviations to either side; 95 % by default.

    >>> [round(end, 3) for end in wilson_interval(8, 10)]
    [0.49, 0.943]
    """
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    shrink = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # Rounding must not put a share of 0 or 1 outside its interval.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def share_interval(shares: FloatArray, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean share of `[S]` runs, each of `trials` trials.

    The interval stays within [0, 1]. It is Wilson's interval with an effective number of trials,
    chosen so that the share of that many trials would vary as the mean of the runs does (Korn and
    Graubard 1998). If runs differ by more than chance within them explains, the effective number is
    smaller than the real one, and Student's t replaces the normal distribution. A single run does
    not show how runs differ.

    >>> [round(end, 2) for end in share_interval(np.array([1.0, 0.8, 1.0]), 20)]
    [0.38, 1.0]
    >>> [round(end, 2) for end in share_interval(np.array([1.0, 1.0, 1.0]), 20)]
    [0.94, 1.0]
    """
    runs = len(shares)
    mean = float(np.mean(shares))
    variance = float(np.var(shares, ddof=1)) / runs if runs > 1 else 0.0
    explained = mean * (1 - mean) / (runs * trials)
    if variance <= explained:
        return wilson_interval(mean * runs * trials, runs * trials)
    effective = mean * (1 - mean) / variance
    return wilson_interval(mean * effective, effective, t_quantile(runs - 1))


FEWEST_IN_PERCENT = 10
"""Fewest trials whose share is given in per cent; with fewer, one trial changes it by over 10 %."""


def share_in_words(share: float, interval: tuple[float, float], count: int, trials: str) -> str:
    """Return a share and its 95 % interval in words, for reports and terminals.

    For fewer than `FEWEST_IN_PERCENT` trials, this is a count, and a warning instead of an
    interval.

    >>> share_in_words(0.8, wilson_interval(8, 10), 10, "out-of-bag answers")
    '80 % of 10 out-of-bag answers (95 % interval 49 to 94 %)'
    >>> share_in_words(0.0, wilson_interval(0, 3), 3, "held-out answers")
    '0 of 3 held-out answers (so few show nothing)'
    """
    if count < FEWEST_IN_PERCENT:
        return f"{share * count:g} of {count} {trials} (so few show nothing)"
    low, high = (f"{100 * end:.0f}" for end in interval)
    return f"{100 * share:.0f} % of {count:,} {trials} (95 % interval {low} to {high} %)"


def sign_test(successes: int, trials: int) -> float:
    """Return the exact two-sided p-value of `successes` in `trials` if both outcomes are even.

    >>> [round(sign_test(*counts), 6) for counts in [(0, 5), (3, 6), (0, 0)]]
    [0.0625, 1.0, 1.0]
    """
    from scipy.special import bdtr

    # If exactly half are successes, both tails contain this case.
    return min(1.0, 2 * float(bdtr(min(successes, trials - successes), trials, 0.5)))


def interquartile_mean(values: FloatArray) -> FloatArray:
    """Return the mean over the last axis without its lowest and highest quarter, rounded down.

    A failed run changes it less than it changes the mean, and it needs fewer runs than the median
    (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice").

    >>> float(interquartile_mean(np.array([9.0, 1.0, 2.0, 3.0, -90.0])))
    2.0
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(-1))


def bootstrap_interval(
    values: FloatArray,
    rng: np.random.Generator,
    *,
    resamples: int = 2000,
    statistic: Callable[[FloatArray], FloatArray] | None = None,
) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval (Efron 1979), which needs no normal values.

    Args:
        values: `[K]`, at least one. For a single value, both ends are that value.
        rng: generator that draws the resamples.
        resamples: how many; with 2,000, the ends vary by a few hundredths of a standard deviation.
        statistic: function over the last axis of `[resamples, K]`; the mean by default.
    """
    rows = rng.integers(len(values), size=(resamples, len(values)))
    resampled = np.asarray(values, np.float64)[rows]
    estimates = resampled.mean(-1) if statistic is None else statistic(resampled)
    low, high = np.quantile(estimates, [0.025, 0.975])
    return float(low), float(high)


def t_quantile(freedom: float) -> float:
    """Return Student's t at 97.5 %. The degrees of `freedom` may be fractions, from 1 on.

    >>> [round(t_quantile(freedom), 3) for freedom in (1, 4, 1e9)]
    [12.706, 2.776, 1.96]
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def mean_interval(values: FloatArray) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of `[S]` runs by Student's t; None for a single run.

    It assumes that values are normal, which so few runs cannot disprove.

    >>> [round(end, 2) for end in mean_interval(np.array([1.0, 2.0, 3.0, 4.0]))]
    [0.45, 4.55]
    """
    freedom = len(values) - 1
    if freedom < 1:
        return None
    half = t_quantile(freedom) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    mean = float(np.mean(values))
    return mean - half, mean + half


def pearson(first: FloatArray, second: FloatArray) -> float:
    """Linear correlation of two `[T]` columns; NaN if one of them is constant or contains NaN."""
    columns = [np.asarray(column, np.float64) for column in (first, second)]
    a, b = (column - column.mean() for column in columns)
    for column, centred in zip(columns, (a, b), strict=True):
        # If a constant column differs from its mean, this is rounding, not variation.
        noise = len(column) * np.finfo(np.float64).eps ** 2 * np.mean(np.square(column))
        if float(centred @ centred) <= 100 * noise:
            return math.nan
    return float(np.clip(float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)), -1, 1))


def spearman(first: FloatArray, second: FloatArray) -> float:
    """Correlation of ranks, with ties averaged (Spearman 1904); NaN in the cases of `pearson`.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 27.0]))
    1.0
    """
    if np.isnan(first).any() or np.isnan(second).any():
        return math.nan
    ranks = []
    for values in (first, second):
        _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[group])
    return pearson(*ranks)
