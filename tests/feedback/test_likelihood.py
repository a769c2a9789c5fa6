import math

import numpy as np
import pytest

from preferl.errors import ConfigError
from preferl.feedback import Likelihood, likelihood_of


def test_probabilities_by_hand():
    likelihood = Likelihood(noise=0.2, scale=0.5)
    logits = np.array([0.0, 2 * math.log(3), -2 * math.log(3)])
    # sigmoid(log 3) = 3/4, so 0.1 + 0.8 * 3/4
    assert likelihood.probability(logits) == pytest.approx([0.5, 0.7, 0.3])
    assert likelihood.log_odds(logits) == pytest.approx([0, math.log(7 / 3), -math.log(7 / 3)])


def test_logarithms_are_exact_however_sure_a_model_is():
    logits = np.array([-5000.0, 5000.0])
    assert Likelihood().log_probability(logits).tolist() == [-5000.0, 0.0]
    noisy = Likelihood(noise=0.1).log_probability(logits)
    assert noisy == pytest.approx([math.log(0.05), math.log(0.95)])
    assert Likelihood(noise=0.1).log_odds(logits) == pytest.approx([-math.log(19), math.log(19)])


@pytest.mark.parametrize(("noise", "scale"), [(1, 1), (0, 0), (0, math.inf)])
def test_refuses_what_is_no_likelihood(noise, scale):
    with pytest.raises(ConfigError, match=r"noise|scale"):
        Likelihood(noise, scale)


def test_whatever_knows_of_no_likelihood_has_no_noise():
    assert likelihood_of(None) == likelihood_of(object()) == Likelihood(0.0, 1.0)
