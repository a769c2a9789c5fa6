"""The batched perceptron against one `nn.Sequential` per member."""

from dataclasses import replace

import pytest
import torch
from gymnasium import spaces
from torch import nn

from preferl.models import MLPReward, MLPRewardConfig
from preferl.testing import check_reward_model

OBSERVATIONS = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Box(-1, 1, (2,))
LAYERS = {"relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


def sequential(model: MLPReward, member: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for weight, bias in zip(model.networks.weights, model.networks.biases, strict=True):
        if layers:
            layers += [LAYERS[model.config.activation](), nn.Dropout(model.config.dropout)]
        linear = nn.Linear(*weight.shape[1:])
        linear.load_state_dict({"weight": weight[member].T, "bias": bias[member, 0]})
        layers.append(linear)
    return nn.Sequential(*layers)


def windows(rows: int = 7, length: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    observations = torch.randn(rows, length, 3, generator=generator)
    actions = torch.randn(rows, length, 2, generator=generator)
    mask = torch.arange(length) >= torch.arange(rows)[:, None] % length
    return observations, actions, mask


@pytest.mark.parametrize("rows", [7, 400])  # below and above the size where the layout changes
@pytest.mark.parametrize("activation", list(LAYERS))
def test_each_member_is_the_perceptron_of_its_weights(activation, rows):
    config = MLPRewardConfig(hidden=(8, 5), members=3, activation=activation)
    model = MLPReward(OBSERVATIONS, ACTIONS, config, seed=0).eval()
    observations, actions, mask = windows(rows)
    features = torch.cat([observations, actions], dim=-1)
    output = model(observations, actions, mask)
    for member in range(3):
        rewards = sequential(model, member)(features)[..., 0]
        torch.testing.assert_close(output.rewards[member], rewards)
        torch.testing.assert_close(output.scores[member], (rewards * mask).sum(-1))


@pytest.mark.parametrize("rows", [7, 400])
def test_gradients_are_those_of_the_perceptrons(rows):
    model = MLPReward(OBSERVATIONS, ACTIONS, MLPRewardConfig(hidden=(8, 5), members=2), seed=0)
    observations, actions, mask = windows(rows)
    model(observations, actions, mask).scores.square().mean(1).sum().backward()
    for member in range(2):
        alone = sequential(model, member)
        rewards = alone(torch.cat([observations, actions], dim=-1))[..., 0]
        (rewards * mask).sum(-1).square().mean().backward()
        linears = [layer for layer in alone if isinstance(layer, nn.Linear)]
        for index, linear in enumerate(linears):
            weight = model.networks.weights[index]
            bias = model.networks.biases[index]
            torch.testing.assert_close(weight.grad[member].T, linear.weight.grad)
            torch.testing.assert_close(bias.grad[member, 0], linear.bias.grad)


@pytest.mark.parametrize(
    "config",
    [
        MLPRewardConfig(),
        MLPRewardConfig(hidden=(), members=2),
        MLPRewardConfig(members=3, pooling="mean", discount=0.9, activation="tanh"),
        MLPRewardConfig(bounded=True, dropout=0.5, normalise=False, activation="gelu"),
        MLPRewardConfig(use_actions=False, hidden=(16,), activation="relu"),
    ],
)
def test_every_shape_keeps_the_contract(config):
    check_reward_model(MLPReward(OBSERVATIONS, ACTIONS, config, seed=0))


def test_initial_weights_are_of_the_size_that_linear_layers_have():
    config = MLPRewardConfig(hidden=(400,), members=2)
    model = MLPReward(OBSERVATIONS, ACTIONS, config, seed=0)
    for parameter in (model.networks.weights[0], model.networks.biases[0]):
        assert parameter.abs().max() <= 5**-0.5
        assert parameter.std().item() == pytest.approx(5**-0.5 / 3**0.5, rel=0.1)
    assert model.networks.weights[1].abs().max() <= 400**-0.5
    assert not torch.equal(*model.networks.weights[0].detach())


def test_a_seed_makes_the_same_weights_and_touches_no_global_stream():
    before = torch.random.get_rng_state()
    one, same, other = (MLPReward(OBSERVATIONS, ACTIONS, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name])
    assert not torch.equal(one.networks.weights[0], other.networks.weights[0])


def test_bounded_rewards_are_the_hyperbolic_tangent_of_unbounded_ones():
    free = MLPReward(OBSERVATIONS, ACTIONS, seed=0)
    bounded = MLPReward(OBSERVATIONS, ACTIONS, replace(free.config, bounded=True), seed=0)
    rewards = free(*windows()).rewards
    torch.testing.assert_close(bounded(*windows()).rewards, torch.tanh(rewards))


def test_actions_can_be_left_out():
    model = MLPReward(OBSERVATIONS, ACTIONS, MLPRewardConfig(use_actions=False), seed=0).eval()
    observations, actions, mask = windows()
    assert torch.equal(
        model(observations, actions, mask).rewards, model(observations, actions + 9, mask).rewards
    )


@pytest.mark.parametrize("rows", [7, 400])
def test_dropout_differs_between_members_and_only_in_training(rows):
    config = MLPRewardConfig(members=2, dropout=0.5, hidden=(32,))
    model = MLPReward(OBSERVATIONS, ACTIONS, config, seed=0)
    with torch.no_grad():
        for parameter in model.networks.parameters():
            parameter[1] = parameter[0]
    model.eval()
    first, second = model(*windows(rows)).rewards
    torch.testing.assert_close(first, second)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model.train()
        first, second = model(*windows(rows)).rewards
    assert not torch.allclose(first, second)
