"""Many perceptrons at once: beside one after the other, in lower precision, and their Adam."""

import pytest
import torch

from preferl.offline.networks import Networks

NETWORKS = 3
ROWS = 16


def built(sizes, *, precision="float32"):
    networks = Networks(sizes, NETWORKS, precision=precision, device="cpu")
    for k in range(NETWORKS):
        networks.initialise(k, torch.Generator().manual_seed(k))
    generator = torch.Generator().manual_seed(0)
    for name, tensor in networks.parameters.items():
        if name.startswith("bias"):
            torch.nn.init.normal_(tensor, std=0.1, generator=generator)
    return networks


def alone(networks, number, inputs, dropout=None):
    """Outputs `[out, B]` of one network, as its layers are usually written."""
    layers = networks.layers(number)
    below = inputs[number]
    last = len(layers) // 2 - 1
    for layer in range(last):
        below = torch.relu(below @ layers[f"weight_{layer}"].T + layers[f"bias_{layer}"])
        below = below if dropout is None else below * dropout[layer][number]
    return (below @ layers[f"weight_{last}"].T + layers[f"bias_{last}"]).T


SIZES = [(5, 1), (5, 8, 3), (5, 8, 6, 7, 2)]


@pytest.mark.parametrize("dropped", [0.0, 0.25])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_outputs_are_those_of_each_network_alone(sizes, dropped):
    networks = built(sizes)
    keep = 1 - dropped
    inputs = torch.randn(NETWORKS, ROWS, 5)
    drawn = [torch.bernoulli(torch.full((NETWORKS, ROWS, n), keep)) / keep for n in sizes[1:-1]]
    dropout = drawn if dropped else None
    got = networks.forward(inputs, dropout)
    for number in range(NETWORKS):
        torch.testing.assert_close(got[number], alone(networks, number, inputs, dropout))
    gradients = torch.autograd.grad(got.square().sum(), networks.parameters.values())
    assert all((gradient != 0).any() for gradient in gradients)


def test_lower_precision_stays_close():
    sizes = (5, 64, 64, 64, 2)
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(NETWORKS, ROWS, 5, generator=draw)
    gradient = torch.randn(NETWORKS, 2, ROWS, generator=draw)
    found = []
    for precision in ("float32", "bfloat16"):
        networks = built(sizes, precision=precision)
        outputs = networks.forward(inputs)
        by_name = torch.autograd.grad(outputs, networks.parameters.values(), gradient)
        found.append((outputs.detach(), by_name))
    (exact, gradients), (outputs, low) = found
    assert 0 < (outputs - exact).abs().max() < 0.05 * exact.abs().max()
    for one, other in zip(gradients, low, strict=True):
        assert torch.cosine_similarity(one.flatten(), other.flatten(), dim=0) > 0.995


def test_first_weights_are_orthogonal_and_each_network_has_its_own():
    networks = Networks((4, 8, 8, 2), 2, precision="float32", device="cpu")
    for k in range(2):
        networks.initialise(k, torch.Generator().manual_seed(k))
    named = {name: tensor.detach() for name, tensor in networks.parameters.items()}
    for name in ("weight_0", "weight_1", "weight_2"):
        first, second = named[name]
        wide = first if len(first) <= first.shape[1] else first.T
        torch.testing.assert_close(wide @ wide.T, 2 * torch.eye(len(wide)))  # gain √2
        assert not torch.allclose(first, second)
    assert all((named[f"bias_{k}"] == 0).all() for k in range(3))
