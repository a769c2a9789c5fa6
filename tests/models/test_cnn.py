from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from preferl.errors import SpaceError
from preferl.models import CNNReward, CNNRewardConfig
from preferl.models.cnn import AT_ONCE
from preferl.testing import check_reward_model

ACTIONS = spaces.Discrete(3)
SMALL = CNNRewardConfig(filters=4, hidden=8)


def frames(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


def windows(*shape, rows=3, length=4, seed=0):
    rng = np.random.default_rng(seed)
    pictures = torch.from_numpy(rng.integers(0, 256, (rows, length, *shape), dtype=np.uint8))
    actions = torch.from_numpy(rng.integers(0, 3, (rows, length)))
    mask = torch.arange(length) >= torch.arange(rows)[:, None] % length
    return pictures, actions, mask


def test_layers_are_those_of_the_paper():
    model = CNNReward(frames(84, 84, 4), ACTIONS, seed=0)
    network = model.networks[0]
    convolutions = [layer for layer in network.convolutions if isinstance(layer, nn.Conv2d)]
    assert [layer.weight.shape for layer in convolutions] == [
        (16, 4, 7, 7),
        (16, 16, 5, 5),
        (16, 16, 3, 3),
        (16, 16, 3, 3),
    ]
    assert [layer.stride[0] for layer in convolutions] == [3, 2, 1, 1]
    assert {layer.padding for layer in convolutions} == {(0, 0)}
    assert network.dense.weight.shape == (64, 16 * 7 * 7)  # 84 to 26, 11, 9, 7 pixels
    slopes = [layer.negative_slope for layer in network.convolutions if hasattr(layer, "inplace")]
    assert slopes == [0.01] * 4


def by_hand(model, member, pictures, actions=None):
    """The network of one member, written out."""
    hidden = pictures.permute(0, 3, 1, 2).double() / 255
    network = model.networks[member].double()
    padding = {84: (0, 0, 0, 0), 21: (3, 2, 1, 1)}[pictures.shape[1]]
    layers = [layer for layer in network.convolutions if isinstance(layer, nn.Conv2d)]
    for layer, stride, pad in zip(layers, (3, 2, 1, 1), padding, strict=True):
        hidden = nn.functional.conv2d(hidden, layer.weight, layer.bias, stride, pad)
        hidden = torch.where(hidden > 0, hidden, 0.01 * hidden)
    hidden = hidden.flatten(1)
    if actions is not None:
        hidden = torch.cat([hidden, torch.eye(3).double()[actions]], dim=1)
    hidden = hidden @ network.dense.weight.T + network.dense.bias
    hidden = torch.where(hidden > 0, hidden, 0.01 * hidden)
    rewards = (hidden @ network.reward.weight.T + network.reward.bias)[:, 0]
    network.float()
    return rewards.float()


@pytest.mark.parametrize(("size", "use_actions"), [(84, False), (21, True)])
def test_each_member_is_the_network_of_its_weights(size, use_actions):
    config = replace(SMALL, members=2, use_actions=use_actions)
    model = CNNReward(frames(size, size, 2), ACTIONS, config, seed=0).eval()
    pictures, actions, mask = windows(size, size, 2)
    output = model(pictures, actions, mask)
    for member in range(2):
        seen = actions.flatten() if use_actions else None
        rewards = by_hand(model, member, pictures.flatten(0, 1), seen).view(3, 4) * mask
        torch.testing.assert_close(output.rewards[member], rewards, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(output.scores[member], rewards.sum(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((16, 17), {"members": 2}),
        ((3, 22, 20), {"use_actions": True, "pooling": "mean"}),
        ((45, 44, 4), {"dropout": 0.5, "batch_norm": True}),
        ((2, 16, 16, 3), {"discount": 0.9, "kernels": (3,), "strides": (2,)}),
    ],
)
def test_every_shape_keeps_the_contract(shape, settings):
    check_reward_model(CNNReward(frames(*shape), ACTIONS, replace(SMALL, **settings), seed=0))


def test_more_pictures_than_fit_at_once_have_the_same_rewards():
    model = CNNReward(frames(8, 8, 1), ACTIONS, SMALL, seed=0).eval()
    pictures, actions, mask = windows(8, 8, 1, rows=AT_ONCE // 4 + 2)
    whole = model(pictures, actions, mask).rewards
    with torch.no_grad():
        torch.testing.assert_close(model(pictures, actions, mask).rewards, whole)


def test_padding_stays_out_of_the_statistics_of_a_training_batch():
    model = CNNReward(frames(16, 16, 1), ACTIONS, replace(SMALL, batch_norm=True), seed=0).train()
    pictures, actions, mask = windows(16, 16, 1)
    other = torch.where(mask[..., None, None, None], pictures, 255 - pictures)
    rewards = [model(seen, actions, mask).rewards for seen in (pictures, other)]
    torch.testing.assert_close(*rewards)


@pytest.mark.parametrize("shape", [(7, 84, 1), (84, 7, 1)])
def test_pictures_too_small_are_refused(shape):
    with pytest.raises(SpaceError, match="at least 8 pixels"):
        CNNReward(frames(*shape), ACTIONS, seed=0)
