"""Lists of clips that are sorted by comparisons."""

import numpy as np
import pytest

from preferl.data.implied import with_implied
from preferl.errors import ConfigError
from preferl.feedback import ScriptedTeacher
from preferl.feedback.ranked_lists import RankedLists, sample_ranked
from preferl.testing import make_episodes


def higher(pairs):
    return np.sign(pairs[:, 0] - pairs[:, 1]) / 2 + 0.5


@pytest.mark.parametrize("seed", range(5))
def test_binary_search_sorts_with_few_answers(seed):
    rng = np.random.default_rng(seed)
    numbers = rng.permuted(np.tile(np.arange(40), (3, 1)), axis=1)
    lists = RankedLists(numbers, 10_000, rng)
    asked = 0
    while len(pairs := lists.pairs()):
        lists.add(higher(pairs))
        asked += len(pairs)
    np.testing.assert_array_equal(lists.place, numbers)
    # The new clip has k places to be compared with, and falls into one of k + 1 gaps.
    assert asked <= 3 * sum(np.ceil(np.log2(k + 1)) for k in range(1, 40))


def test_equal_clips_share_a_place_and_a_declined_clip_has_none(rng):
    numbers = np.array([[5, 7, 6, 7, 3, 0]])
    lists = RankedLists(numbers, 100, rng)
    while len(pairs := lists.pairs()):
        lists.add(np.where((pairs == 3).any(1), np.nan, higher(pairs // 2)))
    assert lists.place.tolist() == [[1, 2, 2, 2, -1, 0]]


def test_queries_are_shared_evenly_and_never_exceeded(rng):
    numbers = np.arange(60).reshape(3, 20)
    asked = []
    lists = RankedLists(numbers, 20, rng)
    while len(pairs := lists.pairs()):
        lists.add(higher(pairs))
        asked.append(pairs)
    by_list = np.concatenate(asked)[:, 0] // 20
    assert np.bincount(by_list).tolist() == [7, 7, 6]
    assert not len(lists.pairs())


def test_lists_without_an_answer_wait_and_the_others_grow_on():
    numbers = np.array([[4, 1, 9], [5, 2, 7]])
    waiting = RankedLists(numbers, 10)
    while len(pairs := waiting.pairs()):
        waiting.add(higher(pairs), (pairs != 2).all(1))
    assert waiting.place.tolist() == [[1, 0, 2], [0, -1, -1]]


def test_who_is_shown_first_is_tossed(rng):
    lists = RankedLists(np.arange(400).reshape(1, 400), 1000, rng)
    first = []
    while len(pairs := lists.pairs()):
        lists.add(higher(pairs))
        first.append(pairs[0, 0] > pairs[0, 1])  # the new one, which is always the better
    assert 0.45 < np.mean(first) < 0.55


def test_a_perfect_teacher_s_lists_imply_the_true_order(rng):
    episodes = make_episodes(rng, [60] * 20)
    given = sample_ranked(episodes, 200, 5, ScriptedTeacher.oracle(), rng, lists=4)
    assert len(given) == 200
    found, places = with_implied(given)
    returns = found.segments.returns(found.pairs)
    np.testing.assert_array_equal(found.preference, returns[:, 0] > returns[:, 1])
    assert np.unique(places).tolist() == [0, 1, 2, 3]  # the lists' first answers
    assert len(found) > 2.5 * len(given)  # 15 clips each, and 105 pairs of these
    assert found.weight.sum() == pytest.approx(200)


def test_lists_without_queries_are_refused(rng):
    episodes = make_episodes(rng, [60])
    for queries, lists in ((0, 1), (5, 0), (5, 6)):
        with pytest.raises(ConfigError):
            sample_ranked(episodes, queries, 5, ScriptedTeacher.oracle(), rng, lists=lists)
