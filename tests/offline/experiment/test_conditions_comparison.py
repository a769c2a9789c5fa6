"""Whether conditions differ, and how that is worded."""

import json

import numpy as np
import pytest
import scipy

from preferl.offline.experiment.conditions import compare, paired_differences

GOOD = np.array([9.0, 10, 11])
SAME = np.array([8.0, 10.5, 11])
BAD = np.array([0.0, 1, 2])


def clear_sign(ours, theirs):
    found = compare({"learned": ours, "zero": theirs})
    return len(found.beaten) - len(found.lost_to)


def test_beaten_unclear_and_lost():
    comparison = compare(
        {"learned": GOOD, "true": BAD, "zero": BAD, "random": SAME, "cloning": GOOD * 9}
    )
    assert (comparison.beaten, comparison.unclear, comparison.lost_to) == (
        ("zero",),
        ("random",),
        ("cloning",),
    )
    assert not comparison.passed
    assert comparison.text == (
        "The learned reward did better than no reward. It did worse than cloning the data. "
        "It did not differ significantly from a random reward. "
        "So the comparisons are not shown to have taught these policies."
    )
    assert json.loads(json.dumps(comparison.to_json()))["passed"] is False


def test_every_control_beaten():
    comparison = compare({"learned": GOOD, "zero": BAD, "negated": BAD, "cloning": BAD})
    assert comparison.passed
    assert comparison.text == (
        "The learned reward did better than no reward, its opposite and cloning the data."
    )


def test_one_seed_is_compared_by_its_episodes_as_the_text_reports():
    one = {"learned": np.array([9.0]), "zero": np.array([1.0])}
    comparison = compare(one, {"learned": GOOD, "zero": BAD})
    assert comparison.beaten == ("zero",)
    assert "With one seed" in comparison.text
    assert compare(one).unclear == ("zero",)


def test_nothing_to_compare_with():
    assert compare({"learned": GOOD}) is None
    assert compare({"learned": GOOD, "true": BAD}) is None
    assert compare({"cloning": GOOD}) is None


def test_agents_that_are_all_alike_are_distinguished_by_any_difference():
    assert clear_sign(np.ones(3), np.zeros(3)) == 1
    assert clear_sign(np.ones(3), np.ones(3)) == 0


@pytest.mark.parametrize("seed", range(20))
def test_signs_are_those_of_welchs_test(seed):
    rng = np.random.default_rng(seed)
    ours = rng.normal(0.8, 1.0, 6)
    theirs = rng.normal(0, 2.0, 9)
    test = scipy.stats.ttest_ind(ours, theirs, equal_var=False)
    if abs(test.pvalue - 0.05) > 0.002:
        expected = int(np.sign(test.statistic)) if test.pvalue < 0.05 else 0
        assert clear_sign(ours, theirs) == expected


def test_the_true_reward_stands_where_nothing_was_learned():
    comparison = compare({"true": GOOD, "zero": BAD, "random": SAME})
    assert (comparison.beaten, comparison.unclear) == (("zero",), ("random",))
    assert comparison.text == (
        "The true reward did better than no reward. "
        "It did not differ significantly from a random reward. "
        "So the recorded rewards are not shown to have taught these policies."
    )
    assert compare({"true": GOOD}) is None


def test_differences_are_taken_seed_by_seed():
    """Seeds that vary much alike hide a difference from means, and not from pairs."""
    easy = np.array([0.0, 10, 20])
    scores = {"answers": easy + np.array([1, 2, 3]), "true_answers": easy, "cloning": easy}
    found = paired_differences(scores)
    assert list(found) == ["cloning"]
    mean, (low, high) = found["cloning"]
    assert (mean, (low + high) / 2) == pytest.approx((2, 2))
    assert high - mean == pytest.approx(
        scipy.stats.t.ppf(0.975, 2) / np.sqrt(3)
    )  # a deviation of 1
    assert compare(scores).unclear == ("cloning",)
    assert paired_differences({name: values[:1] for name, values in scores.items()}) == {}
    assert paired_differences({"cloning": easy}) == {}
