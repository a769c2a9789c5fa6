"""MR and NMR equal the published implementation: forward, and twenty steps of training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from preferl.functional import preference_logits, preference_loss
from preferl.models import LSTMReward, LSTMRewardConfig, MLPReward, MLPRewardConfig, load_flax
from preferl.models.flax import flax_places


def arrays(shared: Path, name: str) -> dict[str, Any]:
    file = shared / "golden" / "preference_transformer" / f"{name}.npz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not among the shared arrays")
    return dict(np.load(file))


def boxes(golden: dict[str, Any]) -> tuple[spaces.Box, spaces.Box]:
    shapes = (golden[f"in:{name}"].shape[-1:] for name in ("observations", "actions"))
    first, second = (spaces.Box(-np.inf, np.inf, shape) for shape in shapes)
    return first, second


def mr(golden: dict[str, Any], hidden: tuple[int, ...], **settings: Any) -> MLPReward:
    config = MLPRewardConfig(
        hidden, pooling="mean", normalise=False, **{"activation": "relu", **settings}
    )
    return MLPReward(*boxes(golden), config, seed=0)


def nmr(golden: dict[str, Any], width: int) -> LSTMReward:
    config = LSTMRewardConfig(width, normalise=False)
    return LSTMReward(*boxes(golden), config, seed=0)


def stored(golden: dict[str, Any]) -> dict[str, Any]:
    return {name: array for name, array in golden.items() if name.startswith("param:")}


def drawn(model: MLPReward | LSTMReward, golden: dict[str, Any]) -> dict[str, Any]:
    """Parameters from the seed in the file, with the sums it holds."""
    stream = np.random.RandomState(json.loads(str(golden["meta"]))["param_seed"])
    places = flax_places(model)
    names = sorted(places)
    assert names == golden["param_names"].tolist()
    found = {}
    for name in names:
        numbers = stream.standard_normal(places[name].shape)
        kernel = name.endswith("kernel")
        scaled = numbers / np.sqrt(len(numbers)) if kernel else 0.1 * numbers
        found[name] = scaled.astype(np.float32)
    sums = [found[name].sum(dtype=np.float64) for name in names]
    np.testing.assert_allclose(sums, golden["param_sum"], atol=1e-9)
    return found


def judge(model: MLPReward | LSTMReward, golden: dict[str, Any], suffix: str = "") -> Any:
    steps = (
        torch.from_numpy(golden[f"in:{name}{suffix}"]).view(
            *golden[f"in:{name}{suffix}"].shape[:-1], -1
        )
        for name in ("observations", "actions")
    )
    observations, actions = (s if s.ndim == 3 else s[:, None] for s in steps)
    return model(observations, actions, torch.ones(actions.shape[:2], dtype=torch.bool))


@pytest.mark.parametrize(("name", "hidden"), [("mr_small", (64, 32)), ("mr_default", (256, 256))])
@pytest.mark.parametrize(
    ("array", "settings"),
    [
        ("reward", {}),
        ("reward_leaky_tanh", {"activation": "leaky_relu", "bounded": True}),
    ],
)
def test_markovian_rewards(shared, name, hidden, array, settings):
    golden = arrays(shared, name)
    model = mr(golden, hidden, **settings)
    load_flax(model, stored(golden) or drawn(model, golden))
    with torch.no_grad():
        rewards = judge(model, golden).rewards[0, :, 0]
    np.testing.assert_allclose(rewards, golden[f"out:{array}"], atol=1e-6)


@pytest.mark.parametrize(("name", "width"), [("nmr_small", 64), ("nmr_default256", 256)])
def test_rewards_of_history(shared, name, width):
    golden = arrays(shared, name)
    model = nmr(golden, width).eval()
    load_flax(model, stored(golden) or drawn(model, golden))
    hidden: list[Tensor] = []
    model.lstm.register_forward_hook(lambda _, __, outputs: hidden.append(outputs))
    with torch.no_grad():
        # Where the original was fed padding, its zeros are passed as real steps here.
        rewards = judge(model, golden).rewards[0]
    np.testing.assert_allclose(rewards, golden["out:reward"], atol=1e-6)
    if "out:lstm_hidden" in golden:
        np.testing.assert_allclose(hidden[0], golden["out:lstm_hidden"], atol=1e-6)
    else:
        np.testing.assert_allclose(hidden[0][:, -1], golden["out:lstm_hidden_last"], atol=1e-6)


def scores(model: MLPReward | LSTMReward, golden: dict[str, Any], rows: slice) -> Tensor:
    """`[B, 2]` of the two segments of some pairs."""
    some = {name: array[rows] for name, array in golden.items() if name.startswith("in:")}
    return torch.stack([judge(model, some, suffix).scores[0] for suffix in ("", "_2")], dim=-1)


@pytest.mark.parametrize("name", ["mr", "nmr"])
def test_training(shared, name):
    golden = arrays(shared, f"train_{name}")
    initial = arrays(shared, f"{name}_small")
    # Their evaluations draw dropout too, so it is off throughout.
    model = mr(golden, (64, 32)) if name == "mr" else nmr(golden, 64).eval()
    load_flax(model, stored(initial))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-4 if name == "mr" else 1e-3)
    preference = torch.from_numpy(golden["in:labels"][:, 0])
    parts = [slice(0, 8), slice(8, 14)]

    def loss_of(rows: slice) -> Tensor:
        logits = preference_logits(scores(model, golden, rows))
        return preference_loss(logits, preference[rows])

    def evaluate() -> list[float]:
        with torch.no_grad():
            return [loss_of(rows).item() for rows in parts]

    evaluated, losses = [evaluate()], []
    for step in range(20):
        loss = loss_of(parts[step % 2])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    evaluated.append(evaluate())
    np.testing.assert_allclose(losses, golden["out:loss"], atol=1e-4)
    np.testing.assert_allclose(evaluated, golden["out:eval_loss_before_after"], atol=1e-4)
    for path, place in flax_places(model).items():
        if f"after20:{path}" in golden:
            after = golden[f"after20:{path}"]
            np.testing.assert_allclose(place.detach(), after, atol=5e-5)
