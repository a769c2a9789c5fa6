"""MR and NMR equal the published implementation: forward, and twenty steps of training."""

from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces

from helpers.golden_arrays import arrays, drawn, stored
from helpers.golden_gradients import determined, rounding_spread
from preferl.functional import preference_logits, preference_loss
from preferl.models import LSTMReward, LSTMRewardConfig, MLPReward, MLPRewardConfig, load_flax
from preferl.models.flax import flax_places


def boxes(golden):
    shapes = (golden[f"in:{name}"].shape[-1:] for name in ("observations", "actions"))
    first, second = (spaces.Box(-np.inf, np.inf, shape) for shape in shapes)
    return first, second


def mr(golden, hidden, **settings):
    config = MLPRewardConfig(
        hidden, pooling="mean", normalise=False, **{"activation": "relu", **settings}
    )
    return MLPReward(*boxes(golden), config, seed=0)


def nmr(golden, width):
    config = LSTMRewardConfig(width, normalise=False)
    return LSTMReward(*boxes(golden), config, seed=0)


def judge(model, golden, suffix=""):
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
    hidden = []
    model.lstm.register_forward_hook(lambda _, __, outputs: hidden.append(outputs))
    with torch.no_grad():
        # Where the original was fed padding, its zeros are passed as real steps here.
        rewards = judge(model, golden).rewards[0]
    np.testing.assert_allclose(rewards, golden["out:reward"], atol=1e-6)
    if "out:lstm_hidden" in golden:
        np.testing.assert_allclose(hidden[0], golden["out:lstm_hidden"], atol=1e-6)
    else:
        np.testing.assert_allclose(hidden[0][:, -1], golden["out:lstm_hidden_last"], atol=1e-6)


BATCHES = [slice(0, 8), slice(8, 14)]
HEAD = {"mr": "FullyConnectedNetwork_0/Dense_2/bias", "nmr": "Dense_6/bias"}
"""What is added to every reward, and so to the scores of both segments."""


def scores_of(model, golden, rows):
    """`[B, 2]` of the two segments of a batch of pairs."""
    some = {name: array[rows] for name, array in golden.items() if name.startswith("in:")}
    return torch.stack([judge(model, some, suffix).scores[0] for suffix in ("", "_2")], dim=-1)


def loss_of(model, golden, rows):
    """Of a batch of pairs."""
    preference = torch.from_numpy(golden["in:labels"][rows, 0])
    return preference_loss(preference_logits(scores_of(model, golden, rows)), preference)


def mixed_loss_of(model, golden, rows, seed=0):
    """The same with all segments in one call, in an order of their own: it rounds otherwise."""
    preference = torch.from_numpy(golden["in:labels"][rows, 0])
    segments = {
        f"in:{kind}": np.concatenate([golden[f"in:{kind}{suffix}"][rows] for suffix in ("", "_2")])
        for kind in ("observations", "actions")
    }
    order = np.random.default_rng(seed).permutation(2 * len(preference))
    mixed = judge(model, {name: array[order] for name, array in segments.items()}).scores[0]
    first, second = mixed[torch.from_numpy(np.argsort(order))].chunk(2)
    return preference_loss(first - second, preference)


def trained(model, golden, name, loss_of=loss_of):
    """Twenty updates of a model in place, as the files record them."""
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-4 if name == "mr" else 1e-3)

    def evaluate():
        with torch.no_grad():
            return [loss_of(model, golden, rows).item() for rows in BATCHES]

    evaluated = [evaluate()]
    losses = []
    for step in range(20):
        loss = loss_of(model, golden, BATCHES[step % 2])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    after = {f"after20:{path}": p.detach().numpy() for path, p in flax_places(model).items()}
    evaluated.append(evaluate())
    return {"out:loss": losses, "out:eval_loss_before_after": evaluated, **after}


def fresh(golden, name):
    # Their evaluations draw dropout too, so it is off throughout.
    return mr(golden, (64, 32)) if name == "mr" else nmr(golden, 64).eval()


def check_training(golden, parameters, name):
    """That training from these parameters comes to what was recorded."""
    model = fresh(golden, name)
    load_flax(model, parameters)
    losses = [partial(loss_of, golden=golden, rows=rows) for rows in BATCHES]
    counts = determined(
        model, flax_places, losses, lambda twin: scores_of(twin, golden, slice(None)).sum()
    )
    # Units that are on at every step shift all scores alike by their biases, too.
    assert not counts[HEAD[name]].any()
    start = deepcopy(model)
    found = trained(model, golden, name)

    def again(twin, seed):
        return trained(twin, golden, name, partial(mixed_loss_of, seed=seed))

    spread = rounding_spread(again, start, found)
    for array in ("out:loss", "out:eval_loss_before_after"):
        allowed = 1e-4 + 3 * spread[array]
        assert (np.abs(np.subtract(found[array], golden[array])) <= allowed).all(), array
    for path, numbers in counts.items():
        if (key := f"after20:{path}") in golden:
            allowed = 5e-5 + 3 * spread[key]
            close = np.abs(found[key] - golden[key]) <= allowed
            assert close[numbers].all(), path


@pytest.mark.parametrize("name", ["mr", "nmr"])
def test_training(shared, name):
    golden = arrays(shared, f"train_{name}")
    check_training(golden, stored(arrays(shared, f"{name}_small")), name)
