import pytest
import torch
from torch import nn

from preferl.models.attention import Perceptron
from preferl.models.fast_transformer import affine, normalisation, perceptron, through

ROWS = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        yield


def test_an_affine_layer_is_a_linear_module():
    layer = nn.Linear(6, 3)
    torch.testing.assert_close(affine(layer.weight, layer.bias)(ROWS), layer(ROWS))


def test_a_normalisation_is_its_module_with_weights_and_epsilon():
    norm = nn.LayerNorm(6, eps=0.1)
    for parameter in norm.parameters():
        parameter.normal_()
    torch.testing.assert_close(normalisation(norm)(ROWS), norm(ROWS))


def test_layers_follow_one_another_in_order():
    double_then_add = [lambda rows: 2 * rows, lambda rows: rows + 1]
    torch.testing.assert_close(through(double_then_add, ROWS), 2 * ROWS + 1)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_prepared_perceptron_gives_the_same_and_leaves_its_input_alone(activation):
    layers = Perceptron((6, 9, 2), activation, torch.Generator().manual_seed(0))
    rows = ROWS.clone()
    torch.testing.assert_close(through(perceptron(layers), rows), layers(ROWS))
    assert torch.equal(rows, ROWS)
