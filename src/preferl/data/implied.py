"""Implied answers: if A is preferred to B, and B to C, then A is preferred to C.

Choi et al. 2024, "Listwise Reward Estimation for Offline Preference-based Reinforcement Learning"
(LiRE), section 4.3, learn from all pairs of a ranked list. Here a list is any set of clips that
answers link.
"""

from typing import Any

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.shapes import FloatArray, IntArray


def with_implied(comparisons: Comparisons) -> tuple[Comparisons, IntArray]:
    """Return the given answers, followed by the answers that they imply.

    Two clips are linked if a chain of comparisons joins them. Implied answers add no information.
    In each set of linked clips, the weights are therefore scaled so that given and implied answers
    sum to the sum of the given ones. If answers form a cycle (A over B over C over A), no answer is
    implied between two clips of the cycle. Answers of weight 0 imply nothing. If one annotator gave
    all answers about a set of linked clips, the implied answers belong to this annotator, otherwise
    to nobody (-1).

    Returns:
        `(comparisons, group)`. For each answer, `group` `[P]` is the row of the first answer about
        the same linked clips. A bootstrap has to draw whole groups, since any answer of a group may
        imply the others.

    >>> from preferl.data import Segments
    >>> block = np.zeros((4, 1))
    >>> segments = Segments(block, block, np.zeros(4), np.arange(4), np.ones(4, int), 1)
    >>> given = Comparisons.of(segments, np.array([[0, 1], [2, 1], [2, 3]]), np.array([1, 0.5, 1]))
    >>> found, places = with_implied(given)
    >>> found.pairs.tolist(), found.preference.tolist()
    ([[0, 1], [2, 1], [2, 3], [0, 2], [0, 3], [1, 3]], [1.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    >>> found.weight.tolist(), places.tolist()
    ([0.5, 0.5, 0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0, 0, 0])
    """
    given = comparisons[comparisons.answered]
    is_informative = given.weight > 0
    group = linked(given.pairs[is_informative], len(given.segments))
    pairs, preference = _implied(given[is_informative])
    given_group = group[given.pairs[:, 0]]
    implied_group = group[pairs[:, 0]]
    count = len(given.segments)
    answer_count = np.bincount(given_group[is_informative], minlength=count)
    answer_total = np.maximum(answer_count + np.bincount(implied_group, minlength=count), 1)
    weight = np.bincount(given_group, given.weight, minlength=count)
    first_row = np.full(count, len(given))
    np.minimum.at(first_row, given_group, np.arange(len(given)))
    annotator = given.annotator
    if annotator is not None:
        lowest_annotator = np.full(count, np.iinfo(np.int64).max)
        highest_annotator = np.full(count, -1)
        np.minimum.at(lowest_annotator, given_group[is_informative], annotator[is_informative])
        np.maximum.at(highest_annotator, given_group[is_informative], annotator[is_informative])
        implied_annotator = np.where(lowest_annotator == highest_annotator, lowest_annotator, -1)
        annotator = np.concatenate([annotator, implied_annotator[implied_group]])
    weights = [
        given.weight * (answer_count / answer_total)[given_group],
        (weight / answer_total)[implied_group],
    ]
    combined = Comparisons(
        given.segments,
        np.concatenate([given.pairs, pairs]),
        np.concatenate([given.preference, preference]),
        np.concatenate(weights),
        annotator,
    )
    return combined, first_row[np.concatenate([given_group, implied_group])]


def linked(pairs: IntArray, count: int) -> IntArray:
    """Return `[N]`, the connected component of each clip in the graph of pairs."""
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(_relation(pairs, count), directed=False)[1], np.int64)


def _implied(given: Comparisons) -> tuple[IntArray, FloatArray]:
    """Return the pairs `[Q, 2]` that were not asked, and the answers `[Q]` that are implied."""
    from scipy.sparse.csgraph import connected_components

    count = len(given.segments)
    pairs = np.concatenate([given.pairs, given.pairs[:, ::-1]])
    probability = np.concatenate([given.preference, 1 - given.preference])
    at_least_as_good = _relation(pairs[probability >= 0.5], count)  # [a, b]: b is at most as good
    # Clips of one strongly connected component are equal, or are on a cycle of contradictions.
    component = connected_components(at_least_as_good, connection="strong")[1]
    strict = component[pairs[probability > 0.5]]
    is_contradictory = np.isin(component, strict[strict[:, 0] == strict[:, 1]])
    in_component = _relation(np.stack([np.arange(count), component], 1), count)
    reaches = (
        in_component @ _closure(in_component.T @ at_least_as_good @ in_component) @ in_component.T
    )
    better, worse = reaches.nonzero()
    first_better = (better * count + worse)[better < worse]
    second_better = (worse * count + better)[better > worse]
    pair_number = np.union1d(first_better, second_better)
    pair_number = np.setdiff1d(
        pair_number, pairs @ (count, 1)
    )  # pairs that were not asked, in either order
    first, second = divmod(pair_number, count)
    is_above = np.isin(pair_number, first_better)
    is_equal = is_above & np.isin(pair_number, second_better)
    is_decided = ~(is_equal & is_contradictory[first])
    answers = np.where(is_equal, 0.5, is_above)
    return np.stack([first, second], 1)[is_decided], answers[is_decided]


def _relation(pairs: IntArray, count: int) -> Any:
    """Return a sparse matrix `[N, N]` that is true at pairs of numbers below `N`."""
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(pairs), bool), pairs.T), (count, count))


def _closure(relation: Any) -> Any:
    """Return the reflexive and transitive closure of a relation: paths of one, two, four ..."""
    from scipy.sparse import eye_array

    reaches = relation + eye_array(relation.shape[0], dtype=bool)
    while True:
        longer = reaches @ reaches
        if longer.nnz == reaches.nnz:
            return reaches
        reaches = longer
