"""Pairs whose answer is known: one clip earned much more than the other by a recorded reward."""

from math import inf

import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.segments import Segments, sample_segments
from preferl.errors import DataError, require_in
from preferl.shapes import FloatArray, IntArray

WINDOWS_PER_PAIR = 20
"""Windows drawn for each pair; the best and the worst twentieth of them are paired."""


def known_pairs(
    episodes: Episodes, count: int, length: int, rng: np.random.Generator
) -> tuple[Segments, IntArray, FloatArray]:
    """Draw pairs of a window with a high and one with a low return, in random order.

    They check whether people understand the question. The recorded reward has to mean what the
    question asks, so look at them before you trust them.

    Args:
        episodes: with the environment's rewards.
        count: how many pairs.
        length: `L` steps of each clip.
        rng: where the draws come from.

    Returns:
        `(segments, pairs [P, 2], known [P])`, where `known` is 1 for a better first clip, else 0.

    Raises:
        ConfigError: a negative count.
        DataError: no episode is long enough, or returns do not differ.

    >>> episodes = Episodes(np.zeros((9, 1)), np.zeros((9, 1)), np.arange(9.0), np.zeros(9, bool),
    ...                     np.zeros((1, 1)), np.array([9]))
    >>> segments, pairs, known = known_pairs(episodes, 1, 2, np.random.default_rng(0))
    >>> bool((segments.returns(pairs)[0, 0] > segments.returns(pairs)[0, 1]) == known[0])
    True
    """
    require_in("known pairs", count, 0, inf)
    segments = sample_segments(episodes, max(WINDOWS_PER_PAIR * count, 2), length, rng)
    returns = segments.returns()
    order = np.argsort(returns, kind="stable")
    worse, better = rng.permutation(order[:count]), rng.permutation(order[len(order) - count :])
    if (returns[worse] >= returns[better]).any():
        raise DataError.mismatch(
            "recorded rewards",
            expected="clips with clearly different returns, for pairs with a known answer",
            got=f"returns from {returns.min():g} to {returns.max():g}",
            fix="Ask without known pairs.",
        )
    first = rng.random(count) < 0.5
    pairs = np.where(first[:, None], np.stack([better, worse], 1), np.stack([worse, better], 1))
    return segments, pairs, first.astype(np.float64)
