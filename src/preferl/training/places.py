"""The column of each query in an ensemble's bootstraps, which is the same in every fit."""

from collections.abc import Iterable
from typing import final

import numpy as np

from preferl.shapes import IntArray


@final
class AnswerPlaces:
    """Columns of queries in `RewardTrainer.bootstrap`, numbered in the order of first use.

    A fit's rows cannot serve as columns. If the oldest answers are dropped, or an answer is
    withdrawn, all later rows move up, and a member would then train on answers that validated it.

    Attributes:
        queries: `[Q]` the query of each column.

    >>> places = AnswerPlaces()
    >>> places(np.array([4, 2, 7])).tolist(), places(np.array([7, 9, 2, 9])).tolist()
    ([0, 1, 2], [2, 3, 1, 3])
    """

    def __init__(self, queries: Iterable[int] = ()) -> None:
        self.queries: IntArray = np.fromiter(map(int, queries), np.int64)

    def __len__(self) -> int:
        return len(self.queries)

    def __call__(self, queries: IntArray) -> IntArray:
        """Return the columns `[P]` of answers by the numbers of their queries.

        New ones come last.
        """
        different, first = np.unique(queries, return_index=True)
        new = np.sort(first[~np.isin(different, self.queries)])
        self.queries = np.append(self.queries, queries[new])
        order = np.argsort(self.queries)
        return np.asarray(order[np.searchsorted(self.queries, queries, sorter=order)])
