"""Answers that follow from others: the first above the second above the third.

Choi et al. 2024, "Listwise Reward Estimation for Offline Preference-based Reinforcement Learning"
(LiRE), section 4.3, learn from all pairs of a ranked list. Here a list is any set of clips that
answers link.
"""

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.shapes import BoolArray, FloatArray, IntArray


def with_implied(comparisons: Comparisons) -> tuple[Comparisons, IntArray]:
    """Return the given answers, followed by the answers that they imply.

    Two clips are linked if a chain of comparisons joins them. The answers about linked clips,
    given and implied, weigh together as much as the given ones did, since implied answers add no
    information. Answers that contradict each other in a circle imply nothing about the clips of
    the circle. Answers of weight 0 imply nothing at all. An answer that follows from those of one
    annotator is theirs; an answer that follows from those of several is nobody's (-1).

    Returns:
        `(comparisons, group)`. For each answer, `group` `[P]` holds the row of the first answer
        about the same linked clips. Each member of an ensemble leaves out either all answers of a
        group or none, since any of them may imply the others.

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
    counts = given.weight > 0
    group = linked(given.pairs[counts], len(given.segments))
    pairs, preference = _implied(given[counts], group)
    given_group = group[given.pairs[:, 0]]
    implied_group = group[pairs[:, 0]]
    count = len(given.segments)
    answers = np.bincount(given_group[counts], minlength=count)
    total = np.maximum(answers + np.bincount(implied_group, minlength=count), 1)
    weight = np.bincount(given_group, given.weight, minlength=count)
    first = np.full(count, len(given))
    np.minimum.at(first, given_group, np.arange(len(given)))
    annotator = given.annotator
    if annotator is not None:
        lowest = np.full(count, np.iinfo(np.int64).max)
        highest = np.full(count, -1)
        np.minimum.at(lowest, given_group[counts], annotator[counts])
        np.maximum.at(highest, given_group[counts], annotator[counts])
        whose = np.where(lowest == highest, lowest, -1)
        annotator = np.concatenate([annotator, whose[implied_group]])
    weights = [given.weight * (answers / total)[given_group], (weight / total)[implied_group]]
    together = Comparisons(
        given.segments,
        np.concatenate([given.pairs, pairs]),
        np.concatenate([given.preference, preference]),
        np.concatenate(weights),
        annotator,
    )
    return together, first[np.concatenate([given_group, implied_group])]


def linked(pairs: IntArray, count: int) -> IntArray:
    """Number the sets of clips that chains of pairs link: `[N]` the number of each clip's set."""
    least = np.arange(count)
    while True:
        before = least.copy()
        np.minimum.at(least, pairs, least[pairs].min(1, keepdims=True))
        least = least[least]
        if (least == before).all():
            return np.unique(least, return_inverse=True)[1]


def _implied(given: Comparisons, group: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the pairs `[Q, 2]` that were not asked, and the answers `[Q]` that follow for them."""
    sizes = np.bincount(group)
    order = np.argsort(group, kind="stable")
    within = np.empty(len(group), np.int64)  # each clip's number among those of its group
    within[order] = np.arange(len(group)) - (np.cumsum(sizes) - sizes)[group[order]]
    implied_pairs = [np.empty((0, 2), np.int64)]
    answers = [np.empty(0)]
    widths = np.where(sizes > 2, 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(int), 0)
    for width in np.unique(widths[widths > 0]):  # one computation for all groups of a size
        groups = np.flatnonzero(widths == width)
        number = np.full(len(sizes), -1)
        number[groups] = np.arange(len(groups))
        clips = np.full((len(groups), width), -1)
        here = number[group] >= 0
        clips[number[group[here]], within[here]] = np.flatnonzero(here)
        rows = number[group[given.pairs[:, 0]]] >= 0
        pairs = given.pairs[rows]
        preference = given.preference[rows]
        at = number[group[pairs[:, 0]]], *within[pairs].T
        above, equal, asked = _closure((len(groups), width, width), at, preference)
        upper = np.triu(np.ones((width, width), bool), 1)
        implied = (above | above.mT | equal) & ~asked & upper
        row, first, second = np.nonzero(implied)
        implied_pairs.append(np.stack([clips[row, first], clips[row, second]], 1))
        answers.append(np.where(equal[implied], 0.5, above[implied].astype(np.float64)))
    return np.concatenate(implied_pairs), np.concatenate(answers)


def _closure(
    shape: tuple[int, int, int], at: tuple[IntArray, ...], preference: FloatArray
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return `[G, n, n]` whether a clip is above another, equals it, and was compared with it."""
    group, first, second = at
    least, strict, asked = (np.zeros(shape, bool) for _ in range(3))
    least[:, np.arange(shape[1]), np.arange(shape[1])] = True
    for one, other, chance in ((first, second, preference), (second, first, 1 - preference)):
        for found, rows in ((least, chance >= 0.5), (strict, chance > 0.5), (asked, chance >= 0)):
            found[group[rows], one[rows], other[rows]] = True
    steps = least.astype(np.float32)
    while True:  # paths of one, two, four ... answers
        longer = (steps @ steps > 0).astype(np.float32)
        if (longer == steps).all():
            break
        steps = longer
    reaches = steps > 0
    both = reaches & reaches.mT
    circle = np.asarray((both & strict).any(2))  # clips in a contradiction
    wrong = np.asarray((both & circle[:, None, :]).any(2))  # all in their circle
    return reaches & ~reaches.mT, both & ~wrong[:, :, None] & ~wrong[:, None, :], asked
