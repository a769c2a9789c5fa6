"""Flax parameters by name; golden tests check what the numbers then do."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.errors import CheckpointError, ConfigError
from preferl.models import (
    Ensemble,
    LSTMReward,
    LSTMRewardConfig,
    MLPReward,
    MLPRewardConfig,
    PreferenceTransformer,
    PreferenceTransformerConfig,
    load_flax,
)
from preferl.models.flax import flax_places

OBSERVATIONS = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Box(-1, 1, (2,))


def mlp(**settings):
    config = MLPRewardConfig(**{"hidden": (4,), "normalise": False, **settings})
    return MLPReward(OBSERVATIONS, ACTIONS, config, seed=0)


def lstm(**settings):
    config = LSTMRewardConfig(**{"width": 8, "normalise": False, **settings})
    return LSTMReward(OBSERVATIONS, ACTIONS, config, seed=0)


def transformer(**settings):
    shape = {"width": 8, "layers": 2, "heads": 2, "preference_width": 6, "context": 5}
    config = PreferenceTransformerConfig(**{**shape, "normalise": False, **settings})
    return PreferenceTransformer(OBSERVATIONS, ACTIONS, config, seed=0)


def plain_transformer(**settings):
    return transformer(head="plain", positions=9, **settings)


MODELS = [mlp, lstm, transformer, plain_transformer]


def some_arrays(model):
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=place.shape) for name, place in flax_places(model).items()}


@pytest.mark.parametrize("prefix", ["", "param:params/"])
def test_names_may_have_a_prefix_and_come_from_a_file(tmp_path, prefix):
    one = mlp()
    other = mlp()
    arrays = some_arrays(one)
    np.savez(tmp_path / "arrays.npz", **{prefix + name: a for name, a in arrays.items()})
    load_flax(one, arrays)
    load_flax(other, tmp_path / "arrays.npz")
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])


def test_missing_unknown_and_misshapen_arrays_are_named_and_nothing_is_set():
    model = transformer()
    arrays = some_arrays(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    name = sorted(arrays)[-1]
    lacking = {key: array for key, array in arrays.items() if key != name}
    for wrong, words in (
        (lacking, f"1 missing: .*{name}"),
        (arrays | {"Dense_9/bias": np.zeros(1)}, "1 unknown: .*Dense_9/bias"),
        (arrays | {name: np.zeros((7, 7, 7))}, rf"^shape of {name}: expected .*, got \(7, 7, 7\)"),
    ):
        with pytest.raises(CheckpointError, match=words):
            load_flax(model, wrong)
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())


def test_files_that_are_no_arrays_are_refused(tmp_path):
    for content in (b"", b"not arrays", b"PK\x03\x04cut off"):
        (tmp_path / "arrays.npz").write_bytes(content)
        with pytest.raises(CheckpointError, match="npz file of arrays"):
            load_flax(mlp(), tmp_path / "arrays.npz")
    np.save(tmp_path / "single.npy", np.zeros(3))
    for name in ("absent.npz", "single.npy"):
        with pytest.raises(CheckpointError, match="npz file of arrays"):
            load_flax(mlp(), tmp_path / name)


def test_a_model_without_a_counterpart_is_refused():
    for model in (mlp(members=2), Ensemble([lstm(), lstm()])):
        with pytest.raises(ConfigError, match="MLPReward of one member"):
            load_flax(model, {})
    with pytest.raises(ConfigError, match=r"^normalise: expected False"):
        load_flax(mlp(normalise=True), {})
