"""What answers imply about pairs that nobody was asked about."""

from dataclasses import replace

import numpy as np
from hypothesis import given, strategies as st

from helpers.clips import at
from preferl.data import Comparisons
from preferl.data.implied import with_implied


def comparisons(pairs, preference, count=None, **more):
    pairs = np.array(pairs)
    clips = at(*range(pairs.max() + 1 if count is None else count))
    return replace(Comparisons.of(clips, pairs, preference), **more)


def closure_by_hand(pairs, preference, count):
    """Warshall's algorithm, number by number."""
    least = [[i == j for j in range(count)] for i in range(count)]
    strict = [[False] * count for _ in range(count)]
    for (i, j), p in zip(pairs, preference, strict=True):
        least[i][j] |= p >= 0.5
        least[j][i] |= p <= 0.5
        strict[i][j] |= p > 0.5
        strict[j][i] |= p < 0.5
    for k in range(count):
        for i in range(count):
            for j in range(count):
                least[i][j] |= least[i][k] and least[k][j]
    wrong = {
        k
        for i in range(count)
        for j in range(count)
        if strict[i][j] and least[j][i]
        for k in range(count)
        if least[i][k] and least[k][i]
    }
    found = {}
    asked = {tuple(sorted(pair)) for pair in pairs}
    for i in range(count):
        for j in range(i + 1, count):
            if (i, j) in asked or not (least[i][j] or least[j][i]):
                continue
            if least[i][j] and least[j][i]:
                if not {i, j} & wrong:
                    found[i, j] = 0.5
            else:
                found[i, j] = float(least[i][j])
    return found


@given(st.integers(2, 9), st.integers(1, 12), st.integers(0, 2**31))
def test_implied_answers_are_those_of_the_transitive_closure(count, asked, seed):
    rng = np.random.default_rng(seed)
    pairs = np.array([rng.choice(count, 2, replace=False) for _ in range(asked)])
    preference = rng.choice([0, 0.3, 0.5, 1], asked)
    clear = comparisons(pairs, preference, count)
    found, places = with_implied(clear)
    expected = closure_by_hand(clear.pairs.tolist(), preference, len(clear.segments))
    got = {
        tuple(pair): answer
        for pair, answer in zip(
            found.pairs[asked:].tolist(), found.preference[asked:].tolist(), strict=True
        )
    }
    assert got == expected
    np.testing.assert_array_equal(found.pairs[:asked], clear.pairs)
    np.testing.assert_array_equal(found.preference[:asked], preference)
    # Linked clips weigh what their answers did, and no two groups share a clip.
    given_weight = np.bincount(places[:asked], clear.weight)
    np.testing.assert_allclose(np.bincount(places, found.weight), given_weight)
    groups = [set(found.pairs[places == one].flat) for one in np.unique(places)]
    assert sum(map(len, groups)) == len(set().union(*groups))


def test_declined_answers_go_and_weights_and_annotators_stay():
    of = comparisons(
        [[0, 1], [1, 2], [3, 4], [0, 2]],
        np.array([1.0, 1, 1, np.nan]),
        weight=np.array([3.0, 1, 2, 9]),
        annotator=np.array([4, 5, 4, 5]),
    )
    found, places = with_implied(of)
    assert found.pairs.tolist() == [[0, 1], [1, 2], [3, 4], [0, 2]]
    np.testing.assert_allclose(found.weight, [2, 2 / 3, 2, 4 / 3])  # 4 in all, over three answers
    assert found.annotator.tolist() == [4, 5, 4, -1]
    assert places.tolist() == [0, 0, 2, 0]


def test_what_one_annotator_implies_is_theirs():
    chain = [[0, 1], [1, 2], [3, 4], [4, 5]]
    whose = np.array([1, 1, 1, 2])
    found, _ = with_implied(comparisons(chain, np.ones(4), weight=np.ones(4), annotator=whose))
    assert found.pairs[4:].tolist() == [[0, 2], [3, 5]]
    assert found.annotator[4:].tolist() == [1, -1]


def test_answers_of_no_weight_imply_nothing():
    chain = [[0, 1], [1, 2], [2, 3], [3, 4]]
    weight = np.array([1.0, 0, 1, 1])
    found, places = with_implied(comparisons(chain, np.ones(4), weight=weight))
    assert found.pairs[4:].tolist() == [[2, 4]]
    np.testing.assert_allclose(found.weight, [1, 0, 2 / 3, 2 / 3, 2 / 3])
    assert places[2:].tolist() == [2, 2, 2]
