from functools import partial

import pytest
import torch
from torch import nn

from preferl.models.blocks import ACTIVATIONS, MANY_ROWS, Perceptrons, kept

SIZES = (7, 8, 5, 2)
MODULES = {"relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def build(members, *, sizes=SIZES, activation="leaky_relu", dropout=0.0):
    return Perceptrons(
        sizes,
        members,
        activation=activation,
        dropout=dropout,
        generator=torch.Generator().manual_seed(0),
    )


def plain(networks, member):
    """One member as torch's own modules."""
    layers = []
    for weight, bias in zip(networks.weights, networks.biases, strict=True):
        layer = nn.Linear(*weight.shape[1:], dtype=weight.dtype)
        layer.load_state_dict({"weight": weight[member].T, "bias": bias[member, 0]})
        layers += [layer, MODULES[networks.activation]()]
    return nn.Sequential(*layers[:-1])


def gradients(parameters, loss):
    return list(torch.autograd.grad(loss, list(parameters)))


def uneven(output):
    """A loss whose gradient differs from place to place."""
    return (output * torch.linspace(-1, 1, output.numel()).view_as(output).to(output)).sum()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("members", "rows"), [(3, 1), (1, MANY_ROWS), (3, MANY_ROWS + 3)])
def test_each_member_is_a_plain_perceptron(activation, members, rows):
    networks = build(members, activation=activation).double()
    features = torch.randn(rows, SIZES[0], dtype=torch.float64, requires_grad=True)
    assert networks(features).shape == (members, rows, SIZES[-1])
    close = partial(torch.testing.assert_close, rtol=1e-6, atol=1e-6)
    for member in range(members):
        expected = plain(networks, member)
        close(networks(features)[member], expected(features))
        own = gradients([features, *networks.parameters()], uneven(networks(features)[member]))
        linear = gradients([features, *expected.parameters()], uneven(expected(features)))
        close(own[0], linear[0])
        layers = len(networks.weights)
        for index in range(layers):
            close(own[1 + index][member].T, linear[1 + 2 * index])
            close(own[1 + layers + index][member, 0], linear[2 + 2 * index])


@pytest.mark.parametrize("rows", [64, MANY_ROWS])
def test_dropout_is_drawn_for_each_member_and_only_in_training(rows):
    networks = build(2, sizes=(3, 50, 1), dropout=0.5)
    with torch.no_grad():
        for layer in networks.parameters():
            layer[1] = layer[0]
    features = torch.randn(rows, 3)
    first, second = networks(features)
    assert not torch.allclose(first, second)
    calm = networks.eval()(features)
    torch.testing.assert_close(calm[0], calm[1])
    networks.train()
    drawn = torch.stack([networks(features) for _ in range(200)]).mean(0)
    torch.testing.assert_close(drawn, calm.expand_as(drawn), rtol=0.1, atol=0.1)


def test_weights_are_drawn_as_linear_layers_draw_them():
    networks = build(4, sizes=(100, 50, 1))
    for weight, fan_in in zip(networks.weights, (100, 50), strict=True):
        bound = fan_in**-0.5
        assert weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


@pytest.mark.parametrize(("share", "dtype"), [(0.1, torch.bfloat16), (0.9, torch.float32)])
def test_the_share_that_is_dropped(share, dtype):
    ones = kept(torch.zeros(1000, 401, dtype=dtype), share)
    assert ones.dtype == dtype
    assert ones.shape == (1000, 401)
    assert set(ones.unique().tolist()) == {0.0, 1.0}
    deviation = (share * (1 - share) / ones.numel()) ** 0.5
    assert float(1 - ones.double().mean()) == pytest.approx(share, abs=5 * deviation)


def test_decisions_are_independent_of_neighbours_and_of_the_next_draw():
    first, second = (kept(torch.zeros(400_000), 0.3) - 0.7 for _ in range(2))
    for one, other in [(first, second), *((first[:-lag], first[lag:]) for lag in (1, 2, 3, 4, 8))]:
        correlation = float((one * other).mean()) / 0.21
        assert abs(correlation) < 5 / 400_000**0.5
