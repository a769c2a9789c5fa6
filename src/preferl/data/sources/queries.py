"""The Preference Transformer's questions drawn again, and answers to questions by a script.

Kim et al. 2023, "Preference Transformer: Modeling Human Preferences using Transformers for RL",
section 5.1.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.sources.labels import Crossing, LabelRows, join_labels
from preferl.errors import DataError, require_in, require_one_of
from preferl.shapes import IntArray

Ties = Literal["half", "first"]


def scripted_preferences(
    rows: LabelRows, episodes: Episodes, *, ties: Ties = "half", crossing: Crossing = "drop"
) -> Comparisons:
    """Answer the questions of a label folder by the true reward: more of it is preferred.

    So the same questions can be learned from with people's answers and without their doubt. The
    answers that `rows` came with are not used.

    Args:
        rows: from `read_labels` or `sample_pt_queries`.
        episodes: the data set that the rows count in, with the environment's rewards. They are
            summed in the precision they have, since equal sums may depend on it.
        ties: what equal sums say: `"half"` that the two are equal (the default; the original's
            choice for antmaze and robomimic) or `"first"` that the first is preferred (its choice
            for the other D4RL tasks).
        crossing: what becomes of pairs with a segment across an episode's end, as for
            `load_labels`; left out by default.

    Raises:
        ConfigError: another `ties` or `crossing`.
        DataError: rows that are not in `episodes`.

    >>> episodes = Episodes(np.zeros((4, 1)), np.zeros((4, 1)), np.array([0.0, 1, 1, 2]),
    ...                     np.zeros(4, bool), np.zeros((1, 1)), np.array([4]))
    >>> rows = LabelRows(np.array([0, 1]), np.array([2, 1]), np.full(2, np.nan), length=2)
    >>> scripted_preferences(rows, episodes).preference.tolist()
    [0.0, 0.5]
    """
    require_one_of("ties", ties, Ties)
    comparisons = join_labels(rows, episodes, crossing=crossing).comparisons
    segments = comparisons.segments
    first, second = segments.rewards[segments.rows()].sum(axis=1)[comparisons.pairs].T
    equal = 0.5 if ties == "half" else 1.0
    preference = np.where(first == second, equal, (first > second).astype(float))
    return replace(comparisons, preference=preference)


def sample_pt_queries(
    lengths: Sequence[int] | IntArray, count: int, query_length: int, seed: int
) -> LabelRows:
    """Draw the questions that the Preference Transformer's sampler draws with the same seed.

    Two segments per question, independently: an episode among all but the last, evenly and so
    whatever its length, and again if it is not longer than the segment; then where to begin.
    Most of the published antmaze labels are about what seed 3407 draws from 999 episodes of 1000
    steps and one more, which is never drawn, in segments of 100.

    Args:
        lengths: `[K]` steps of each episode, `episodes.lengths`.
        count: `P` questions.
        query_length: `L` steps per segment.
        seed: of numpy's older generator, which the original used.

    Returns:
        Rows whose `preference` is NaN: nobody has answered yet.

    Raises:
        ConfigError: a negative count or a length below 1.
        DataError: no episode but the last is longer than `query_length`.
    """
    require_in("count", count, 0, float("inf"))
    require_in("query_length", query_length, 1, float("inf"))
    lengths = np.asarray(lengths)
    starts = np.cumsum(lengths) - lengths
    if not (lengths[:-1] > query_length).any():
        raise DataError.mismatch(
            "episodes to ask about",
            expected=f"one before the last with more than {query_length} steps",
            got=f"lengths up to {int(lengths[:-1].max(initial=0))}",
        )
    random = np.random.RandomState(seed)

    def draw() -> int:
        # One number at a time: how many are used depends on those before.
        while lengths[episode := random.randint(len(lengths) - 1)] <= query_length:
            pass
        return int(starts[episode] + random.randint(lengths[episode] - query_length + 1))

    drawn = np.array([draw() for _ in range(2 * count)], np.int64).reshape(count, 2)
    return LabelRows(drawn[:, 0], drawn[:, 1], np.full(count, np.nan), query_length)
