"""The plain models of tests give what is computed by hand."""

import pytest
import torch

from preferl.errors import ConfigError
from preferl.testing import check_reward_model
from preferl.testing.worlds import (
    FadingModel,
)


def test_older_steps_count_half_as_much_each():
    model = FadingModel(context=3, members=1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    features = torch.zeros(1, 3, 4)
    features[0, :, 0] = torch.atanh(torch.tensor([0.8, 0.4, -0.2]))
    rewards, scores = model.judge(features, torch.ones(1, 3, dtype=torch.bool))
    # 0.8, 0.4 + 0.8 / 2, -0.2 + 0.4 / 2 + 0.8 / 4
    torch.testing.assert_close(rewards, torch.tensor([[[0.8, 0.8, 0.2]]]))
    torch.testing.assert_close(scores, torch.tensor([[0.6]]))
    padded = model.judge(features, torch.tensor([[False, True, True]]))
    torch.testing.assert_close(padded.rewards[0, 0, 1:], torch.tensor([0.4, 0.0]))
    torch.testing.assert_close(padded.scores, torch.tensor([[0.2]]))


def test_the_fading_model_keeps_the_contract_and_its_context():
    model = FadingModel(context=3)
    check_reward_model(model)
    with pytest.raises(ConfigError, match="steps: expected 3, got 4"):
        model.judge(torch.zeros(1, 4, 4), torch.ones(1, 4, dtype=torch.bool))
