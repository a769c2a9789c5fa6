"""Intervals and correlations, in numpy alone."""

import math

import numpy as np

from preferl.shapes import FloatArray

NORMAL_95 = 1.959963984540054
"""Standard deviations that hold 95 % of a normal distribution."""


def wilson_interval(successes: float, trials: int, z: float = NORMAL_95) -> tuple[float, float]:
    """Interval of a share (Wilson 1927); honest near 0 and 1 and for few trials.

    Args:
        successes: how often it happened; halves are allowed.
        trials: how often it could have. Without any, the interval is all of [0, 1].
        z: standard deviations to either side; 95 % by default.

    >>> [round(end, 3) for end in wilson_interval(8, 10)]
    [0.49, 0.943]
    """
    if trials == 0:
        return 0.0, 1.0
    share, shrink = successes / trials, 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # A share of 0 or 1 is inside its interval, whatever rounding says.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def sign_test(successes: int, trials: int) -> float:
    """Two-sided p-value of `successes` among `trials` if each were as likely as not, exact.

    >>> [round(sign_test(*counts), 6) for counts in [(0, 5), (3, 6), (0, 0)]]
    [0.0625, 1.0, 1.0]
    """
    fewer = min(successes, trials - successes)
    counts = [math.lgamma(k + 1) + math.lgamma(trials - k + 1) for k in range(fewer + 1)]
    all_ways = math.lgamma(trials + 1) - trials * math.log(2)
    tail = math.fsum(math.exp(all_ways - count) for count in counts)
    # Exactly half is in both tails.
    return min(1.0, 2 * tail)


def bootstrap_interval(
    values: FloatArray, rng: np.random.Generator, *, resamples: int = 2000
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean (Efron 1979), which need not be normal.

    Args:
        values: `[K]`, at least one. A single one shows no spread: both ends are it.
        rng: where the resamples come from.
        resamples: enough that the ends are steady to a few hundredths of a deviation.
    """
    rows = rng.integers(len(values), size=(resamples, len(values)))
    low, high = np.quantile(np.asarray(values, np.float64)[rows].mean(1), [0.025, 0.975])
    return float(low), float(high)


def pearson(first: FloatArray, second: FloatArray) -> float:
    """Linear correlation of two `[T]` columns; NaN where one of them is constant."""
    columns = [np.asarray(column, np.float64) for column in (first, second)]
    a, b = (column - column.mean() for column in columns)
    for column, centred in zip(columns, (a, b), strict=True):
        # What the mean leaves of a constant column is rounding, not variation.
        noise = len(column) * np.finfo(np.float64).eps ** 2 * np.mean(np.square(column))
        if float(centred @ centred) <= 100 * noise:
            return math.nan
    return min(1.0, max(-1.0, float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))))


def spearman(first: FloatArray, second: FloatArray) -> float:
    """Correlation of ranks, ties averaged (Spearman 1904); NaN where a column is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 27.0]))
    1.0
    """
    ranks = []
    for values in (first, second):
        _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[group])
    return pearson(*ranks)
