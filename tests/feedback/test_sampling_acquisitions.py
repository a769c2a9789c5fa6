"""Each acquisition against numbers worked out by hand."""

import math

import numpy as np
import pytest

from preferl.errors import FeedbackError
from preferl.feedback.sampling import (
    entropy,
    label_variance,
    logit_variance,
    probability_variance,
)

VARIANCES = (logit_variance, probability_variance, label_variance)


def test_logit_variance_divides_by_one_less_than_the_members():
    logits = np.array([[1.0, 0.0], [2.0, 0.0], [6.0, 3.0]])
    np.testing.assert_allclose(logit_variance(logits), [7.0, 3.0])


def test_probability_variance_divides_by_the_members():
    # Probabilities 1/5 and 4/5: the mean is 1/2 and both are 3/10 away.
    logits = np.array([[-math.log(4), 0.0], [math.log(4), 0.0]])
    np.testing.assert_allclose(probability_variance(logits), [0.09, 0.0], atol=1e-15)


def test_label_variance_counts_votes_and_halves_the_undecided():
    logits = np.array([[2.0, 1.0, 0.0], [3.0, 1.0, 4.0], [-0.1, 1.0, 1.0], [-9.0, 1.0, 2.0]])
    # Shares 2/4, 4/4 and 3.5/4.
    np.testing.assert_allclose(label_variance(logits), [0.25, 0.0, 0.875 * 0.125])


def test_entropy_is_the_mean_over_members_in_nats():
    logits = np.array([[0.0, math.log(3)], [0.0, -math.log(3)]])
    quarter = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    np.testing.assert_allclose(entropy(logits), [math.log(2), quarter])


def test_entropy_averages_entropies_not_predictions():
    # Two sure members that contradict each other: unsure together, sure alone.
    assert entropy(np.array([[40.0], [-40.0]]))[0] < 1e-12


@pytest.mark.parametrize("function", [*VARIANCES, entropy])
def test_huge_logits_stay_finite(function):
    value = function(np.array([[1e8, -1e8, 1e8], [1e8, 1e8, -1e8]]))
    assert np.isfinite(value).all()
    assert (value >= 0).all()


@pytest.mark.parametrize("function", [*VARIANCES, entropy])
def test_the_order_in_a_pair_does_not_matter(function, rng):
    logits = rng.normal(size=(4, 10)) * 3
    np.testing.assert_allclose(function(logits), function(-logits))


@pytest.mark.parametrize("function", VARIANCES)
def test_a_variance_over_one_member_is_refused_with_a_way_out(
    function,
):
    with pytest.raises(FeedbackError, match=r"at least 2.*ensemble"):
        function(np.zeros((1, 3)))
