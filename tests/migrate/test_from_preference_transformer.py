"""Checkpoints of the Preference Transformer's scripts become rewards that give the same numbers.

The files are laid out as those that the authors' code wrote with JAX 0.4.13 and Flax 0.6.9: a
pickle of the model, whose arrays JAX takes apart in its own way.
"""

import os
import pickle
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from gymnasium import spaces

from helpers.converters import SCRIPTS, imported
from helpers.golden_arrays import arrays, stored
from preferl.models import (
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
from preferl.models.flax import flax_places
from preferl.training import load_reward

STEPS = 8
KINDS = {"MR": "rf", "NMR": "lstm", "PrefTransformer": "trans"}
"""Classes of the scripts, and what each names its only network."""

FLAGS = {
    "env": "hopper-medium-replay-v2",
    "activations": "relu",
    "activation_final": "none",
    "query_len": STEPS,
    "transformer.n_head": 4,
    "transformer.train_type": "mean",
    "lstm.train_type": "sum",
}


@pytest.fixture(scope="module")
def script():
    return imported("from_preference_transformer")


class FrozenDict:
    def __init__(self, tree):
        self.tree = tree

    def __reduce__(self):
        return FrozenDict, (self.tree,)


class TrainState:
    pass


def _reconstruct_array(function, arguments, state, aval_state):
    raise AssertionError("nothing of a file is run")


class Array:
    """An array of JAX."""

    def __init__(self, array):
        self.array = array

    def __reduce__(self):
        weak = {"weak_type": False, "named_shape": {}}
        return _reconstruct_array, (*self.array.__reduce__(), weak)


class Runs:
    """What must not happen when a file is read."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def tree_of(named):
    """Nested dictionaries of arrays by their names."""
    tree = {}
    for name, array in named.items():
        *parents, last = name.removeprefix("param:").split("/")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = Array(np.asarray(array, np.float32))
    return tree


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a checkpoint of one of the scripts' classes."""

    def write(kind, named, sizes, **flags):
        model = type(kind, (), {"__module__": f"JaxPref.{kind}"})
        defined = {
            f"JaxPref.{kind}": model,
            "flax.core.frozen_dict": FrozenDict,
            "flax.training.train_state": TrainState,
            "jax._src.array": _reconstruct_array,
        }
        with monkeypatch.context() as patch:
            for module_name, thing in defined.items():
                module = ModuleType(module_name)
                patch.setattr(thing, "__module__", module_name)
                setattr(module, thing.__name__, thing)
                for parent in ("JaxPref", "flax", "flax.core", "flax.training", "jax", "jax._src"):
                    patch.setitem(sys.modules, parent, ModuleType(parent))
                patch.setitem(sys.modules, module_name, module)
            training = TrainState()
            training.params = FrozenDict({"params": tree_of(named)})
            training.opt_state = (Array(np.zeros((), np.int32)), Runs(tmp_path / "made"))
            checkpoint = model()
            checkpoint.observation_dim, checkpoint.action_dim = sizes
            checkpoint._train_states = {KINDS[kind]: training}
            saved = {"reward_model": checkpoint, "variant": FLAGS | flags, "epoch": 5}
            (tmp_path / "best_model.pkl").write_bytes(pickle.dumps(saved))
        return tmp_path / "best_model.pkl"

    return write


MODELS = {
    "mr": ("MR", MLPRewardConfig((16, 8), activation="relu", pooling="mean", normalise=False), {}),
    "mr_bounded": (
        "MR",
        MLPRewardConfig(
            (8,), activation="leaky_relu", bounded=True, pooling="mean", normalise=False
        ),
        {"activations": "leaky_relu", "activation_final": "tanh"},
    ),
    "nmr": ("NMR", LSTMRewardConfig(16, context=STEPS, normalise=False), {}),
    "nmr_mean": (
        "NMR",
        LSTMRewardConfig(16, context=STEPS, pooling="mean", normalise=False),
        {"lstm.train_type": "mean"},
    ),
    "pt": (
        "PrefTransformer",
        PreferenceTransformerConfig(
            32, 2, 4, preference_width=24, context=STEPS, positions=20, normalise=False
        ),
        {},
    ),
    "pt_plain": (
        "PrefTransformer",
        PreferenceTransformerConfig(
            32, 1, 2, head="plain", context=STEPS, pooling="sum", normalise=False
        ),
        {"transformer.n_head": 2, "transformer.train_type": "sum"},
    ),
}
BOXES = [spaces.Box(-np.inf, np.inf, (5,)), spaces.Box(-np.inf, np.inf, (2,))]


@pytest.mark.parametrize("name", MODELS)
def test_models_are_the_same(script, write, tmp_path, name, rng):
    kind, config, flags = MODELS[name]
    model = build_reward_model(config, *BOXES, seed=3).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases, too, are no zeros
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.manual_seed(1))
    places = flax_places(model)
    named = {path: place.detach().numpy() for path, place in places.items()}
    said = script.convert(write(kind, named, (5, 2), **flags), tmp_path / "reward")
    assert "hopper-medium-replay-v2" in said
    reward = load_reward(tmp_path / "reward")
    assert reward.context == getattr(config, "context", 1)
    observations = torch.from_numpy(rng.normal(size=(6, STEPS, 5)).astype(np.float32))
    actions = torch.from_numpy(rng.normal(size=(6, STEPS, 2)).astype(np.float32))
    mask = torch.ones(6, STEPS, dtype=torch.bool)
    with torch.no_grad():
        expected = model(observations, actions, mask)
        given = reward.model(observations, actions, mask)
    assert expected.rewards.std() > 0.01
    torch.testing.assert_close(given.rewards, expected.rewards)
    torch.testing.assert_close(given.scores, expected.scores)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("name", "kind", "output", "flags"),
    [
        ("mr_small", "MR", "reward", {}),
        (
            "mr_small",
            "MR",
            "reward_leaky_tanh",
            {"activations": "leaky_relu", "activation_final": "tanh"},
        ),
        ("nmr_small", "NMR", "reward", {}),
        ("pt_small_ws", "PrefTransformer", "value", {}),
        ("pt_small_mlp", "PrefTransformer", "value", {}),
    ],
)
def test_rewards_are_those_of_the_published_code(
    script, write, tmp_path, shared, name, kind, output, flags
):
    golden = arrays(shared, name)
    observations, actions = (
        torch.from_numpy(golden[f"in:{part}"]) for part in ("observations", "actions")
    )
    sizes = (observations.shape[-1], actions.shape[-1])
    steps = 1 if observations.ndim == 2 else observations.shape[1]
    source = write(kind, stored(golden), sizes, query_len=steps, **flags)
    script.convert(source, tmp_path / "reward")
    model = load_reward(tmp_path / "reward").model
    expected = golden[f"out:{output}"]
    real = golden.get("in:attn_mask", np.ones((len(observations), steps))) > 0
    observations = observations.view(len(observations), steps, -1)
    actions = actions.view(len(actions), steps, -1)
    with torch.no_grad():
        rewards = model(observations, actions, torch.from_numpy(real)).rewards[0].numpy()
    np.testing.assert_allclose(rewards[real], expected.reshape(real.shape)[real], atol=2e-5)


def mr(write, **flags):
    name = "FullyConnectedNetwork_0/Dense_0"
    return write("MR", {f"{name}/kernel": np.ones((7, 1)), f"{name}/bias": [0]}, (5, 2), **flags)


@pytest.mark.parametrize(
    ("flags", "word"),
    [({"activations": "gelu"}, "gelu"), ({"activation_final": "sigmoid"}, "sigmoid")],
)
def test_models_without_a_counterpart_are_refused(script, write, tmp_path, flags, word):
    with pytest.raises(script.ConversionError, match=word):
        script.convert(mr(write, **flags), tmp_path / "reward")
    assert [file.name for file in tmp_path.iterdir()] == ["best_model.pkl"]


def test_missing_and_unknown_parameters_are_named(script, write, tmp_path):
    out = tmp_path / "reward"
    with pytest.raises(script.ConversionError, match="'Embed_0/embedding'"):
        script.convert(write("PrefTransformer", {"Dense_0/bias": [0.0]}, (5, 2)), out)
    name = "FullyConnectedNetwork_0/Dense_0"
    odd = {f"{name}/kernel": np.ones((7, 1)), f"{name}/bias": [0.0], "Dense_9/bias": [0.0]}
    with pytest.raises(script.ConversionError, match="Dense_9/bias"):
        script.convert(write("MR", odd, (5, 2)), out)


def test_the_command_line(write, tmp_path):
    def run(*arguments):
        command = [sys.executable, SCRIPTS / "from_preference_transformer.py", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    source = mr(write)
    out = tmp_path / "reward"
    assert run(source, out).stdout == f"{out}: the MR for hopper-medium-replay-v2\n"
    again = run(source, out)
    assert again.returncode == 1
    assert "expected a new folder" in again.stderr
    (tmp_path / "other.pkl").write_bytes(pickle.dumps({"labels": [1, 0]}))
    for name, word in (("none.pkl", "no file"), ("other.pkl", "another pickle")):
        refused = run(tmp_path / name, tmp_path / "new")
        assert refused.returncode == 1
        assert word in refused.stderr
        assert "Traceback" not in refused.stderr
    assert "--context" in run("--help").stdout
