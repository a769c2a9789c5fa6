"""Dropout drops as often as asked, anywhere, independently, and keeps means."""

import pytest
import torch

from preferl.models.blocks import kept


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


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
