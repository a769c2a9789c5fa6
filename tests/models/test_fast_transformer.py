"""The algebra of the fast way to relabel: against the normalisations and windows it stands for."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.models import PreferenceTransformer, PreferenceTransformerConfig
from preferl.models.base import trace_windows
from preferl.models.fast_transformer import OneBlock
from preferl.registry import Registry
from preferl.training import RewardFunction


def model_of(observation, action, *, noise=0.3, **settings):
    boxes = spaces.Box(-1, 1, (observation,)), spaces.Box(-1, 1, (action,))
    config = PreferenceTransformerConfig(**{"normalise": False, **settings})
    model = PreferenceTransformer(*boxes, config, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(noise * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def steps(count, features, scale=1.0):
    return scale * torch.randn(count, features, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("observation", "action", "scale", "noise"),
    [
        (11, 3, 1000.0, 0.3),  # raw sensors
        (11, 3, 1e-3, 2.0),  # places outweigh steps
        (111, 8, 5.0, 0.3),  # more features than a head is wide
        (1, 1, 0.0, 0.0),  # all steps alike
    ],
)
def test_the_published_size_equals_a_window_per_step(observation, action, scale, noise):
    model = model_of(observation, action, noise=noise)
    features = steps(260, observation + action, scale)
    lengths = torch.tensor([130, 30, 100])
    some = torch.tensor([0, 50, 98, 99, 100, 101, 115, 129, 130, 159, 160, 259])
    traced = model.trace(features, lengths)[:, some]
    plain = trace_windows(model, features, lengths, some)
    torch.testing.assert_close(traced, plain, atol=5e-6, rtol=1e-5)


@pytest.fixture
def without_engines(monkeypatch):
    monkeypatch.setattr("preferl.models.transformer.ENGINES", Registry("engine", {}))
    monkeypatch.setitem(sys.modules, "preferl.models.fast_transformer", None)  # as if deleted


@pytest.mark.parametrize("head", ["preference", "plain"])
def test_the_library_works_without_the_engine(head, request):
    model = model_of(4, 2, width=16, heads=2, context=5, head=head)
    features = steps(40, 6)
    lengths = torch.tensor([3, 17, 20])
    windows = features[:15].view(3, 5, 6)
    mask = np.arange(5) >= [[0], [2], [4]]
    assert isinstance(model.last_rewards(), OneBlock)
    fast = model.trace(features, lengths), model.last_rewards()(windows, mask)
    request.getfixturevalue("without_engines")
    plain = model.trace(features, lengths), model.last_rewards()(windows, mask)
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, atol=5e-6, rtol=1e-5)
    rewards = RewardFunction(model)(windows[..., :4].numpy(), windows[..., 4:].numpy(), mask)
    torch.testing.assert_close(torch.tensor(rewards), fast[1][0], atol=5e-6, rtol=1e-5)


PEAK = """
import resource, sys
import numpy as np
from gymnasium import spaces
from preferl.data import Episodes
from preferl.models import PreferenceTransformer
from preferl.training import RewardFunction, relabel

steps, length = 80_000, 1_000
rng = np.random.default_rng(0)
data = Episodes(
    rng.standard_normal((steps, 11), np.float32),
    rng.uniform(-1, 1, (steps, 3)).astype(np.float32),
    np.zeros(steps, np.float32),
    np.zeros(steps, bool),
    np.zeros((steps // length, 11), np.float32),
    np.full(steps // length, length),
)
boxes = spaces.Box(-np.inf, np.inf, (11,)), spaces.Box(-1, 1, (3,))
reward = RewardFunction(PreferenceTransformer(*boxes, seed=0))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert np.isfinite(relabel(data, reward).rewards).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_is_bounded_however_many_steps():
    done = subprocess.run(
        [sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, timeout=600
    )
    # A window per step at once would be 80,000 * 100 * 14 numbers, 450 MB.
    assert int(done.stdout) < 120 * 1024
