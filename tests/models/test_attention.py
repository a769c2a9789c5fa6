"""Attention in parts against torch's own, its gradients, and what it may look at."""

import pytest
import torch
import torch.nn.functional as F

from preferl.models import attention
from preferl.models.attention import Attend, causal_bias

HEADS = 2
WIDTH = 8


def draws(*shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes
    ]


def naive(query, both, bias):
    q, k, v = (
        part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (query, *both.chunk(2, -1))
    )
    got = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    return got.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("rows", [2, 100])
@pytest.mark.parametrize(("every", "size"), [(1, 7), (2, 14)])
def test_parts_equal_the_whole(rows, every, size, monkeypatch):
    monkeypatch.setattr(attention, "ROWS", rows)
    real = torch.ones(3, size, dtype=torch.bool)
    real[1, :2] = False
    real[2, : size - 2] = False
    bias = causal_bias(real)[:, :, every - 1 :: every].double()
    query, both = draws((3, size // every, WIDTH), (3, size, 2 * WIDTH))
    got = Attend.apply(query, both, bias, HEADS, 0.0)
    expected = naive(query, both, bias)
    torch.testing.assert_close(got, expected)
    upstream = torch.linspace(-1, 1, got.numel(), dtype=torch.float64).view_as(got)
    for one, other in zip(
        torch.autograd.grad(got, (query, both), upstream),
        torch.autograd.grad(expected, (query, both), upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_gradients_with_dropout_are_those_of_what_was_computed(monkeypatch):
    monkeypatch.setattr(attention, "ROWS", 2)
    bias = causal_bias(torch.ones(1, 6, dtype=torch.bool)).double()[:, :, 1::2]
    inputs = draws((2, 3, WIDTH), (2, 6, 2 * WIDTH))

    def repeated(query, both):
        with torch.random.fork_rng():
            torch.manual_seed(5)
            return Attend.apply(query, both, bias, HEADS, 0.4)

    assert not torch.allclose(repeated(*inputs), naive(*inputs, bias))
    assert torch.autograd.gradcheck(repeated, inputs)


def test_what_may_be_seen():
    real = torch.tensor([[False, True, True]])
    seen = (causal_bias(real) == 0)[0, 0].int().tolist()
    assert seen == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
