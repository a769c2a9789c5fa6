import numpy as np
import pytest

from helpers.clips import at
from preferl.configs import from_json, to_json
from preferl.feedback import AnswerFilter, FitContext, Likelihood, Preparation, PseudoLabels
from preferl.feedback.step_rewards import PerStep
from preferl.online import OnlineConfig


def test_log_odds_have_the_fitted_scale_and_leave_noise_out():
    reward = PerStep()
    segments = at(2, 5)
    pairs = np.array([[0, 1], [1, 0]])
    plain = FitContext(reward).logits(segments, pairs)
    np.testing.assert_allclose(plain, [[-3, 3]])
    object.__setattr__(reward, "likelihood", Likelihood(noise=0.4, scale=0.5))
    np.testing.assert_allclose(FitContext(reward).logits(segments, pairs), [[-1.5, 1.5]])
    assert FitContext().logits(segments, pairs).tolist() == [[0, 0]]


@pytest.mark.parametrize(
    "text",
    [["rime", "surf"], ["rime", {"kind": "surf"}], [{"kind": "AnswerFilter"}, {"kind": "surf"}]],
)
def test_files_name_them(text):
    config = from_json(OnlineConfig, {"prepare": text})
    assert config.prepare == (AnswerFilter(), PseudoLabels())
    assert from_json(OnlineConfig, to_json(config)) == config
    assert all(isinstance(one, Preparation) for one in config.prepare)
