"""The Preference Transformer equals the published implementation: forward, maps and training."""

from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from helpers.golden_arrays import arrays, drawn, stored
from helpers.golden_gradients import determined, doubled
from preferl.functional import preference_logits, preference_loss
from preferl.models import PreferenceTransformer, PreferenceTransformerConfig, load_flax
from preferl.models.flax import flax_places
from preferl.training.configs import CosineSchedule

SMALL = ["pt_small_ws", "pt_small_mlp"]
DEFAULT = ["pt_default256_ws", "pt_default256_mlp"]
TRAINED = ["train_pt_ws", "train_pt_mlp", "train_pt_ws_sum"]


def transformer(golden, like, **settings):
    """A model for a file's steps, of the shape that the description of parameters says."""
    shapes = (golden[f"in:{name}"].shape[-1] for name in ("observations", "actions"))
    config = PreferenceTransformerConfig(
        width=like["n_embd"],
        layers=like["n_layer"],
        heads=like["n_head"],
        head="preference" if like["use_weighted_sum"] else "plain",
        preference_width=like["pref_attn_embd_dim"],
        context=golden["in:timestep" if "in:timestep" in golden else "in:timestep_1"].shape[1],
        positions=like["max_episode_steps"],
        normalise=False,
        **settings,
    )
    boxes = [spaces.Box(-np.inf, np.inf, (size,)) for size in shapes]
    return PreferenceTransformer(boxes[0], boxes[1], config, seed=0).eval()


def steps(golden, rows=slice(None)):
    observations, actions, mask = (
        torch.from_numpy(golden[f"in:{name}"][rows])
        for name in ("observations", "actions", "attn_mask")
    )
    return observations, actions, mask > 0


@pytest.fixture(params=SMALL)
def golden(request, shared):
    return arrays(shared, request.param)


@pytest.fixture
def model(golden):
    model = transformer(golden, golden["meta"])
    load_flax(model, stored(golden))
    return model


def expected_scores(golden, mask):
    """Means over real rows only; the original, which trains on full windows, takes all rows."""
    rows = golden["out:weighted_sum" if "out:weighted_sum" in golden else "out:value"]
    return (rows * mask).sum(1) / mask.sum(1)


def check_forward(model, golden, tolerance):
    *step, mask = steps(golden)
    with torch.no_grad():
        output = model(*step, mask)
    real = mask.numpy()
    full = mask.numpy().all(1)
    rewards = output.rewards[0].numpy()
    scores = output.scores[0].numpy()
    np.testing.assert_allclose(rewards[real], golden["out:value"][real], atol=tolerance)
    np.testing.assert_allclose(scores, expected_scores(golden, real), atol=tolerance)
    assert full.any()
    mean = golden["out:segment_score_mean"]
    np.testing.assert_allclose(scores[full], mean[full], atol=tolerance)


def test_rewards_and_scores(model, golden):
    check_forward(model, golden, 2e-5)


@pytest.mark.parametrize("pooling", ["sum", "last"])
def test_other_poolings(model, golden, pooling):
    other = transformer(golden, golden["meta"], pooling=pooling)
    other.load_state_dict(model.state_dict())
    full = golden["in:attn_mask"].all(1)
    with torch.no_grad():
        scores = other(*steps(golden, full)).scores[0].numpy()
    rows = golden["out:weighted_sum" if "out:weighted_sum" in golden else "out:value"][full]
    if pooling == "last":
        np.testing.assert_allclose(scores, rows[:, -1], atol=2e-5)
        return
    expected = golden.get("out:segment_score_sum", golden["out:segment_score_mean"] * 10)[full]
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_where_it_looks(model, golden):
    observations, actions, mask = steps(golden)
    looks = model.attention(model.encoder(observations, actions), mask)
    real = mask.numpy()
    tokens = real.repeat(2, axis=1)
    for index, shares in enumerate(looks.layers):
        rows = shares.numpy().swapaxes(1, 2)[tokens]
        expected = golden[f"out:attn_{index}"].swapaxes(1, 2)[tokens]
        np.testing.assert_allclose(rows, expected, atol=1e-5)
    if looks.preference is None:
        return
    expected = golden[f"out:attn_{len(looks.layers)}"][:, 0]
    np.testing.assert_allclose(looks.preference.numpy()[real], expected[real], atol=1e-5)
    weights = (expected * real[:, :, None]).sum(1) / real.sum(1)[:, None]
    np.testing.assert_allclose(looks.importance, weights, atol=1e-5)


def test_full_windows_need_no_mask(model, golden):
    observations, actions, mask = steps(golden, slice(2))
    assert mask.all()
    rewards = model(observations, actions, mask).rewards[0].detach()
    np.testing.assert_allclose(rewards, golden["out:value_nomask_first2"], atol=2e-5)


def test_the_other_order_of_tokens_is_another_network(model, golden):
    """With kinds exchanged, states come first and rewards are read at actions."""
    exchanged = golden | {"in:observations": golden["in:actions"]}
    exchanged["in:actions"] = golden["in:observations"]
    other = transformer(exchanged, golden["meta"])
    swap = {"param:Dense_0": "param:Dense_1", "param:Dense_1": "param:Dense_0"}
    named = {}
    for name, array in stored(golden).items():
        first, _, rest = name.partition("/")
        named[f"{swap.get(first, first)}/{rest}"] = array
    load_flax(other, named)
    *step, mask = steps(exchanged)
    rewards = other(*step, mask).rewards[0].detach().numpy()
    real = mask.numpy()
    np.testing.assert_allclose(rewards[real], golden["out:value_reverse_true"][real], atol=2e-5)
    assert np.abs(rewards - golden["out:value"])[real].max() > 0.1


def test_windows_without_their_padding(model, golden):
    observations, actions, mask = steps(golden, slice(2, 3))
    real = mask[0]
    assert 0 < int(real.sum()) < len(real)
    bare = model(observations[:, real], actions[:, real], mask[:, real]).rewards[0, 0].detach()
    padded = model(observations, actions, mask).rewards[0, 0, real].detach()
    np.testing.assert_allclose(bare, padded, atol=1e-5)
    np.testing.assert_allclose(bare, golden["out:value"][2][real], atol=1e-5)


@pytest.mark.parametrize("name", DEFAULT)
def test_default_shape(name, shared):
    golden = arrays(shared, name)
    model = transformer(golden, golden["meta"])
    assert sum(p.numel() for p in model.parameters()) == int(golden["n_params"])
    load_flax(model, drawn(model, golden))
    check_forward(model, golden, 5e-5)
    observations, actions, mask = steps(golden)
    looks = model.attention(model.encoder(observations, actions), mask)
    last = looks.layers[0, :, :, -1].mean(1)  # [B, heads, 2L] to [B, 2L]
    np.testing.assert_allclose(last, golden["out:attn_0_last_row_head_mean"], atol=1e-5)


BATCHES = [slice(8), slice(8, 14)]


def scores_of(model, golden, rows):
    """`[B, 2]` of the two segments of a batch of pairs."""
    mask = torch.ones(golden["in:timestep_1"][rows].shape, dtype=torch.bool)
    scores = [
        model(
            *(
                torch.from_numpy(golden[f"in:{name}{suffix}"][rows])
                for name in ("observations", "actions")
            ),
            mask,
        ).scores[0]
        for suffix in ("", "_2")
    ]
    return torch.stack(scores, dim=-1)


def loss_of(model, golden, rows):
    preference = torch.from_numpy(golden["in:labels"][rows, 0])
    return preference_loss(preference_logits(scores_of(model, golden, rows)), preference)


class Training:
    """The published first twenty updates, made here."""

    def __init__(self, shared, name):
        self.golden = arrays(shared, name)
        about = self.golden["meta"]
        start = arrays(shared, Path(about["init_params"]).stem)
        self.model = transformer(self.golden, start["meta"], pooling=about["train_type"])
        load_flax(self.model, stored(start))  # in evaluation mode: without dropout

    def loss(self, rows):
        return loss_of(self.model, self.golden, rows)

    def evaluate(self):
        with torch.no_grad():
            return [self.loss(rows).item() for rows in BATCHES]

    def places(self):
        return flax_places(self.model)

    def determined(self):
        losses = [partial(loss_of, golden=self.golden, rows=rows) for rows in BATCHES]
        return determined(
            self.model,
            flax_places,
            losses,
            lambda twin: scores_of(twin, self.golden, slice(None)).sum(),
        )


@pytest.fixture(params=TRAINED)
def training(request, shared):
    return Training(shared, request.param)


def test_first_gradient(training):
    training.loss(slice(8)).backward()
    total = torch.nn.utils.get_total_norm(p.grad for p in training.model.parameters())
    np.testing.assert_allclose(total, training.golden["out:grad0_global_norm"], rtol=1e-4)
    counts = training.determined()
    with torch.no_grad():
        for parameter in training.model.parameters():
            parameter.copy_(parameter.grad)
    for path, gradient in training.places().items():
        if counts[path].any():
            expected = training.golden[f"grad0_norm:{path}"]
            np.testing.assert_allclose(gradient.norm().item(), expected, rtol=1e-4, err_msg=path)


def test_what_shifts_all_keys_or_all_rewards_has_no_gradient(training):
    last = "Dense_2" if training.model.config.head == "preference" else "Dense_3"
    width = training.model.config.width
    counts = training.determined()
    for path, numbers in counts.items():
        if path.endswith("GPT2SelfAttention_0/Dense_0/bias"):
            assert not numbers[width : 2 * width].any(), path  # queries, keys, values
    assert not counts[f"{last}/bias"][-1]
    shifted = doubled(training.model)
    with torch.no_grad():
        for path, place in flax_places(shifted).items():
            place += 1e-4 * torch.from_numpy(~counts[path])
        for rows in BATCHES:
            with mock.patch.object(Tensor, "float", Tensor.double):  # models round in places
                losses = [
                    loss_of(model, training.golden, rows).item()
                    for model in (shifted, doubled(training.model))
                ]
            assert losses[0] == pytest.approx(losses[1], rel=0, abs=1e-10)


def test_twenty_updates(training):
    golden = training.golden
    schedule = CosineSchedule(warmup=0.1, start=0.1, end=0.1)
    rates = [1e-3 * schedule.at(update, 20) for update in range(21)]
    np.testing.assert_allclose(rates, golden["out:lr"], rtol=0, atol=1e-9)
    optimiser = torch.optim.AdamW(training.model.parameters(), weight_decay=1e-4, fused=True)
    losses = []
    evaluated = [training.evaluate()]
    counts = training.determined()
    for update in range(20):
        optimiser.param_groups[0]["lr"] = rates[update]
        loss = training.loss(slice(8, 14) if update % 2 else slice(8))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        check_parameters(training, counts, update + 1)
    evaluated.append(training.evaluate())
    np.testing.assert_allclose(losses, golden["out:loss"], atol=2e-4)
    np.testing.assert_allclose(evaluated, golden["out:eval_loss_before_after"], atol=2e-4)


def check_parameters(training, counts, updates):
    golden = training.golden
    places = {path: place.detach().numpy() for path, place in training.places().items()}
    for path, numbers in counts.items():
        if f"after{updates}:{path}" in golden:
            after = golden[f"after{updates}:{path}"]
            np.testing.assert_allclose(
                places[path][numbers], after[numbers], atol=5e-5, err_msg=path
            )
    if f"after{updates}_norms" in golden:
        order = golden["param_order_for_norms"].tolist()
        for path, norm in zip(order, golden[f"after{updates}_norms"], strict=True):
            if counts[path].all():
                np.testing.assert_allclose(np.linalg.norm(places[path]), norm, rtol=1e-4)
