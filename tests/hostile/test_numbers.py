"""Weights and scales that are not finite, and tensors of other types, are refused at load."""

import json

import pytest
import safetensors.torch
import torch

from helpers.valid_files import VALID
from preferl.errors import PreferlError

WEIGHTS = {
    "reward": ("model.safetensors", "networks.weights.0"),
    "offline policy": ("policy.safetensors", "weight_0"),
    "policy": ("policy.safetensors", "action_net.weight"),
    "training state": ("", "critic.values"),
    "decision transformer": ("model.safetensors", "embed_state.weight"),
    "decision transformer with critics": ("policy.safetensors", "critics.live.weights.0"),
    "decision transformer of pictures": ("policy.safetensors", "pixel_encoder.dense.weight"),
}


def rewrite(file, change):
    """Replace a file of tensors by what a function makes of them."""
    safetensors.torch.save_file(change(safetensors.torch.load_file(file)), file)


@pytest.mark.parametrize("what", ["nan", "inf", "half", "double"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_finite_and_of_their_type(tmp_path, name, what):
    make, read = VALID[name]
    make(tmp_path / "it")
    file, first = WEIGHTS[name]

    def change(tensors):
        key = first if first in tensors else next(k for k, t in tensors.items() if t.ndim > 1)
        tensor = tensors[key].clone()
        if what in ("nan", "inf"):
            tensor.view(-1)[0] = float(what)
        elif what == "half":
            tensor = tensor.half()
        else:
            tensor = tensor.double()
        return tensors | {key: tensor}

    rewrite(tmp_path / "it" / file if file else tmp_path / "it", change)
    with pytest.raises(PreferlError, match="finite numbers" if what in ("nan", "inf") else "float"):
        read(tmp_path / "it")


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_inputs_are_divided_by_scales_above_nought(tmp_path, value):
    make, read = VALID["reward"]
    make(tmp_path / "it")

    def change(tensors):
        return tensors | {"encoder.deviation": torch.full_like(tensors["encoder.deviation"], value)}

    rewrite(tmp_path / "it" / "model.safetensors", change)
    with pytest.raises(PreferlError, match=r"encoder\.deviation: expected"):
        read(tmp_path / "it")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mean", [float("nan"), 0.0]),
        ("mean", [float("inf"), 0.0]),
        ("deviation", [float("inf"), 1.0]),
        ("deviation", [float("nan"), 1.0]),
        ("deviation", [0.0, 1.0]),
        ("target", float("inf")),
        ("target", float("nan")),
    ],
)
def test_rewards_are_scaled_by_finite_numbers(tmp_path, field, value):
    make, read = VALID["reward"]
    make(tmp_path / "it")
    file = tmp_path / "it" / "reward.json"
    about = json.loads(file.read_text())
    about["scaler"][field] = value
    file.write_text(json.dumps(about))
    with pytest.raises(PreferlError, match="finite"):
        read(tmp_path / "it")
