"""Gradients that are written out, beside autograd's."""

import pytest
import torch

from preferl.offline.networks import Networks

NETWORKS, ROWS = 3, 16


def built(sizes, *, precision="float32"):
    networks = Networks(sizes, NETWORKS, precision=precision, device="cpu")
    for k in range(NETWORKS):
        networks.initialise(k, torch.Generator().manual_seed(k))
    for name, tensor in networks.parameters.named.items():
        if name.startswith("bias"):
            tensor.normal_(std=0.1)
    networks.parameters.refresh()
    return networks


def reference(networks, inputs, dropout=None):
    """Outputs `[N, out, B]` with a graph, and the parameters they depend on."""
    named = {k: v.clone().requires_grad_() for k, v in networks.parameters.named.items()}
    last, below = len(named) // 2 - 1, inputs
    for layer in range(last):
        below = torch.relu(below @ named[f"weight_{layer}"] + named[f"bias_{layer}"])
        below = below if dropout is None else below * dropout[layer]
    outputs = below @ named[f"weight_{last}"].mT + named[f"bias_{last}"].mT
    return outputs.mT, named


SIZES = [(5, 1), (5, 8, 1), (5, 8, 3), (5, 8, 6, 1), (5, 8, 6, 7, 2)]


@pytest.mark.parametrize("dropped", [0.0, 0.25])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_outputs_and_gradients_are_those_of_autograd(sizes, dropped):
    networks, keep = built(sizes), 1 - dropped
    inputs = torch.randn(NETWORKS, ROWS, 5)
    dropout = [torch.bernoulli(torch.full((NETWORKS, ROWS, n), keep)) / keep for n in sizes[1:-1]]
    record = networks.record(ROWS)
    outputs, named = reference(networks, inputs, dropout)
    got = networks.forward(inputs, record, dropout if dropped else None)
    torch.testing.assert_close(got, outputs.detach())
    gradient = torch.randn_like(outputs)
    outputs.backward(gradient)
    networks.backward(gradient, record, keep)
    assert set(named) == set(networks.optimiser.gradients)
    for name, tensor in named.items():
        torch.testing.assert_close(
            networks.optimiser.gradients[name], tensor.grad, atol=1e-5, rtol=1e-4
        )


def test_lower_precision_stays_close():
    sizes = (5, 64, 64, 64, 2)
    networks, low = built(sizes), built(sizes, precision="bfloat16")
    low.parameters.values.copy_(networks.parameters.values)
    low.parameters.refresh()
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(NETWORKS, ROWS, 5, generator=draw)
    gradient = torch.randn(NETWORKS, 2, ROWS, generator=draw)
    for some in (networks, low):
        record = some.record(ROWS)
        outputs = some.forward(inputs, record).clone()
        some.backward(gradient, record)
        if some is networks:
            exact = outputs
    assert 0 < (outputs - exact).abs().max() < 0.05 * exact.abs().max()
    for name, tensor in networks.optimiser.gradients.items():
        other = low.optimiser.gradients[name]
        assert torch.cosine_similarity(tensor.flatten(), other.flatten(), dim=0) > 0.995, name


def test_first_weights_are_orthogonal_and_each_network_has_its_own():
    networks = Networks((4, 8, 8, 2), 2, precision="float32", device="cpu")
    for k in range(2):
        networks.initialise(k, torch.Generator().manual_seed(k))
    named = networks.parameters.named
    for name in ("weight_0", "weight_1", "weight_2"):
        first, second = named[name]
        wide = first if len(first) <= first.shape[1] else first.T
        torch.testing.assert_close(wide @ wide.T, 2 * torch.eye(len(wide)))  # gain √2
        assert not torch.allclose(first, second)
    assert all((named[f"bias_{k}"] == 0).all() for k in range(3))


def test_the_optimiser_is_adam_and_leaves_room_alone():
    networks = built((3, 5, 1))
    twin = {k: v.clone().requires_grad_() for k, v in networks.parameters.named.items()}
    adam = torch.optim.Adam(twin.values(), lr=1e-2)
    for _ in range(5):
        for name, tensor in twin.items():
            tensor.grad = torch.randn_like(tensor)
            networks.optimiser.gradients[name].copy_(tensor.grad)
        adam.step()
        networks.optimiser.step(1e-2)
    for name, tensor in twin.items():
        torch.testing.assert_close(networks.parameters.named[name], tensor.detach())
    used = sum(tensor.numel() for tensor in twin.values())
    assert (networks.parameters.values != 0).sum() <= used < len(networks.parameters.values)
