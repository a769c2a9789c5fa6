"""B-Pref's samplers by name, on pairs whose values are worked out by hand."""

import numpy as np
import pytest

from helpers.clips import at
from preferl.data import Comparisons
from preferl.feedback.likelihood import Likelihood
from preferl.feedback.pair_sampling import segments_wanted
from preferl.registry import SAMPLERS
from preferl.testing import check_sampler

B_PREF = ("uniform", "disagreement", "entropy")
B_PREF += ("k_center", "k_center_disagreement", "k_center_entropy")

# Two members that agree, and are undecided, about windows 0 to 2, and are sure of the opposite
# about window 3: pairs with it have the largest disagreement, all others the largest entropy.
SCORES = np.array([[0.0, 0, 0, 5], [0, 0, 0, -5]])
PLACES = (0.0, 4.0, 10.0, 5.0)


def sampler(name, scores=SCORES, oversampling=6, asked=None):
    parts = {"scorer": lambda _: scores, "likelihood": Likelihood(), "acquisition": None}
    return SAMPLERS.build(name, **parts, oversampling=oversampling, asked=asked)


def chosen(name, count, **parts):
    pairs = sampler(name, **parts)(at(*PLACES), count, np.random.default_rng(0))
    return {frozenset(pair) for pair in pairs.tolist()}


@pytest.mark.parametrize("name", SAMPLERS.names()[:1] + B_PREF[1:])
def test_they_keep_the_contract_with_a_reward_and_before_there_is_one(rng, name):
    check_sampler(sampler(name, scores=None))
    check_sampler(sampler(name, scores=rng.normal(size=(3, 4))), at(*PLACES))


def test_disagreement_and_entropy_are_opposites_here():
    assert chosen("disagreement", 3) == {frozenset({0, 3}), frozenset({1, 3}), frozenset({2, 3})}
    assert chosen("entropy", 3) == {frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 2})}


def test_disagreement_is_about_preferences_rather_than_scores(rng):
    # Logits of the pairs: 0 and 1 -10, -20; 1 and 2 9, 21; 0 and 2 -1, 1: the last is undecided.
    scores = np.array([[0.0, 10, 1], [0, 20, -1]])
    segments = at(0, 1, 2)
    pairs = sampler("disagreement", scores)(segments, 1, rng)
    assert set(pairs[0].tolist()) == {0, 2}


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        # Squared distances from clips at 10 and 5, the nearer way round: of the pair 0, 1 it is
        # 61, of 0, 3 it is 50, of 1, 3 it is 26, of 0, 2 it is 25, of 1, 2 it is 1.
        ("k_center", (10, 5), {0, 1}),
        ("k_center_disagreement", (10, 5), {0, 3}),
        # From clips at 0 and 4: of 2, 3 it is 61, of 1, 2 it is 52, of 0, 2 it is 36.
        ("k_center", (0, 4), {2, 3}),
        ("k_center_entropy", (0, 4), {1, 2}),
    ],
)
def test_k_center_goes_far_from_what_was_asked_within_the_better_half(name, asked, expected):
    known = Comparisons.of(at(*asked), np.array([[0, 1]]), np.array([1.0]))
    assert chosen(name, 1, asked=lambda: known) == {frozenset(expected)}


@pytest.mark.parametrize(("oversampling", "wanted"), [(10, 60), (2, 12), (1, 6)])
@pytest.mark.parametrize("name", B_PREF[1:])
def test_all_draw_as_many_pairs_for_each_one_asked(name, oversampling, wanted):
    assert segments_wanted(sampler(name, oversampling=oversampling), 3) == wanted
