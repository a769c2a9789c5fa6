"""The LSTM reward: its contract, scores, size and first weights; its numbers are golden."""

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from preferl.models import LSTMReward, LSTMRewardConfig
from preferl.testing import check_reward_model

OBSERVATIONS = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Box(-1, 1, (2,))


def small(seed=0, **settings):
    config = LSTMRewardConfig(**{"width": 16, "context": 6, **settings})
    return LSTMReward(OBSERVATIONS, ACTIONS, config, seed=seed)


def windows(rows=7, length=6):
    generator = torch.Generator().manual_seed(1)
    steps = [torch.randn(rows, length, size, generator=generator) for size in (3, 2)]
    return *steps, torch.arange(length) >= torch.arange(rows)[:, None] % length


def with_biases(model):
    """The same with biases that are not zero, so that none can be forgotten."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(-0.5, 0.5, generator=generator)
    return model


@pytest.mark.parametrize(("pooling", "activation"), [("mean", "relu"), ("last", "tanh")])
def test_every_shape_keeps_the_contract(pooling, activation):
    check_reward_model(with_biases(small(pooling=pooling, activation=activation, dropout=0.2)))


def test_a_score_is_the_sum_the_mean_or_the_last_of_the_real_rewards():
    arguments = windows()
    mask = arguments[2]
    for pooling, reduce in (("sum", Tensor.sum), ("mean", Tensor.mean), ("last", lambda r: r[-1])):
        output = small(pooling=pooling).eval()(*arguments)
        expected = [reduce(r[m]) for r, m in zip(output.rewards[0], mask, strict=True)]
        torch.testing.assert_close(output.scores[0], torch.stack(expected))


def test_parameters_are_as_many_as_the_original_has():
    shapes = {(11, 3): 230_209, (17, 6): 232_513, (46, 26): 245_057}
    for (observation, action), count in shapes.items():
        boxes = spaces.Box(-1, 1, (observation,)), spaces.Box(-1, 1, (action,))
        model = LSTMReward(*boxes, seed=0)
        assert sum(p.numel() for p in model.parameters()) == count


def test_initial_weights_are_lecun_normal_and_orthogonal_and_biases_zero():
    model = LSTMReward(OBSERVATIONS, ACTIONS, seed=0)
    for weight in (model.before.linear[1].weight, model.lstm.input, model.after.linear[0].weight):
        deviation = weight.shape[1] ** -0.5
        assert weight.std().item() == pytest.approx(deviation, rel=0.02)
        assert weight.abs().max() <= 2 * deviation / 0.8796
    for gate in model.lstm.recurrent.chunk(4):
        torch.testing.assert_close(gate @ gate.T, torch.eye(128), atol=1e-5, rtol=0)
    for name, parameter in model.named_parameters():
        assert not name.endswith("bias") or not parameter.any()
